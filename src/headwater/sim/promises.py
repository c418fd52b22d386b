"""Promises in virtual time: the same ledger and the same estimate, on as many cores as one likes, beside any competition.

A machine's cores are shared out by weight, as its scheduler does over some milliseconds, and no process gets more than one.
A lane has a turn each tick, for the records that have gathered; a competitor always wants a core. A machine of which
several stand side by side, each with a ledger of its own, is played once and counted as often.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headwater.flow.contract import Contract
from headwater.flow.profile import Demand
from headwater.rate import estimate
from headwater.rate.ledger import Ledger, Refusal, Reservation

_USUAL, _RESERVED = (
    1.0,
    256.0,
)  #: weights of a process like any other, and of a reserved core, as control groups have them


@dataclass(frozen=True, slots=True)
class Offer:
    """A flow that asks for a promise, and what really comes to it."""

    flow: str
    contract: Contract
    demand: Demand
    offered_hz: float | None = None  #: the promised rate unless said
    lanes: int = 1  #: that it may have, at most; it gets the fewest that are enough, and each an equal part of its keys

    @property
    def rate_hz(self) -> float:
        """Records per second that come."""
        return self.contract.rate_hz if self.offered_hz is None else self.offered_hz


@dataclass(frozen=True, slots=True)
class PromiseOutcome:
    """What became of an offer: refused, or so many windows kept."""

    flow: str
    refused: Refusal | None
    reserved: float = 0.0
    windows: int = 0
    kept: int = 0
    done: float = 0.0  #: the share of the records that left within the time played
    p99_s: float = 0.0
    lanes: int = 1


def play(
    offers: Sequence[Offer], *, cores: float, seconds: int = 10, competitors: int = 0, protected: bool = True
) -> list[PromiseOutcome]:
    """Admit offers in their order, run those that were, and judge their windows; nothing is left to chance.

    Without protection every process weighs the same, admitted or not: nobody is asked.
    """
    ledger = Ledger(cores)
    admitted: dict[int, list[_Lane]] = {}
    refusals: dict[int, Refusal] = {}
    for number, offer in enumerate(offers):
        count, cores_needed = estimate.lanes_for(offer.demand, offer.contract, offer.lanes)
        reservation = Reservation(str(number), offer.flow, offer.contract, cores_needed, number, 0, lanes=count)
        no = ledger.ask(reservation) if protected else None
        if no is not None:
            refusals[number] = no
            continue
        admitted[number] = [_Lane(offer, cores_needed / count, count, protected=protected) for _ in range(count)]
    _run([lane for lanes in admitted.values() for lane in lanes], cores, float(seconds), competitors)
    outcomes = {number: _judge(offers[number], lanes, seconds) for number, lanes in admitted.items()}
    return [outcomes.get(number) or PromiseOutcome(offer.flow, refusals[number]) for number, offer in enumerate(offers)]


class _Lane:
    """A lane, of so many of its offer: work that comes each tick, and what of it is left."""

    def __init__(self, offer: Offer, cores: float, of: int = 1, *, protected: bool) -> None:
        self.cores = cores
        self.tick_s = estimate.tick_of(offer.contract)
        self.turn_s = estimate.used(offer.demand, offer.rate_hz / of, self.tick_s) * self.tick_s
        above = offer.rate_hz > offer.contract.rate_hz * (1 + 1e-9)
        self.weight = cores * _RESERVED if protected and not above else _USUAL
        self.backlog_s = 0.0
        self.waiting: list[float] = []  #: when the records of each turn that is not done were first due
        self.ages: list[tuple[float, float]] = []  #: of each turn that is done: when its records were due, their age

    def comes(self, now_s: float) -> None:
        """Have the records of a tick ready."""
        self.backlog_s += self.turn_s
        self.waiting.append(now_s - self.tick_s)

    def works(self, worked_s: float, now_s: float) -> None:
        """Take note of processor time; a turn is done when all before it is."""
        self.backlog_s = max(0.0, self.backlog_s - worked_s)
        behind = int(np.ceil(self.backlog_s / self.turn_s - 1e-9)) if self.turn_s else 0
        while len(self.waiting) > behind:
            due_s = self.waiting.pop(0)
            self.ages.append((due_s, now_s - due_s))


def _judge(offer: Offer, lanes: Sequence[_Lane], seconds: int) -> PromiseOutcome:
    """Judge every second but the last, whose records may be on their way: of all lanes of an offer together."""
    bound_s = offer.contract.latency_s
    ages = [age for lane in lanes for age in lane.ages]
    waiting = [due_s for lane in lanes for due_s in lane.waiting]
    late = {int(due_s) for due_s, age_s in ages if bound_s is not None and age_s > bound_s + 1e-9}
    late |= {int(due_s) for due_s in waiting}
    windows = max(1, seconds - 1)
    share_done = len(ages) / max(1, len(ages) + len(waiting))
    p99_s = float(np.percentile([age_s for _, age_s in ages], 99)) if ages else float("inf")
    kept_windows = sum(second not in late for second in range(windows))
    reserved = sum(lane.cores for lane in lanes)
    return PromiseOutcome(offer.flow, None, reserved, windows, kept_windows, share_done, p99_s, len(lanes))


def _run(lanes: Sequence[_Lane], cores: float, seconds: float, competitors: int) -> None:
    """Play from event to event: a tick of a lane, or a lane that has done all it had."""
    # lanes begin one after the other, as processes do, so that their ticks do not all fall together
    ticks = [(lane.tick_s * (1 + at / max(1, len(lanes))), at) for at, lane in enumerate(lanes)]
    heapq.heapify(ticks)
    now_s = 0.0
    while now_s < seconds and ticks:
        speeds = _shares(lanes, cores, competitors)
        done_s = min(
            (now_s + lane.backlog_s / speed for lane, speed in zip(lanes, speeds, strict=True) if speed),
            default=seconds,
        )
        next_s = min(ticks[0][0], done_s, seconds)
        for lane, speed in zip(lanes, speeds, strict=True):
            if speed:
                lane.works(speed * (next_s - now_s), next_s)
        now_s = next_s
        while ticks and ticks[0][0] <= now_s:
            due_s, at = heapq.heappop(ticks)
            lanes[at].comes(due_s)
            heapq.heappush(ticks, (due_s + lanes[at].tick_s, at))


def _shares(lanes: Sequence[_Lane], cores: float, competitors: int) -> list[float]:
    """Share the cores out by weight among all who want some, one core each at most; return what each lane gets."""
    shares = [0.0] * len(lanes)
    wanting = {at: lane.weight for at, lane in enumerate(lanes) if lane.backlog_s > 1e-12}
    rivals, free = float(competitors), cores
    while wanting:
        total = sum(wanting.values()) + rivals * _USUAL
        full = [at for at, weight in wanting.items() if weight / total * free >= 1.0]
        if rivals and _USUAL / total * free >= 1.0:
            free, rivals = free - rivals, 0.0
            continue
        if not full:
            for at, weight in wanting.items():
                shares[at] = weight / total * free
            break
        for at in full:
            shares[at] = 1.0
            free -= 1.0
            del wanting[at]
    return shares
