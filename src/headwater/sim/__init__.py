"""Runs a placed flow over a net in simulated time, deterministic by seed.

arrivals  when records come
predict   what the placement expects
queues    every step and link a queue of its own, as whole arrays; sharing   steps that share a processor
engine    the engine's own decision machine on every device (site), with its sources (inlet)
settings  what can be chosen for `engine`
policies  which policy would serve a flow best
"""

from headwater.sim.arrivals import Arrivals, Constant, Poisson, Recorded
from headwater.sim.engine import run as run_engine
from headwater.sim.queues import Options, Service
from headwater.sim.queues import run as run_queues
from headwater.sim.settings import Costs, EngineOptions, Stalls

__all__ = [
    "Arrivals",
    "Constant",
    "Costs",
    "EngineOptions",
    "Options",
    "Poisson",
    "Recorded",
    "Service",
    "Stalls",
    "run_engine",
    "run_queues",
]
