"""RIoTBench: its tasks as steps, its dataflows as flows, its data and models.

`etl`, `stats`, `pred` and `train` build the flows, `bundled` names them for the command line, `sources` says
where their messages come from. The steps are in `parse`, `filters`, `scans`, `rows`, `predict` and `learn`.
`datasets` describes the four streams; `generate` makes them up (`city`, `taxi`, `fit`, `grid`), `samples`
reads the benchmark's own. `models` holds trees and regressions; `train_tree`, `train_regression` and `labels`
make them.
"""

from __future__ import annotations

from headwater.flow import Flow

__all__ = ["flow_named"]


def flow_named(name: str) -> Flow:
    """Return a bundled flow by its name: etl, stats, stats-viz, train or pred."""
    from headwater.riot import bundled  # the kernels load when a flow is wanted, not before

    return bundled.flow_named(name)
