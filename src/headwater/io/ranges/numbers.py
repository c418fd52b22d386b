"""Generated and replayed records, cut by their numbers; due by the clock, or all at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from math import floor
from sys import maxsize
from uuid import uuid4

import numpy as np

from headwater.data.batch import CREATED, EMITTED, Batch
from headwater.data.column import Array
from headwater.errors import RunError
from headwater.flow.duration import microseconds
from headwater.flow.endpoints import Reject
from headwater.flow.ranges import Offset, Piece, RangeRequest, Ranges
from headwater.io.clock import SteadyClock
from headwater.io.open_loop import RecordsFrom
from headwater.io.open_loop_source import OpenLoopSource
from headwater.io.text_file import ignore

_RECORDS = 2**14  # in a batch
_NEVER_S = 1e9


class NumberRanges(Ranges):
    """Records by number. An offset also says when number 0 was due, so that a range read again has the same moments."""

    def __init__(self, source: OpenLoopSource, request: RangeRequest) -> None:
        self.source, self.sizes, self._at_once, self._together = (
            source,
            request.sizes,
            request.at_once,
            request.together,
        )
        self.has_clock = not request.at_once
        self.quick_to_cut = isinstance(source.open_loop.clock, SteadyClock)  # any other is of one process
        self._key = uuid4().hex
        self._total = 0
        self._since_ns: int | None = None
        self._loaded: RecordsFrom | None = None  #: before processes part that read together
        self._rejected: list[tuple[str, str]] = []  #: then

    def start(self) -> Offset:
        """Return the first record; nothing is due yet."""
        self._total = min(self.source.open_loop.total, self._most())
        if self._at_once and self._total == maxsize:
            raise RunError(f"{self.source} has no end, so not all of it can be read; say for how long, or how many")
        return {"number": 0, "since_ns": 0, "ended": self._total == 0}

    def offset(self, position: int | None) -> Offset:
        """Return the next record; when it is due is for the run that reads it to say."""
        return {"number": position or 0, "since_ns": 0, "ended": False}

    def share(self, at: Offset) -> float | None:
        """Return it by numbers, where there is a last one."""
        return None if self._total == maxsize else float(at["number"] / max(1, self._total))

    def position(self, at: Offset) -> int:
        """Return how many records were handed out."""
        return int(at["number"])

    def _most(self) -> int:
        if self._together:  # a copy in each process would take time after the first record is due, and memory
            self._loaded, most = self.source.numbered(lambda *letter: self._rejected.append(letter))
            return most
        own_most = self.source.most
        return self.source.numbered(ignore)[1] if own_most is None else own_most

    def finish(self, at: Offset, until_ns: int | None) -> Offset:
        """Return the records that were due until a moment, none behind `at` if it is not said."""
        return at if until_ns is None else self.advance(at, until_ns)

    def advance(self, at: Offset, until_ns: int | None = None) -> Offset:
        """Return the records that are due by now, or were by a moment that is past."""
        now = self._now_ns() if until_ns is None else until_ns
        if self._together and at["since_ns"]:
            self._since_ns = at["since_ns"]
        elif self._since_ns is None:
            self._since_ns = self._origin_ns(at, now)
        due = self._total
        if not self._at_once:
            due = min(self._total, floor(self.source.open_loop.rate.due((now - self._since_ns) / 1e9)))
        number = min(due, at["number"] + self.sizes.batch_records)
        if number <= at["number"]:
            # who takes over from another run may come when all was read, and has yet to say that it is the end
            return {**at, "ended": True} if at["number"] >= self._total else at
        return {"number": number, "since_ns": self._since_ns, "ended": number == self._total}

    def anew(self, at: Offset) -> Offset:
        """Return the offset with another moment for number 0, so that the rate goes on from now where it was."""
        return {**at, "since_ns": self._origin_ns(at, self._now_ns())}

    def _now_ns(self) -> int:
        """Return the moment: by this run's own clock, or by one that processes on several machines have."""
        return self.source.open_loop.clock.now_ns() if self._together else time.time_ns()

    def wait(self, at: Offset, timeout_s: float) -> None:
        """Sleep until the next record is due, and for a tick."""
        if self._since_ns is None or timeout_s <= 0:
            return
        due_s = float(self._due_s(np.array([at["number"] + 1]))[0]) - (self._now_ns() - self._since_ns) / 1e9
        self.source.open_loop.clock.sleep(min(timeout_s, max(due_s, microseconds(self.source.open_loop.tick) / 1e6)))

    def cut(self, start: Offset, end: Offset) -> list[Piece]:
        """Return ranges of numbers of equal size."""
        first, stop = start["number"], end["number"]
        count = self.sizes.pieces(stop - first, self.sizes.piece_records)
        places = [first + (stop - first) * number // count for number in range(count + 1)]
        return [(places[i], places[i + 1], end["since_ns"]) for i in range(count) if places[i + 1] > places[i]]

    def batches(self, piece: Piece, reject: Reject) -> Iterator[Batch]:
        """Make some records, each with the moment it was due."""
        first, stop, since_ns = piece
        # what a replayed source rejects is told once, with its first record
        if first == 0:
            for text, why in self._rejected:
                reject(text, why)
        take = self._loaded or self._records_from(reject if first == 0 else ignore, fresh=first == 0)
        for number in range(first, stop, _RECORDS):
            count = min(_RECORDS, stop - number)
            records = take(number, count)
            due_ns = since_ns + np.rint(self._due_s(np.arange(number + 1, number + count + 1)) * 1e9).astype(np.int64)
            stamps = np.empty((count, 2), np.int64)
            stamps[:, EMITTED] = self._now_ns()
            stamps[:, CREATED] = stamps[:, EMITTED] if self._at_once else due_ns
            columns = dict(records.columns)
            if self.source.open_loop.time is not None:
                columns[self.source.open_loop.time] = due_ns // 1000
            yield Batch(columns, count, stamps)

    def _origin_ns(self, at: Offset, now: int) -> int:
        """Return when this run's number 0 was due: the rate goes on where it was, and what is read at once is all past."""
        if self._at_once and at["since_ns"]:
            return int(at["since_ns"])
        due = self._total if self._at_once else at["number"]
        return now - round(self._due_s(np.array([due]))[0] * 1e9) if due else now

    def _due_s(self, numbers: Array) -> Array:
        due_s: Array = np.minimum(self.source.open_loop.rate.when(numbers), _NEVER_S)
        return due_s

    def _records_from(self, reject: Reject, *, fresh: bool) -> RecordsFrom:
        """Return what hands out records, the same as in this process's last task: it may hold what was loaded."""
        if fresh or self._key not in _takers:
            while len(_takers) >= _MOST_KEPT:
                del _takers[next(iter(_takers))]
            _takers[self._key] = self.source.numbered(reject)[0]
        return _takers[self._key]


_takers: dict[str, RecordsFrom] = {}
_MOST_KEPT = 4
