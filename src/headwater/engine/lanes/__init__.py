"""Lanes: a flow on all cores, as processes with one worker each, forked from the one that was asked to run it.

`layout` says where steps run and what moves, `columns` how much of it, `wiring` makes of that a flow for each lane, with an
`outlet` and an `inlet` at the ends of each `ring`, and a `share` of each source that all lanes read; `idleness` tells
whether one is silent, `compiling` whether one waits for kernels. A `lane` runs its part as the engine runs any flow;
`child` is one in another process, `run` all of them together, told by `wire` and put together by `accounts` into one
report. `checkpoint` has all of them saved; where one dies then, all start again, forked by a `fork_server` and as often
as `headwater.restarts` allows.
"""

from __future__ import annotations

import logging
from typing import Any, Literal

from headwater.engine.lanes.lane import LaneRun
from headwater.engine.lanes.layout import laid_out
from headwater.engine.lanes.run import LanesRun, available
from headwater.engine.options import Options
from headwater.engine.workers import WorkerPool
from headwater.errors import RunError
from headwater.flow.flow import Flow

__all__ = ["LaneRun", "Lanes", "LanesRun", "check_lanes", "lane_count", "lanes_of"]

log = logging.getLogger(__name__)

Lanes = int | Literal["auto"]
_LANES_PER_PROCESSOR = 16  #: at most: many more than help, and few enough to start


def lane_count(flow: Flow, lanes: Lanes) -> int:
    """Return how many lanes a run of a flow would have."""
    count = check_lanes(lanes)
    return count if count > 1 and laid_out(flow).spreads() else 1


def check_lanes(lanes: Lanes) -> int:
    """Return how many lanes that is on this machine; RunError for what can be none, or too many."""
    if lanes != "auto" and (not isinstance(lanes, int) or isinstance(lanes, bool) or lanes < 1):
        raise RunError(f"lanes is 'auto' or a whole number of at least 1; got {lanes!r}")
    most = _LANES_PER_PROCESSOR * available()
    if lanes != "auto" and lanes > most:
        raise RunError(f"lanes is at most {most} here, {_LANES_PER_PROCESSOR} for each processor; got {lanes}")
    return available() if lanes == "auto" else lanes


def lanes_of(flow: Flow, lanes: Lanes, **options: Any) -> LanesRun | WorkerPool:
    """Make a run of a flow in so many lanes, not started; a flow of which nothing can be spread gets one."""
    count = check_lanes(lanes)
    if "workers" in options:
        raise RunError("a lane has one worker: give lanes or workers, not both")
    settings = Options(workers=1, **options)
    if count == 1:
        return WorkerPool(flow, settings)
    layout = laid_out(flow)
    if not layout.spreads():
        why = "; ".join(f"{name}: {reason}" for name, reason in layout.why_one.items())
        log.warning("flow %s runs in one lane, since nothing of it can be spread (%s)", flow.name, why)
        return WorkerPool(flow, settings)
    return LanesRun(layout, count, settings)
