"""Real time for lanes that keep to their promise, as long as they use no more of the processor than was reserved for them.

A weight is a share over time. The scheduler keeps it to within some milliseconds only: a lane that has just run waits for
several of the short processes beside it, whatever it weighs, and at each of the wakes that a tick takes. A thread of real
time waits for none of them. What it may do so is bounded here, since the system would let it run on: a lane that uses more
than it has reserved, or gets more than was promised, is back among all others, with its weight, until it does so no more.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headwater.processes import children
from headwater.rate import process
from headwater.rate.cgroups import Groups
from headwater.rate.ledger import Reservation

log = logging.getLogger(__name__)

LOOK_S = 0.1
"""How often it is looked whether a lane uses more than it has reserved."""

_BURST_S = 0.25  #: for how long a lane may use twice what it has reserved
_LEAST_S = 0.05  #: of processor time that it may use beyond that at any rate: the system tells it in hundredths
_OWN = 50  #: the priority of who looks
_SHORTEST_S, _HIGHEST = 0.001, 40  #: the latency of the lanes that go before all others, and their priority
#: what a thread of real time starts is of none: nothing runs so that is not looked at
_POLICY = os.SCHED_RR | os.SCHED_RESET_ON_FORK


def may_run_so() -> bool:
    """Say whether this thread may be of real time, by trying."""
    policy, param = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        os.sched_setscheduler(0, _POLICY, os.sched_param(1))
        os.sched_setscheduler(0, policy, param)
    except OSError:
        return False
    return True


def go_before_lanes() -> None:
    """Let this thread run before all lanes, so that it can take real time away from one that runs wild."""
    os.sched_setscheduler(0, _POLICY, os.sched_param(_OWN))


def priority(latency_s: float) -> int:
    """Return a lane's priority: the shorter its latency, the higher; 10 a decade.

    >>> priority(0.02), priority(0.05), priority(3600)
    (27, 23, 1)
    """
    return max(1, _HIGHEST - round(10 * math.log10(max(latency_s, _SHORTEST_S) / _SHORTEST_S)))


@dataclass(slots=True)
class _Lane:
    """A lane of real time, and what it may still use."""

    lane: Reservation
    pids: list[int]
    used_s: float
    at_s: float
    credit_s: float


class RealTime:
    """Which lanes are of real time now; their groups are where they come from, and go back to."""

    def __init__(self, groups: Groups | None, used_s: Callable[[int], float] = process.used_s) -> None:
        self._groups, self._used_s = groups, used_s
        self._entries: dict[str, _Lane] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def give(self, lane: Reservation, now_s: float) -> None:
        """Let all threads that a lane has be of real time; to be said again, since it may have started some."""
        if lane.contract.latency_s is None or not lane.lanes:
            return  # over seconds a weight is kept
        pids = _processes(lane)
        try:
            self._set(pids, priority(lane.contract.latency_s))
        except OSError as error:
            log.warning("flow %s has the weight that it reserved, and no real time: %s", lane.flow, error)
            self.take(lane)
            return
        entry = self._entries.get(lane.id)
        if entry is None:
            self._entries[lane.id] = _Lane(lane, pids, self._used(pids), now_s, _most_s(lane))
        else:
            entry.lane, entry.pids = lane, pids

    def take(self, lane: Reservation) -> None:
        """Let a lane's threads run among all others, with the weight of its group."""
        entry = self._entries.pop(lane.id, None)
        for pid in _processes(lane) if entry is None else entry.pids:
            for thread in _threads(pid):
                with suppress(OSError):  # it has ended meanwhile
                    if os.sched_getscheduler(thread) & ~os.SCHED_RESET_ON_FORK == os.SCHED_RR:
                        os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
            if self._groups is not None:
                with suppress(OSError):
                    self._groups.put(lane.id, pid, lane.cores)

    def end(self, name: str) -> None:
        """Take real time away from what was a lane, as far as that is still there."""
        entry = self._entries.get(name)
        if entry is not None and process.began(entry.lane.pid) == entry.lane.began:
            self.take(entry.lane)
        self._entries.pop(name, None)

    def look(self, now_s: float) -> list[Reservation]:
        """Take real time away from lanes that use more than they have reserved, and return these."""
        wild = [each for each in self._entries.values() if not self._within(each, now_s)]
        for each in wild:
            self.take(each.lane)
        return [each.lane for each in wild]

    def _within(self, entry: _Lane, now_s: float) -> bool:
        used_s = self._used(entry.pids)
        spent_s, earned_s = max(0.0, used_s - entry.used_s), entry.lane.cores * (now_s - entry.at_s)
        entry.credit_s = min(_most_s(entry.lane), entry.credit_s + earned_s - spent_s)
        entry.used_s, entry.at_s = used_s, now_s
        return entry.credit_s >= 0

    def _used(self, pids: Iterable[int]) -> float:
        return sum(self._used_s(pid) for pid in pids)

    def _set(self, pids: Iterable[int], number: int) -> None:
        for pid in pids:
            try:
                _raise(pid, number)
            except PermissionError:  # where groups share real time out, a new one has none: their base has
                if self._groups is None or self._groups.version != 1:
                    raise
                self._groups.leave(pid)
                _raise(pid, number)


def _most_s(lane: Reservation) -> float:
    return max(_LEAST_S, _BURST_S * lane.cores)


def _raise(pid: int, number: int) -> None:
    for thread in _threads(pid):
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setscheduler(thread, _POLICY, os.sched_param(number))


def _processes(lane: Reservation) -> list[int]:
    """Return the processes of a lane, or of several; what one lane starts is a program of its own."""
    return [lane.pid] if lane.lanes == 1 else [lane.pid, *children(lane.pid)]


def _threads(pid: int) -> Iterator[int]:
    with suppress(OSError):  # it has ended
        yield from [int(each.name) for each in Path(f"/proc/{pid}/task").iterdir()]
