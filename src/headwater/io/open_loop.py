"""Open-loop reading: records fall due by the clock, whatever the flow does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import floor
from sys import maxsize

import numpy as np

from headwater.data.batch import CREATED, EMITTED, Batch
from headwater.data.column import Array
from headwater.data.schema import Schema
from headwater.errors import FlowError, InputError
from headwater.flow.duration import Duration, microseconds
from headwater.io.clock import Clock, SteadyClock
from headwater.io.rates import Rate

RecordsFrom = Callable[[int, int], Batch]  #: returns as many records as asked, from a number on that counts from 0

_AHEAD = 8192  # due times worked out at once: a call per batch would cost more than the batch
_NEVER_S = 1e9


@dataclass(frozen=True)
class OpenLoop:
    """When records are created: at which rate, how many, and which column, if any, says so."""

    rate: Rate
    count: int | None = None
    duration: Duration | None = None
    time: str | None = None
    tick: Duration = "1 ms"
    clock: Clock = field(default_factory=SteadyClock)

    def __post_init__(self) -> None:
        whole = isinstance(self.count, int) and not isinstance(self.count, bool)
        if self.count is not None and not (whole and self.count >= 0):
            raise FlowError(f"count is the number of records to create, 0 or more; got {self.count!r}")
        for duration in (self.tick, self.duration):
            if duration is not None:
                microseconds(duration)  # tells at once what is no duration

    @property
    def total(self) -> int:
        """How many records there will be; a number beyond reach when there is no end."""
        total = maxsize if self.count is None else self.count
        if self.duration is not None:
            total = min(total, floor(self.rate.due(microseconds(self.duration) / 1e6)))
        return total


class OpenLoopReader:
    """Hands out the records that are due; a backlog is arithmetic and costs no memory.

    A record's creation stamp is the moment it was due, so that a flow which falls behind is charged for it.
    Time starts with the first read, not while the flow is still being set up.
    """

    def __init__(
        self, take: RecordsFrom, schema: Schema, open_loop: OpenLoop, position: int | None, most: int = maxsize
    ) -> None:
        self._take, self._schema, self._open_loop = take, schema, open_loop
        self._total = min(open_loop.total, most)
        self._tick_ns = microseconds(open_loop.tick) * 1000
        self._next = _check_position(position)
        self._started_ns: int | None = None
        self._look_ns = 0  # when records were last looked for
        self._first = 0  # the record that `_due` and `_stamps` begin with
        self._due = np.zeros(0, np.int64)
        self._stamps = np.zeros((0, 2), np.int64)

    @property
    def position(self) -> int:
        """How many records were handed out."""
        return self._next

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        """Return the records due by now, up to `limit`; wait for the first for at most `timeout_s`."""
        if self._next >= self._total:
            return None
        if self._started_ns is None:
            self._start()
        due = self._due_next(limit)
        now = self._wait(due, timeout_s)
        count = int(np.searchsorted(due, now, "right"))
        if not count:
            return Batch.none(self._schema)
        at = self._next - self._first
        stamps = self._stamps[at : at + count]
        stamps[:, EMITTED] = now
        columns = self._take(self._next, count).columns
        if self._open_loop.time is not None:
            columns[self._open_loop.time] = due[:count] // 1000
        self._next += count
        return Batch(columns, count, stamps)

    def start_anew(self) -> None:
        """Let the next record fall due at the next read, as if no time had passed since the last one."""
        self._started_ns = None
        self._due, self._stamps = self._due[:0], self._stamps[:0]

    def close(self) -> None:
        """Nothing to release."""

    def _start(self) -> None:
        """Let the first record fall due; after a restart, take up the rate where it was."""
        now = self._open_loop.clock.now_ns()
        passed_s = float(self._open_loop.rate.when(np.array([self._next]))[0]) if self._next else 0.0
        self._started_ns = now - round(min(passed_s, _NEVER_S) * 1e9)
        self._look_ns = now

    def _due_next(self, limit: int) -> Array:
        """Return when the next records are due, up to `limit` of them."""
        count = min(limit, self._total - self._next)
        at = self._next - self._first
        if at + count > len(self._due):
            self._look_ahead(min(max(_AHEAD, 2 * limit), self._total - self._next))
            at = 0
        return self._due[at : at + count]

    def _look_ahead(self, count: int) -> None:
        assert self._started_ns is not None
        self._first = self._next
        after_s = np.minimum(self._open_loop.rate.when(np.arange(self._next + 1, self._next + count + 1)), _NEVER_S)
        self._due = self._started_ns + np.rint(after_s * 1e9).astype(np.int64)
        self._stamps = np.empty((count, 2), np.int64)
        self._stamps[:, CREATED] = self._due

    def _wait(self, due: Array, timeout_s: float) -> int:
        """Sleep until a tick is over and a record is due, or time is out; a backlog is not made to wait."""
        clock = self._open_loop.clock
        now = clock.now_ns()
        if due[-1] <= now:
            return now
        until = max(int(due[0]), self._look_ns + self._tick_ns)
        if until > now and timeout_s > 0:
            clock.sleep(min((until - now) / 1e9, timeout_s))
            now = clock.now_ns()
        self._look_ns = now
        return now


def _check_position(position: int | None) -> int:
    if position is None:
        return 0
    if not isinstance(position, int) or position < 0:
        raise InputError(f"the position of a generator is a number of records; got {position!r}")
    return position
