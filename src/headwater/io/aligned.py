"""Reading the splits of a source side by side: their records in the order of event time, however far each could be read.

One watermark is enough then, and no split makes the records of another late. A record has its turn by the newest time of
its split so far, so that those of a split stay in their order, and one is late only where its own split is further.

Nobody waits for a split that is empty or, for now, read to its end: what it brings later may be late. Of one that holds more
the next record is waited for, at most for as long as the stream may be `idle`. Records that come of one split, while all
others are at their end, are handed out as they are.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from headwater.data.batch import END, NO_WATERMARK, Batch, concat_batches
from headwater.data.column import Array
from headwater.data.schema import Schema
from headwater.flow.endpoints import Reader, Reject
from headwater.flow.splits import Letter, SplitBatch, SplitReader
from headwater.flow.steps import EventTime, OnTheWay
from headwater.operators.event_time_lookahead import EventTimeLookahead
from headwater.operators.fault_isolation import error_text

log = logging.getLogger(__name__)

_ROOM = 200_000  #: records that may be held back before more is read of those splits alone that others wait for
_ROOM_BYTES = 64 * 2**20
_AT_ONCE = 2_000  #: records that are read at once while there is more: putting them in order costs as much for a few
_WARN_S = 60.0  #: between two words that a split is waited for


def align(name: str, reader: Reader, schema: Schema, way: Sequence[OnTheWay], reject: Reject) -> Reader:
    """Have the splits of a source read side by side in event time, which the last step of a `way` reads."""
    try:
        return AlignedReader(name, cast(SplitReader, reader), schema, way, reject)
    except Exception as error:  # those steps run at another site, and need something that is only there
        log.warning(
            "source %s: event time is read by steps that cannot be tried here (%s), so its splits are read as they come, "
            "and their records may be late",
            name,
            error_text(error),
        )
        return reader


class _Rows(NamedTuple):
    """Records, the split of each, its position behind it and, where they have to be put in order, when each has its turn."""

    batch: Batch
    splits: Array
    after: Array
    turns: Array

    def take(self, rows: Array) -> _Rows:
        return _Rows(self.batch.take(rows), self.splits[rows], self.after[rows], self.turns[rows])

    def slice(self, start: int, stop: int) -> _Rows:
        return _Rows(self.batch.slice(start, stop), *(each[start:stop] for each in self[1:]))


class AlignedReader:
    """A reader of splits, each of them as far as the others in event time."""

    def __init__(self, name: str, reader: SplitReader, schema: Schema, way: Sequence[OnTheWay], reject: Reject) -> None:
        kind = way[-1].step.kind
        assert isinstance(kind, EventTime)
        self._name, self._reader, self._schema, self._reject = name, reader, schema, reject
        self._idle_s = None if kind.idle_us is None else kind.idle_us / 1e6
        self._times = EventTimeLookahead(way)
        self._pending: list[_Rows] = []  #: ahead of a split that is waited for; of each split in its order
        self._ready: _Rows | None = None  #: in order
        self._newest: dict[int, int] = {}  #: the newest time of each split, where that was looked for
        self._backlog: dict[int, int] = {}  #: how many records of each split were read and not handed out
        self._next: dict[int, int] = {}  #: where a split of which there are such goes on
        self._letters: dict[int, deque[Letter]] = {}
        self._since: dict[int, float] = {}  #: since when a split has been waited for
        self._warned_s = -_WARN_S
        self._behind: set[int] = set()  #: splits that held more when they were last read
        self._is_full = False
        self._paused: frozenset[int] = frozenset()
        self._is_over = False

    @property
    def position(self) -> dict[str, int]:
        """Where each split goes on behind what was handed out."""
        waiting = {str(split): self._next[split] for split, backlog in self._backlog.items() if backlog}
        return {**self._reader.position, **waiting}

    @property
    def waits(self) -> bool:
        """Whether there is more, though a `read` brought nothing: records that wait, or a split that is waited for."""
        return bool(self._pending or self._behind)

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        """Return the next records in order, none while there are only some that have to wait, or None at the end."""
        if self._ready is None and not self._is_over:
            before = self._reader.position
            split_batch = self._reader.read_splits(max(limit, _AT_ONCE) if self._behind else limit, timeout_s)
            self._is_over = split_batch is None
            if split_batch is not None:
                self._note(split_batch, before)
            self._ready = self._merge(split_batch)
        if self._ready is None:
            self._release_letters()
            return None if self._is_over else Batch.none(self._schema)
        return self._hand_out(self._ready, limit)

    def close(self) -> None:
        """Close the reader; what it has read and not handed out comes again."""
        self._reader.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)  # what else a reader may be told, or tell

    def _note(self, split_batch: SplitBatch, before: dict[str, int]) -> None:
        for split, first, count in zip(
            *np.unique(split_batch.splits, return_index=True, return_counts=True), strict=True
        ):
            number = int(split)
            if not self._backlog.get(number):
                self._next[number] = before.get(str(number), int(split_batch.after[first]) - 1)
            self._backlog[number] = self._backlog.get(number, 0) + int(count)
        for letter in split_batch.letters:
            self._letters.setdefault(letter.split, deque()).append(letter)

    # -- whose turn it is -------------------------------------------------------------------------------------------------

    def _merge(self, split_batch: SplitBatch | None) -> _Rows | None:
        """Return the records that need not wait, in order; keep the others."""
        self._behind = behind = set() if split_batch is None else set(self._reader.behind())
        if split_batch is not None and not self._pending:
            splits = set(np.unique(split_batch.splits).tolist())
            if len(splits) < 2 and behind <= splits:  # none is ahead of another
                self._since.clear()
                rows = _Rows(split_batch.batch, split_batch.splits, split_batch.after, split_batch.after)
                return rows if splits else None
        if split_batch is not None and split_batch.batch.length:
            self._pending.append(_Rows(*split_batch[:3], self._turns(split_batch)))
        until = min((self._newest.get(split, NO_WATERMARK) for split in self._awaited_splits(behind)), default=END)
        ready = self._take_until(until)
        self._make_room()
        return ready

    def _turns(self, split_batch: SplitBatch) -> Array:
        """Return the newest time of its split at each record, which moves on."""
        turns = self._times.of(split_batch.batch)
        for split in np.unique(split_batch.splits).tolist():
            rows = np.flatnonzero(split_batch.splits == split)
            times = np.maximum.accumulate(np.maximum(turns[rows], self._newest.get(split, NO_WATERMARK)))
            turns[rows] = times
            self._newest[split] = int(times[-1])
        return turns

    def _awaited_splits(self, behind: set[int]) -> set[int]:
        """Return the splits that others have to wait for."""
        now = time.monotonic()
        silent = behind - self._holding()
        self._since = {split: self._since.get(split, now) for split in silent}
        waits_s = {split: now - since for split, since in self._since.items()}
        if self._idle_s is not None:
            return {split for split in behind if waits_s.get(split, 0.0) <= self._idle_s}
        long = sorted(split for split, waited_s in waits_s.items() if waited_s > _WARN_S)
        if long and now - self._warned_s > _WARN_S:
            self._warned_s = now
            log.warning(
                "source %s waits for splits %s, which hold more than they bring; `idle` of the step that reads event time "
                "says for how long",
                self._name,
                ", ".join(map(str, long)),
            )
        return behind

    def _holding(self) -> set[int]:
        """Return the splits that have records here which wait."""
        return {split for rows in self._pending for split in np.unique(rows.splits).tolist()}

    def _take_until(self, until: int) -> _Rows | None:
        """Take the records whose turn is not after a time, in order."""
        ready, rest = [], []
        for rows in self._pending:
            due = rows.turns <= until
            if due.all():
                ready.append(rows)
            elif not due.any():
                rest.append(rows)
            else:
                ready.append(rows.take(np.flatnonzero(due)))
                rest.append(rows.take(np.flatnonzero(~due)))
        self._pending = rest
        if not ready:
            return None
        numbers = (np.concatenate(each) for each in zip(*(rows[1:] for rows in ready), strict=True))
        whole = _Rows(concat_batches([rows.batch for rows in ready]), *numbers)
        if (whole.turns[1:] >= whole.turns[:-1]).all():
            return whole
        return whole.take(np.argsort(whole.turns, kind="stable"))

    def _make_room(self) -> None:
        """Read no more of splits that have records waiting here, once these are many, until they are few."""
        share = 0.25 if self._is_full else 1.0
        count, size = (sum(getattr(rows.batch, what) for rows in self._pending) for what in ("length", "nbytes"))
        self._is_full = count > share * _ROOM or size > share * _ROOM_BYTES
        paused = frozenset(self._holding()) if self._is_full else frozenset()
        if paused != self._paused:
            self._paused = paused
            self._reader.hold(paused)

    # -- handing out ------------------------------------------------------------------------------------------------------

    def _hand_out(self, ready: _Rows, limit: int) -> Batch:
        """Return the first of the records that are ready, and take note of how far each split has come by them."""
        count = ready.batch.length
        now, self._ready = (ready, None) if count <= limit else (ready.slice(0, limit), ready.slice(limit, count))
        last = len(now.splits) - 1
        splits, from_end, counts = np.unique(now.splits[::-1], return_index=True, return_counts=True)
        for split, at, records in zip(splits.tolist(), from_end.tolist(), counts.tolist(), strict=True):
            self._backlog[split] -= records
            self._next[split] = int(now.after[last - at])
        self._release_letters()
        return now.batch

    def _release_letters(self) -> None:
        """Reject what was no record, once all before it is handed out."""
        if not self._letters:
            return
        at = self.position
        for split, letters in tuple(self._letters.items()):
            while letters and letters[0].position < at[str(split)]:
                letter = letters.popleft()
                self._reject(letter.text, letter.error)
            if not letters:
                del self._letters[split]
