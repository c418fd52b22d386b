"""How many cores a promise needs: Storm-RTS's reservation, ours for a flow that runs once a tick, and what would fit.

W = κ(Σ A·c + e/τ): what each step costs each time it runs, as often as it runs, and the engine's own work each tick. A
step runs once in τ, or once a record where records come more seldom. The longer it sleeps meanwhile, the more of what it
needs is no longer in the caches: c and e are measured at one τ, and how they change with it is measured too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from headwater.flow.contract import Contract, rate_text
from headwater.flow.duration import duration_text
from headwater.flow.profile import Demand, StepDemand
from headwater.metrics import Sample
from headwater.rate.ledger import LANE

KAPPA = 1.4
"""How much more is reserved than the profile says: the least that was enough at all of 18 points tried."""

TICKS = 4
"""The ticks that fit into a promised latency: records gather for one, and the others are for the work."""

SHORTEST_S, LONGEST_S, USUAL_S = 0.001, 0.02, 0.01
"""Ticks: beyond the longest, a longer one saves next to nothing."""

WARM_S = 0.005
"""A tick so short that caches hardly grow cold in it, nor in a shorter one."""


def tick_of(contract: Contract) -> float:
    """Return τ, for how long sources let records gather so that they leave in time."""
    if contract.latency_s is None:
        return USUAL_S
    return min(max(contract.latency_s / TICKS, SHORTEST_S), LONGEST_S)


def at_tick(demand: Demand, tick_s: float) -> Demand:
    """Return what a flow needs where its records gather for another time than when that was measured."""
    times = (max(tick_s, WARM_S) / max(demand.tick_s, WARM_S)) ** demand.cooling
    steps = {name: replace(step, tick_s=times * step.tick_s) for name, step in demand.steps.items()}
    return replace(demand, tick_s=tick_s, engine_s=times * demand.engine_s, steps=steps)


def costing(demand: Demand, times: float) -> Demand:
    """Return what a flow needs that has shown to be so many times as dear as it was measured."""
    steps = {
        name: replace(step, record_s=times * step.record_s, tick_s=times * step.tick_s)
        for name, step in demand.steps.items()
    }
    return replace(demand, engine_s=times * demand.engine_s, steps=steps)


def used(demand: Demand, rate_hz: float, tick_s: float) -> float:
    """Return the cores that a flow uses in one lane, by what was measured."""
    there = at_tick(demand, tick_s)
    return sum(busy(step, rate_hz, tick_s) for step in there.steps.values()) + there.engine_s / tick_s


def cores(demand: Demand, rate_hz: float, tick_s: float, lanes: int = 1) -> float:
    """Return W, the cores to reserve for a rate, in so many lanes together: each has its part of it, at every tick."""
    return KAPPA * lanes * used(demand, rate_hz / lanes, tick_s)


def lanes_for(demand: Demand, contract: Contract, most: int = 1) -> tuple[int, float]:
    """Return the fewest lanes, of so many at most, of which none has more to do than one may, and their cores."""
    for lanes in range(1, most + 1):
        needed = cores(demand, contract.rate_hz, tick_of(contract), lanes)
        if needed <= LANE * lanes:
            break
    return lanes, needed


def busy(step: StepDemand, rate_hz: float, tick_s: float) -> float:
    """Return A·c, the share of a core that one step uses, of a demand at this very tick."""
    arrivals_hz = rate_hz * step.scale
    return min(1 / tick_s, arrivals_hz) * step.tick_s + arrivals_hz * step.record_s


def backlog(demand: Demand, now: Sample) -> float:
    """Return what was read and has not left, each step's in records of the sources."""
    scales = {name: step.scale for name, step in demand.steps.items()}
    return sum(step.left / (scales.get(name) or 1.0) for name, step in now.steps.items())


@dataclass(frozen=True, slots=True)
class Invocations:
    """What Storm-RTS would guarantee one step, and reserve for it."""

    per_s: float  #: A = λμ/b
    cores: float  #: W = A·tmax·s


def invocations(step: StepDemand, rate_hz: float) -> Invocations:
    """Return the paper's A and W of a step."""
    per_s = rate_hz * step.scale / step.batch
    return Invocations(per_s, per_s * step.limit_s * step.cores)


@dataclass(frozen=True, slots=True)
class Nearest:
    """What would fit instead; None where nothing of the kind does."""

    rate_hz: float | None  #: with the same latency
    latency_s: float | None  #: with the same rate

    @property
    def offered_hz(self) -> float | None:
        """The rate as it is offered, in two digits."""
        return _two_digits(self.rate_hz) if self.rate_hz else None

    def __str__(self) -> str:
        parts = []
        if self.offered_hz:
            parts.append(rate_text(self.offered_hz))
        if self.latency_s is not None:
            parts.append(f"the same rate within {duration_text(math.ceil(self.latency_s * 1e3) * 1000)}")
        return f"what would fit: {' or '.join(parts)}" if parts else "no rate would fit"


def _two_digits(value: float) -> float:
    """Round down to two digits: what is offered must fit.

    >>> _two_digits(12_990)
    12000.0
    """
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.floor(value / unit) * unit


def nearest(demand: Demand, contract: Contract, room: float, lanes: int = 1) -> Nearest:
    """Return the highest rate at this latency, and the shortest latency at this rate, that fit into so many cores.

    `lanes` is how many may share them, at most; 0 for an application, which has whole cores and no bound but them.
    """

    def fits(rate_hz: float, tick_s: float) -> bool:
        if not lanes:
            return cores(demand, rate_hz, tick_s) <= math.floor(room)
        counts = range(1, lanes + 1)
        return any(cores(demand, rate_hz, tick_s, each) <= min(room, LANE * each) for each in counts)

    tick_s = tick_of(contract)
    rate = _last_that_fits(lambda hz: fits(hz, tick_s), contract.rate_hz)
    tick = _last_that_fits(lambda share: fits(contract.rate_hz, LONGEST_S / share), LONGEST_S / tick_s)
    # at most one tick: a share of 1 is the longest
    latency = None if tick is None or tick < 1 else TICKS * LONGEST_S / tick
    return Nearest(rate, latency)


def _last_that_fits(fits: Callable[[float], bool], most: float) -> float | None:
    """Return the largest value up to `most` that fits, where all below one that fits do; None if next to nothing does."""
    low, high = 0.0, most
    for _ in range(60):  # far below what was asked for there may still be something that fits
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low if low > most * 1e-9 else None
