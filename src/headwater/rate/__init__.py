"""Promised rates, after Storm-RTS: what a rate and a latency need of a machine.

estimate   how many cores a promise needs, by the paper's reckoning and by ours; what would fit instead
profiler   measures that: cold, once a tick, by the processor's clock
chain      a flow's steps one after the other in one thread, each turn timed
"""

from headwater.rate.estimate import Nearest, cores, invocations, nearest, tick_of
from headwater.rate.profiler import demanding

__all__ = ["Nearest", "cores", "demanding", "invocations", "nearest", "tick_of"]
