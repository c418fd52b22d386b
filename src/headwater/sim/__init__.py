"""Runs a placed flow over a net in simulated time, deterministic by seed.

arrivals  when records come                queues   every step and link a queue of its own, played as whole
arrays predict   what the placement expects       engine   the engine's own decision machine on every device
policies  which policy would serve a flow best
"""

from headwater.sim.arrivals import Arrivals, Constant, Poisson, Recorded
from headwater.sim.engine import EngineOptions
from headwater.sim.engine import run as run_engine
from headwater.sim.queues import Options, Service
from headwater.sim.queues import run as run_queues

__all__ = [
    "Arrivals",
    "Constant",
    "EngineOptions",
    "Options",
    "Poisson",
    "Recorded",
    "Service",
    "run_engine",
    "run_queues",
]
