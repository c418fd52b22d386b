"""Join: pairs records of two streams that have equal keys and lie close in event time.

A record is late by the watermark of its own stream, at its place there, and makes no pair then. All others make every pair
that their times allow, whichever stream is faster: a record is kept until both watermarks say that no partner can come.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headwater.data.batch import END, NO_WATERMARK, Batch, concat_batches
from headwater.data.column import Array, Column
from headwater.data.schema import Schema
from headwater.flow.steps import Join
from headwater.operators.keys import KeySlots, select_slots
from headwater.operators.operator import DEAD, Operator, Output, Select
from headwater.operators.progress import split_off
from headwater.operators.snapshot import pack_state, unpack_state

LATE_LEFT, LATE_RIGHT = 1, 2


class JoinOperator(Operator):
    """Keeps the records of both sides for as long as a partner may still come."""

    stateless = False
    late = (LATE_LEFT, LATE_RIGHT)

    def __init__(self, kind: Join, step: str, left: Schema, right: Schema) -> None:
        self._kind, self._step = kind, step
        self._keys = KeySlots(left, kind.left_keys)
        self._sides = (_Side(kind.left_keys, kind.left_time), _Side(kind.right_keys, kind.right_time))
        self._watermark = NO_WATERMARK
        self._stream_times = [NO_WATERMARK, NO_WATERMARK]  #: how far each stream's own time has come

    def process(self, batch: Batch, port: int) -> Output:
        """Return the pairs that the new records of one side make with the kept ones of the other."""
        side, other = self._sides[port], self._sides[1 - port]
        batch, letters = split_off(batch, side.key_names, side.time, self._step)
        outputs: list[tuple[int, Batch]] = [] if letters is None else [(DEAD, letters)]
        times: Array = batch.columns[side.time]  # type: ignore[assignment]
        late = times + self._kind.within_us < max(self._stream_times[port], self._watermark)
        if late.any():
            outputs.append((LATE_LEFT if port == 0 else LATE_RIGHT, batch.filter(late)))
            batch = batch.filter(~late)
        if batch.length:
            slots = self._slots(batch, side)
            rows, partners = other.partners(slots, batch.columns[side.time], self._kind.within_us)  # type: ignore[arg-type]
            side.add(batch, slots, len(self._keys))
            if len(rows):
                outputs.append((0, self._pair(batch.take(rows), other.rows.take(partners), port)))
        return outputs or None

    def _slots(self, batch: Batch, side: _Side) -> Array:
        if not side.key_names:
            return self._keys.slots_of(batch)
        return self._keys.slots([batch.columns[name] for name in side.key_names])  # type: ignore[misc]

    def _pair(self, new: Batch, partners: Batch, port: int) -> Batch:
        left, right = (new, partners) if port == 0 else (partners, new)
        columns: dict[str, Column] = dict(left.columns)
        for old, name in self._kind.renamed:
            columns[name] = right.columns[old]
        return Batch(columns, new.length, new.stamps)  # a pair is as old as the record that completed it

    def hear(self, port: int, watermark: int) -> None:
        """Learn how far one stream's time has come: what follows in it may be late; after the end, nothing is."""
        if watermark < END:
            self._stream_times[port] = max(self._stream_times[port], watermark)

    def advance(self, watermark: int) -> Output:
        """Forget the records for which no partner can come any more; after the end, a later run may bring one."""
        if watermark == END:
            return None
        self._watermark = max(self._watermark, watermark)
        # a record may come as late as one span behind the watermark, and its partner lie another span behind it
        reach = 2 * self._kind.within_us
        for side in self._sides:
            side.expire(watermark - reach if watermark > NO_WATERMARK + reach else watermark)
        # keys of expired records are forgotten once they are the greater part
        used = np.unique(np.concatenate([side.slots() for side in self._sides]))
        if len(self._keys) > 1024 and len(used) * 2 < len(self._keys):
            self._renumber(used)
        return None

    def _renumber(self, used: Array) -> None:
        self._keys.keep(used)
        for side in self._sides:
            side.rebuild(np.searchsorted(used, side.slots()), side.rows, len(used))

    def snapshot(self, select: Select | None = None) -> bytes:
        """Save the kept records of the chosen keys."""
        mask = np.zeros(len(self._keys), np.bool_)
        mask[select_slots(self._keys, select)] = True
        rows = [side.rows.filter(mask[side.slots()]) for side in self._sides]
        times = {"watermark": self._watermark, "heard": list(self._stream_times)}
        return pack_state("join", {**times, "left": rows[0], "right": rows[1]})

    def restore(self, data: bytes) -> None:
        """Take over kept records."""
        state = unpack_state("join", data)
        self._watermark = max(self._watermark, state["watermark"])
        # what an earlier Headwater saved says how far both have come
        self._stream_times = [
            max(pair) for pair in zip(self._stream_times, state.get("heard", self._stream_times), strict=True)
        ]
        for side, rows in zip(self._sides, (state["left"], state["right"]), strict=True):
            if rows.length:
                slots = self._slots(rows, side)
                side.add(rows, slots, len(self._keys))

    def forget(self, select: Select) -> None:
        """Drop the kept records of the chosen keys."""
        mask = np.zeros(len(self._keys), np.bool_)
        mask[select_slots(self._keys, select)] = True
        for side in self._sides:
            rest = ~mask[side.slots()]
            side.rebuild(side.slots()[rest], side.rows.filter(rest), len(self._keys))


