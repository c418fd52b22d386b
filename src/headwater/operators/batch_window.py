"""Batch windows: `lengthBatch`, `timeBatch`, `externalTimeBatch` and `session`; a result per group when one is complete.

These are the windows of queries, and mean what they mean in Siddhi: a batch of time begins with its first record, and
groups share the batch of their key. A flow's `Tumbling` is cut at whole multiples of its size, its `Session` joins what a
late record connects, and late records go elsewhere; its `Count` has one group per key, which needs no cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from headwater.data.batch import CREATED, END, NO_WATERMARK, Batch
from headwater.data.column import Array, Column
from headwater.data.keys import KeyIndex
from headwater.data.schema import Schema
from headwater.flow.aggregates import Aggregate, aggregates_text
from headwater.operators.accumulate import Accumulators
from headwater.operators.kernels.batches import batches_by_length, batches_by_time, sessions
from headwater.operators.keyed import combine, with_letters
from headwater.operators.keys import IdleKeys, KeySlots, keys_batch, select_slots
from headwater.operators.operator import Operator, Output, Select, compute_or_reject, dead_letters
from headwater.operators.progress import Progress, split_off
from headwater.operators.projection import Projection
from headwater.operators.snapshot import pack_state, unpack_state

_KIND = "batch query window"
_NONE = -(2**63)


@dataclass(frozen=True)
class BatchWindowPlan:
    """Batches of `size` records, of `size` microseconds from the first record on, or up to a gap of `size` microseconds."""

    schema: Schema
    kind: Literal["length", "time", "session"]
    size: int
    time: str | None
    keys: tuple[str, ...]  #: each has batches of its own
    groups: tuple[str, ...]  #: `group by`: a result each per batch
    aggregates: tuple[tuple[str, Aggregate], ...]
    projection: Projection
    step: str
    by_watermark: bool = True  #: or does that speak of another time
    result_time: str | None = None  #: the column of the results' event time

    def __call__(self) -> BatchWindowOperator:
        """Make a new operator."""
        return BatchWindowOperator(self)

    @property
    def delay_us(self) -> int:
        """How far results lie behind the watermark: they are as old as a batch's last record, and come when it ends."""
        return self.size if self.kind != "length" and self.by_watermark else 0

    @property
    def __name__(self) -> str:
        """What drawings call the step."""
        return f"{self.kind} batch"

    @property
    def keeps(self) -> str:
        """What saved state is about."""
        size = self.size if self.kind == "length" else f"{self.size / 1e6:g} s of {self.time or 'creation'}"
        return f"{self.__name__} {size} {aggregates_text(self.groups, self.aggregates)}"


