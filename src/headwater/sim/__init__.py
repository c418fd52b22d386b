"""Runs a placed flow over a net in simulated time, deterministic by seed.

arrivals  when records come
predict   what the placement expects
queues    every step and link a queue of its own, as whole arrays; sharing   steps that share a processor
engine    the engine's own decision machine on every device (site), with its sources (inlet); run   one in progress
settings  what can be chosen for `engine`
policies  which policy would serve a flow best
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.sim.arrivals import Arrivals, Constant, Poisson, Recorded
from headwater.sim.engine import run as run_engine
from headwater.sim.queues import Options, Service
from headwater.sim.queues import run as run_queues
from headwater.sim.run import SimRun
from headwater.sim.settings import Costs, EngineOptions, Stalls

if TYPE_CHECKING:
    from headwater.net.arrays import Ints
    from headwater.place.problem import Problem

__all__ = [
    "Arrivals",
    "Constant",
    "Costs",
    "EngineOptions",
    "Options",
    "Poisson",
    "Recorded",
    "Service",
    "SimRun",
    "Stalls",
    "run_engine",
    "run_queues",
    "start",
]


def start(problem: Problem, device: Ints, options: EngineOptions | None = None) -> SimRun:
    """Start a rehearsal with the engine's scheduler and return the run in progress; `run_engine` waits for its report.

    There is none of `run_queues`: it reckons one queue after the other, so that nothing is in progress at any moment.
    """
    return SimRun(problem, device, options).start()
