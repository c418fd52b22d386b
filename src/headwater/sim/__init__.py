"""Runs a placed flow over a net in simulated time, deterministic by seed.

arrivals  when records come
predict   what the placement expects
queues    every step and link a queue of its own, as whole arrays; sharing   steps that share a processor
engine    the engine's own decision machine on every device (site), with its sources (inlet); run   one in progress
settings  what can be chosen for `engine`
disk      a disk that crashes and fails, for whatever has to survive that
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import RunError
from headwater.metrics import Report
from headwater.place.problem import TURN, Model
from headwater.sim.arrivals import Arrivals, Constant, Poisson, RecordedArrivals
from headwater.sim.engine import run as run_engine
from headwater.sim.queues import QueueOptions, Service
from headwater.sim.queues import run as run_queues
from headwater.sim.run import SimRun
from headwater.sim.settings import Costs, EngineOptions, Stalls

if TYPE_CHECKING:
    from headwater.net.arrays import Ints
    from headwater.place.placement import Placement
    from headwater.place.problem import Problem

__all__ = [
    "Arrivals",
    "Constant",
    "Costs",
    "EngineOptions",
    "Poisson",
    "QueueOptions",
    "RecordedArrivals",
    "Service",
    "SimRun",
    "Stalls",
    "run",
    "run_engine",
    "run_queues",
    "start",
]


def start(problem: Problem, device: Ints, options: EngineOptions | None = None) -> SimRun:
    """Start a rehearsal with the engine's scheduler and return the run in progress; `run_engine` waits for its report.

    There is none of `run_queues`: it reckons one queue after the other, so that nothing is in progress at any moment.
    """
    return SimRun(problem, device, options).start()


def run(placement: Placement, options: EngineOptions | QueueOptions | None = None) -> Report:
    """Play a placement by the model it was reckoned with: `plan.bind(flow, net)` has one, and so has every strategy.

    Options are those of `run_engine` for the model `engine`, one worker and turns as plans reckon if left out, and those
    of `run_queues` for the others.
    """
    problem, device = placement.problem, placement.device
    if device is None:
        raise RunError(f"there is nothing to play of '{problem.name}': {placement.reason}")
    if isinstance(options, EngineOptions) or (options is None and problem.model is Model.ENGINE):
        return run_engine(problem, device, options or EngineOptions(workers=1, take=TURN))
    return run_queues(problem, device, options)