class BatchWindowOperator(Operator):
    """Aggregates batch by batch. A cell is one group in one batch; cells of open batches are carried over."""

    stateless = False

    def __init__(self, plan: BatchWindowPlan) -> None:
        self._plan = plan
        self._select = plan.projection.runner(plan.step)
        self._windows = KeySlots(plan.schema, plan.keys)
        self._groups = KeySlots(plan.schema, plan.groups)
        self._sums = Accumulators(plan.aggregates, plan.schema)
        #: per window: the number of its open batch, records or first time in it, last time
        self._number, self._begun, self._last = (np.full(16, fill, np.int64) for fill in (0, _NONE, _NONE))
        self._cells = np.zeros((0, 3), np.int64)  #: window, batch and group of each open cell
        self._stamps = np.zeros((0, 2), np.int64)  #: of the last record of each
        self._progress = Progress(by_watermark=plan.by_watermark)
        self.idle_keys = IdleKeys()  #: those, groups included, that no open batch has

    def process(self, batch: Batch, port: int) -> Output:
        """Return the results of the batches that these records end."""
        batch, letters = split_off(batch, (*self._plan.keys, *self._plan.groups), self._plan.time, self._plan.step)
        batch, inputs, more = compute_or_reject(self._sums.inputs, batch, self._plan.step)
        letters = combine(letters, more)
        if not batch.length:
            return with_letters(None, letters)
        windows = self._windows.slots_of(batch)
        groups = self._groups.slots_of(batch)
        self._reserve(len(self._windows))
        numbers = self._numbers(windows, self._times(batch))
        self._enter(batch, inputs, np.stack([windows, numbers, groups], axis=1))
        results, more = self._close(self._cells[:, 1] < self._number[self._cells[:, 0]])
        self._forget_idle_keys()
        return with_letters(results, combine(letters, more))

    def _times(self, batch: Batch) -> Array:
        if self._plan.time is None:
            return self._progress.in_order(batch.stamps[:, CREATED] // 1000)
        return self._progress.at_least_watermark(batch.columns[self._plan.time])  # type: ignore[arg-type]

    def _numbers(self, windows: Array, times: Array) -> Array:
        out = np.empty(len(windows), np.int64)
        if self._plan.kind == "length":
            batches_by_length(windows, self._plan.size, self._number, self._begun, out)  # type: ignore[no-untyped-call]
        elif self._plan.kind == "time":
            batches_by_time(windows, times, self._plan.size, self._number, self._begun, self._last, out)  # type: ignore[no-untyped-call]
        else:
            sessions(windows, times, self._plan.size, self._number, self._last, out)  # type: ignore[no-untyped-call]
        return out

    def _enter(self, batch: Batch, inputs: list[Column | None], cells: Array) -> None:
        if not self._plan.keys and not self._plan.groups:
            # one cell per batch, in order: their numbers are their places
            first = self._cells[0, 1] if len(self._cells) else cells[0, 1]
            slots = cells[:, 1] - first
            open_cells = np.stack(
                [np.zeros(k := int(slots[-1]) + 1, np.int64), first + np.arange(k), np.zeros(k, np.int64)], axis=1
            )
        else:
            index = KeyIndex("int", "int", "int")
            every = np.concatenate([self._cells, cells])
            slots = index.slots([every[:, 0], every[:, 1], every[:, 2]])[len(self._cells) :]
            open_cells = np.stack([np.asarray(column) for column in index.keys(None)], axis=1)
        stamps = np.zeros((len(open_cells), 2), np.int64)
        stamps[: len(self._stamps)] = self._stamps
        stamps[slots] = batch.stamps
        self._cells, self._stamps = open_cells, stamps
        self._sums.reserve(len(open_cells))
        self._sums.update(slots, inputs, self._sums.arrived(batch.length))

    def _close(self, mask: Array) -> tuple[Batch | None, Batch | None]:
        """Return the results of these cells, and dead letters for what could not be computed of them."""
        if not mask.any():
            return None, None
        slots = np.flatnonzero(mask)
        cells = self._cells[slots]
        columns = {
            **self._windows.columns(cells[:, 0]),
            **self._groups.columns(cells[:, 2]),
            **self._sums.results(slots),
        }
        results = Batch(columns, len(slots), self._stamps[slots])
        broken = self._sums.broken()
        at = results.take(np.array([row for row, _ in broken], np.int64))
        letters = dead_letters(self._plan.step, [why for _, why in broken], at) if broken else None
        out, more = self._select.run(results)
        self._keep(np.flatnonzero(~mask))
        return out, combine(letters, more)

    def _keep(self, slots: Array) -> None:
        sums = self._sums.save(slots)
        self._cells, self._stamps = self._cells[slots], self._stamps[slots]
        self._sums = self._sums.empty()
        self._sums.reserve(len(slots))
        self._sums.load(np.arange(len(slots)), sums)

    def _forget_idle_keys(self) -> None:
        """Forget keys and groups without an open batch, once they may be the greater part."""
        key_count = len(self._windows) + len(self._groups)
        if not self.idle_keys.may_be_many(key_count):
            return
        if self._plan.keys and self._plan.kind != "time":  # batches of time go on from where the first one began
            slots, self._cells[:, 0] = np.unique(self._cells[:, 0], return_inverse=True)
            self._windows.keep(slots)
            self._number, self._begun, self._last = self._number[slots], self._begun[slots], self._last[slots]
        if self._plan.groups:
            slots, self._cells[:, 2] = np.unique(self._cells[:, 2], return_inverse=True)
            self._groups.keep(slots)
        self.idle_keys.note(key_count, len(self._windows) + len(self._groups))

    @property
    def nbytes(self) -> int:
        """Bytes of all state but the values of custom aggregates: open batches and keys."""
        arrays = (self._number, self._begun, self._last, self._cells, self._stamps)
        return sum(int(array.nbytes) for array in arrays) + self._windows.nbytes + self._groups.nbytes

    def _reserve(self, windows: int) -> None:
        if windows > len(self._number):
            more = max(windows, 2 * len(self._number)) - len(self._number)
            self._number = np.concatenate([self._number, np.zeros(more, np.int64)])
            self._begun = np.concatenate([self._begun, np.full(more, _NONE, np.int64)])
            self._last = np.concatenate([self._last, np.full(more, _NONE, np.int64)])

    def advance(self, watermark: int) -> Output:
        """Close the batches that the watermark has passed; batches of a number of records wait for them."""
        watermark = self._progress.pass_(watermark)
        if self._plan.kind == "length" or not len(self._cells) or watermark == NO_WATERMARK:
            return None
        windows = self._cells[:, 0]
        since = self._begun if self._plan.kind == "time" else self._last
        over = since[windows] < watermark - self._plan.size + (1 if self._plan.kind == "time" else 0)
        out, letters = self._close(over)
        ended = np.unique(windows[over])
        self._number[ended] += 1
        if self._plan.kind == "time":
            if watermark < END:  # at the end of all time there is no next batch to begin
                self._begun[ended] += (watermark - self._begun[ended]) // self._plan.size * self._plan.size
        else:
            self._last[ended] = _NONE
        return with_letters(out, letters)

    def snapshot(self, select: Select | None = None) -> bytes:
        """Save the open batches of the chosen keys."""
        windows = select_slots(self._windows, select)
        cells = np.flatnonzero(np.isin(self._cells[:, 0], windows))
        place = np.zeros(len(self._windows) + 1, np.int64)
        place[windows] = np.arange(len(windows))
        state: dict[str, Any] = {
            "count": len(windows),
            "keys": self._windows.columns(windows),
            "number": self._number[windows],
            "begun": self._begun[windows],
            "last": self._last[windows],
            "window": place[self._cells[cells, 0]],
            "batch": self._cells[cells, 1],
            "groups": self._groups.columns(self._cells[cells, 2]),
            "stamps": self._stamps[cells],
            "sums": self._sums.save(cells),
            "clock": (self._progress.now, self._progress.watermark_us),
        }
        return pack_state(_KIND, state)

    def restore(self, data: bytes) -> None:
        """Take over open batches."""
        state = unpack_state(_KIND, data)
        self._progress.load(*state["clock"])
        if not state["count"]:
            return
        windows = self._windows.slots_of(keys_batch(state["keys"], state["count"]))
        self._reserve(len(self._windows))
        for array, its in ((self._number, "number"), (self._begun, "begun"), (self._last, "last")):
            array[windows] = state[its]
        count = len(state["batch"])
        if not count:
            return
        groups = self._groups.slots_of(keys_batch(state["groups"], count))
        cells = np.stack([windows[state["window"]], state["batch"], groups], axis=1)
        at = len(self._cells) + np.arange(count)
        self._cells = np.concatenate([self._cells, cells])
        self._stamps = np.concatenate([self._stamps, state["stamps"]])
        self._sums.reserve(len(self._cells))
        self._sums.load(at, state["sums"])

    def forget(self, select: Select) -> None:
        """Drop the open batches of the chosen keys."""
        windows = select_slots(self._windows, select)
        self._keep(np.flatnonzero(~np.isin(self._cells[:, 0], windows)))
        self._begun[windows] = self._last[windows] = _NONE
