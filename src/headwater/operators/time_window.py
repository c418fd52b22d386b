"""Windows of event time: tumbling and sliding, as slices of time with a group per key in each."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from headwater.data.batch import CREATED, EMITTED, END, NO_WATERMARK, Batch, concat_batches
from headwater.data.column import Array, Column
from headwater.data.schema import Schema
from headwater.flow.steps import WindowAggregate
from headwater.flow.windows import Sliding, Tumbling
from headwater.operators.accumulate import Accumulators
from headwater.operators.keyed import combine
from headwater.operators.keys import KeySlots, keys_batch, select_slots
from headwater.operators.operator import DEAD, Operator, Output, Select, compute_or_reject, dead_letters
from headwater.operators.progress import split_off
from headwater.operators.snapshot import pack_state, unpack_state

LATE = 1  #: the output for records that came after their window had closed


class TimeWindowOperator(Operator):
    """Aggregates by key and window of event time.

    Time is cut into slices of which every window is a whole number. A record enters the groups of one slice, whatever
    the overlap of windows; a window is merged from its slices when the watermark passes its end, and a slice is dropped
    with the last window that needs it. So memory follows what is open, not how many keys were ever seen.
    """

    stateless = False
    late = (LATE,)

    def __init__(self, kind: WindowAggregate, step: str, schema: Schema) -> None:
        window = kind.window
        assert isinstance(window, Tumbling | Sliding)
        assert kind.time is not None
        self._step, self._names, self._time, self._schema = step, kind.keys, kind.time, schema
        self._size = window.size_us
        self._every = window.every_us if isinstance(window, Sliding) else window.size_us
        self._slice = window.slice_us if isinstance(window, Sliding) else window.size_us
        self._sums = Accumulators(kind.aggregates, schema)
        self._slices: dict[int, _Slice] = {}  #: open slices by their start
        self._watermark = NO_WATERMARK
        self._closed_to = NO_WATERMARK  #: the end of the last window that the watermark has passed, empty ones included
        self._failed: list[tuple[int, str]] = []

    def process(self, batch: Batch, port: int) -> Output:
        """Take records into their slices; those whose windows are all closed are late."""
        batch, letters = split_off(batch, self._names, self._time, self._step)
        batch, inputs, more = compute_or_reject(self._sums.inputs, batch, self._step)
        letters = combine(letters, more)
        outputs: list[tuple[int, Batch]] = [] if letters is None else [(DEAD, letters)]
        times: Array = batch.columns[self._time]  # type: ignore[assignment]
        last_end = times - times % self._every + self._size  # the end of the last window that holds the record
        late = last_end <= self._watermark
        if late.any():
            outputs.append((LATE, batch.filter(late)))
            batch = batch.filter(~late)
            inputs = [None if column is None else column[~late] for column in inputs]
            times = batch.columns[self._time]  # type: ignore[assignment]
        if batch.length:
            self._enter(batch, inputs, times - times % self._slice)
        return outputs or None

    def _enter(self, batch: Batch, inputs: list[Column | None], starts: Array) -> None:
        lowest, order = int(starts.min()), self._sums.arrived(batch.length)
        if lowest == starts.max():
            self._slice_at(lowest).enter(batch, inputs, order)
            return
        if (starts[1:] >= starts[:-1]).all():  # as most streams are, and all history: each run as it is, without a copy
            ends = [*(np.flatnonzero(starts[1:] > starts[:-1]) + 1).tolist(), batch.length]
            for begin, end in pairwise([0, *ends]):
                part = [None if column is None else column[begin:end] for column in inputs]
                self._slice_at(int(starts[begin])).enter(batch.slice(begin, end), part, order[begin:end])
            return
        for start in np.unique(starts).tolist():
            rows = np.flatnonzero(starts == start)
            part = [None if column is None else column[rows] for column in inputs]
            self._slice_at(start).enter(batch.take(rows), part, order[rows])

    def _slice_at(self, start: int) -> _Slice:
        part = self._slices.get(start)
        if part is None:
            part = self._slices[start] = _Slice(KeySlots(self._schema, self._names), self._sums.empty())
        return part

    def advance(self, watermark: int) -> Output:
        """Close the windows that end at or before the watermark, oldest first.

        At the end of all sources every window is closed, and time stays where the last of them ends: a later run may bring
        what was not there yet.
        """
        results: list[Batch] = []
        outputs: list[tuple[int, Batch]] = []
        while self._slices:
            oldest = min(self._slices)
            end = self._first_window_end(oldest)
            if end > watermark:
                break
            result = self._close(end)
            if result is not None:
                results.append(result)
                outputs += self._broken(result)
            # windows that start later do not reach back to these slices
            for start in [s for s in self._slices if s < end - self._size + self._every]:
                del self._slices[start]
        if NO_WATERMARK < watermark < END:
            closed_to = (watermark - self._size) // self._every * self._every + self._size
            self._closed_to = max(self._closed_to, closed_to)
        self._watermark = max(self._watermark, watermark if watermark < END else self._closed_to)
        if results:
            outputs.insert(0, (0, concat_batches(results)))
        return outputs or None

    def _first_window_end(self, start: int) -> int:
        """Return the end of the earliest window, not yet closed, that a slice starting here belongs to."""
        first_end = start - start % self._slice + self._slice
        end = -(-(first_end - self._size) // self._every) * self._every + self._size
        return max(end, self._closed_to + self._every)

    def _close(self, end: int) -> Batch | None:
        self._closed_to = max(self._closed_to, end)
        begin = end - self._size
        inside = [self._slices[start] for start in sorted(self._slices) if begin <= start < end]
        if not inside:
            return None
        window = inside[0] if len(inside) == 1 else self._merge(inside)
        slots = np.arange(window.groups)
        columns: dict[str, Column] = dict(window.keys.columns(slots))
        columns["start"] = np.full(len(slots), begin)
        columns["end"] = np.full(len(slots), end)
        columns |= window.sums.results(slots)
        self._failed = window.sums.broken()
        return Batch(columns, len(slots), window.stamps[: len(slots)])

    def _broken(self, result: Batch) -> list[tuple[int, Batch]]:
        if not self._failed:
            return []
        rows = np.array([row for row, _ in self._failed])
        return [(DEAD, dead_letters(self._step, [why for _, why in self._failed], result.take(rows)))]

    def _merge(self, slices: list[_Slice]) -> _Slice:
        whole = _Slice(KeySlots(self._schema, self._names), self._sums.empty())
        for part in slices:
            whole.merge(part)
        return whole

    def snapshot(self, select: Select | None = None) -> bytes:
        """Save the open slices, with the groups of the chosen keys."""
        slices = [{"start": start, **part.save(select)} for start, part in sorted(self._slices.items())]
        state = {"watermark": self._watermark, "closed_to": self._closed_to, "slices": slices}
        return pack_state("time window", state)

    def restore(self, data: bytes) -> None:
        """Take over open slices; groups that are here already are merged with."""
        state = unpack_state("time window", data)
        self._watermark = max(self._watermark, state["watermark"])
        self._closed_to = max(self._closed_to, state["closed_to"])
        for part in state["slices"]:
            other = _Slice(KeySlots(self._schema, self._names), self._sums.empty())
            other.load(part)
            self._slice_at(part["start"]).merge(other)

    def forget(self, select: Select) -> None:
        """Drop the groups of the chosen keys."""
        for start, part in list(self._slices.items()):
            rest = np.setdiff1d(np.arange(part.groups), select_slots(part.keys, select))
            state = part.save_slots(rest)
            fresh = self._slices[start] = _Slice(KeySlots(self._schema, self._names), self._sums.empty())
            fresh.load(state)


class _Slice:
    """One slice of time: a group for each key that occurred in it."""

    def __init__(self, keys: KeySlots, sums: Accumulators) -> None:
        self.keys, self.sums = keys, sums
        self.stamps = np.zeros((16, 2), np.int64)  #: those of the last record of each group

    @property
    def groups(self) -> int:
        return len(self.keys)

    def enter(self, batch: Batch, inputs: list[Column | None], order: Array) -> None:
        slots = self.keys.slots_of(batch)
        self._reserve()
        self.sums.update(slots, inputs, order)
        for which in (CREATED, EMITTED):  # one by one: NumPy takes three times as long for pairs
            self.stamps[:, which][slots] = batch.stamps[:, which]

    def merge(self, other: _Slice) -> None:
        if not other.groups:
            return
        other_slots = np.arange(other.groups)
        slots = self.keys.slots_of(keys_batch(other.keys.columns(other_slots), len(other_slots)))
        self._reserve()
        self.sums.merge(slots, other.sums, other_slots)
        self.stamps[slots] = other.stamps[other_slots]

    def _reserve(self) -> None:
        self.sums.reserve(self.groups)
        if self.groups > len(self.stamps):
            larger = np.zeros((max(2 * len(self.stamps), self.groups), 2), np.int64)
            larger[: len(self.stamps)] = self.stamps
            self.stamps = larger

    def save(self, select: Select | None) -> dict[str, Any]:
        return self.save_slots(select_slots(self.keys, select))

    def save_slots(self, slots: Array) -> dict[str, Any]:
        return {"keys": self.keys.columns(slots), "stamps": self.stamps[slots], "sums": self.sums.save(slots)}

    def load(self, state: dict[str, Any]) -> None:
        if not len(state["stamps"]):
            return
        slots = self.keys.slots_of(keys_batch(state["keys"], len(state["stamps"])))
        self._reserve()
        self.sums.load(slots, state["sums"])
        self.stamps[slots] = state["stamps"]
