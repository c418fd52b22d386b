"""RIoTBench: its tasks as steps, its dataflows as flows, its data and models.

`etl` (with `wide`), `stats` (with `wide_stats`), `viz`, `pred` and `train` build the flows, `bundled` names them for
the command line, `sources`, `samples` and `model_folder` bring their input, `in_order` writes their output. The steps
are in `parse`, `filters`, `scans`, `rows`, `predict` and `learn`; `table`, `blobs` and `chart` are what they store
and draw with. `datasets` describes the four streams and `generate` makes them up (`city`, `taxi`, `fit`, `grid`, by
`draws`); `notes` is what is known of their sensors. `models` holds trees and regressions, `published` those to begin
with; `train_tree`, `train_regression` and `labels` make new ones. `instances` is how many of each step there are.
"""

from __future__ import annotations

from headwater.flow import Flow

__all__ = ["flow_named"]


def flow_named(name: str) -> Flow:
    """Return a bundled flow by its name: etl, stats, stats-viz, train or pred."""
    from headwater_bench.riot import bundled  # the kernels load when a flow is wanted, not before

    return bundled.flow_named(name)
