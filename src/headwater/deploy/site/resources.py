"""What a site has and what of it is promised: cores, memory, load, its ledger, its price and its carbon intensity."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from headwater.cores import usable_cores
from headwater.deploy.control.messages import Lane, Resources
from headwater.deploy.part import Promise
from headwater.deploy.site.last_look import LastLook
from headwater.deploy.site.others import Others
from headwater.deploy.site.quote import Quote
from headwater.errors import RateError
from headwater.rate import board
from headwater.rate import messages as promises
from headwater.rate.ledger import LANE, PROMISED, Refusal

_LOOK_S = 0.5
_COUNT_S = 2.0  #: between two looks at what others take


@dataclass(frozen=True, slots=True)
class Quotes:
    """What a site says of itself that nobody can measure; None where it says nothing."""

    price: Quote | None = None
    carbon: Quote | None = None
    cores: Quote | None = None  #: that it lends: those of the machine unless said


class Site:
    """Looks at the machine that a site is; the ledger is that of the machine's supervisor, whoever's promises it holds."""

    def __init__(self, quotes: Quotes | None = None, core_ips: float | None = None, *, reserves: bool = True) -> None:
        """Look at this machine; where parts work on a cluster (not `reserves`), the cores that it lends are those."""
        self._quotes, self._core_ips, self._reserves = quotes or Quotes(), core_ips, reserves
        self._board: LastLook[promises.Board | None] = LastLook(board, _LOOK_S, None)
        processors = os.sched_getaffinity(0)
        self._processors, others = float(len(processors)), Others(os.getpid(), processors)
        self._others = LastLook(lambda: others.cores(time.monotonic()), _COUNT_S, 0.0)

    def resources(self) -> Resources:
        """Return how things are."""
        now_s, quotes = time.time(), self._quotes
        machine = usable_cores()
        lent = machine if quotes.cores is None else quotes.cores.at(now_s)
        cores = machine if lent is None else lent
        price = None if quotes.price is None else quotes.price.at(now_s)
        carbon = None if quotes.carbon is None else quotes.carbon.at(now_s)
        wrong = [each.why for each in (quotes.price, quotes.carbon, quotes.cores) if each is not None and each.why]
        promised: promises.Board | None = None
        try:
            promised = self._board.value
        except RateError as error:  # what is promised is not known for the moment
            wrong.append(str(error))
        lanes = [] if promised is None else promised.lanes
        capacity = PROMISED * cores
        if promised is not None and self._reserves:
            capacity = min(promised.capacity, capacity)
        return Resources(
            cores=cores,
            core_ips=self._core_ips,
            free_memory_bytes=free_memory(),
            busy=busy_of(self._others.value, self._processors, cores),
            capacity=capacity,
            lanes=[_lane(each) for each in lanes],
            reserves=self._reserves,
            price=price,
            carbon=carbon,
            why="; ".join(wrong),
        )

    def refusal(self, promise: Promise, *pids: int | None) -> Refusal | None:
        """Say why a promise cannot be given here; what is held for the processes `pids` is for it already."""
        if promise.cores > LANE:
            return Refusal(promise.cores, LANE, why="lane")
        return self.shortage(promise.cores, *pids)

    def shortage(self, cores: float, *pids: int | None) -> Refusal | None:
        """Say that so many cores are not left, if they are not; what is held for the processes `pids` is."""
        resources = self.resources()
        own = [lane for lane in resources.lanes if lane.pid in pids]
        room = max(0.0, resources.capacity - resources.promised + sum(lane.cores for lane in own))
        holders = tuple((lane.flow, lane.cores) for lane in resources.lanes if lane not in own)
        return Refusal(cores, room, holders) if cores > room else None


def _lane(lane: promises.Lane) -> Lane:
    return Lane(lane.id, lane.flow, lane.pid, lane.cores, lane.kept, lane.broken, lane.close, lane.causes)


def busy_of(others: float, machine: float, lent: float) -> float:
    """Return which share of the cores that a site lends others have: they take first what it does not lend.

    >>> busy_of(others=1.0, machine=2.0, lent=2.0), busy_of(others=1.0, machine=2.0, lent=0.5)
    (0.5, 0.0)
    """
    return max(0.0, others - max(0.0, machine - lent)) / lent if lent > 0 else 1.0


def free_memory(info: Path = Path("/proc/meminfo")) -> int:
    """Return the bytes that programs could still have, by the system's own reckoning; 0 where it does not say."""
    try:
        for line in info.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return 0