class _Side:
    """The kept records of one side: rows in order of arrival, chained by key."""

    def __init__(self, key_names: tuple[str, ...], time: str) -> None:
        self.key_names, self.time = key_names, time
        self.rows: Batch = Batch({}, 0, np.zeros((0, 2), np.int64))
        self._slots = np.zeros(64, np.int64)
        self._times = np.zeros(64, np.int64)
        self._following = np.full(64, -1)
        self._head = np.full(64, -1)

    def slots(self) -> Array:
        return self._slots[: self.rows.length]

    def add(self, batch: Batch, slots: Array, keys: int) -> None:
        from headwater.operators.kernels.match import chain

        start, stop = self.rows.length, self.rows.length + batch.length
        self.rows = concat_batches([self.rows, batch]) if start else batch
        self._slots = _room(self._slots, stop, 0)
        self._times = _room(self._times, stop, 0)
        self._following = _room(self._following, stop, -1)
        self._head = _room(self._head, keys, -1)
        self._slots[start:stop] = slots
        self._times[start:stop] = batch.columns[self.time]  # type: ignore[assignment]
        chain(slots, start, self._head, self._following)

    def partners(self, slots: Array, times: Array, within: int) -> tuple[Array, Array]:
        from headwater.operators.kernels.match import pairs

        self._head = _room(self._head, int(slots.max()) + 1, -1)
        room = 4 * len(slots)
        while True:
            left, right = np.empty(room, np.int64), np.empty(room, np.int64)
            n = pairs(slots, times, self._head, self._following, self._times, within, left, right)
            if n <= room:
                return left[:n], right[:n]
            room = int(n)

    def expire(self, before: int) -> None:
        mask = self._times[: self.rows.length] < before
        if 2 * mask.sum() >= max(self.rows.length, 1):
            self.rebuild(self.slots()[~mask], self.rows.filter(~mask), len(self._head))

    def rebuild(self, slots: Array, rows: Batch, keys: int) -> None:
        slots = slots.copy()
        self._head = np.full(max(64, keys), -1)
        self.rows = Batch({}, 0, np.zeros((0, 2), np.int64))
        if rows.length:
            self.add(rows, slots, keys)


def _room(array: Array, size: int, fill: Any) -> Array:
    if size <= len(array):
        return array
    larger = np.full(max(2 * len(array), size), fill, array.dtype)
    larger[: len(array)] = array
    return larger
