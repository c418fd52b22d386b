"""Puts records of one or several streams into one order, with a time each and the slot of their key.

One stream is taken as it comes. Several are taken in order of event time, once the watermark has passed, or as they
come when they have no event time; then a record's time is the moment it was created. Time never runs back: a record
that comes late counts as of the time that was reached. In a partition, that is the time which the key's own records and
the watermark have reached, whatever records of other keys say: hence it makes no difference which keys an instance has.
A moment of creation is one of this machine's clock, which is the same for all keys. In a partition, a record of a stream
that has no key there goes to every key that has been seen by then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from headwater.data.batch import CREATED, END, NO_WATERMARK, Batch, concat_batches
from headwater.data.column import Array, Column
from headwater.data.schema import Schema
from headwater.flow.expr import Expr
from headwater.operators.chunk import Chunk, Part
from headwater.operators.expression import compile_expression, fallible
from headwater.operators.keyed import combine
from headwater.operators.keys import KeySlots, keys_batch, select_slots
from headwater.operators.operator import DEAD, Select, compute_or_reject
from headwater.operators.progress import Progress, split_off


class Arrivals:
    """Collects batches of several ports and hands out chunks."""

    def __init__(
        self,
        schemas: tuple[Schema, ...],
        times: tuple[str | None, ...],
        keys: tuple[tuple[str, ...], ...],
        step: str,
        reads: Sequence[tuple[int, Expr]] = (),
    ) -> None:
        """`reads` is what will be computed of single records, by stream: one without an answer never comes in."""
        self._timed = all(times)
        self._times, self._key_names, self._step = times, keys, step
        keyed = next((port for port, names in enumerate(keys) if names), 0)
        self.keys = KeySlots(schemas[keyed], keys[keyed])
        self.to_all = any(keys) and not all(keys)  #: whether some records go to every key
        self.by_key = self._timed and any(keys)  #: whether each key has a clock of its own
        self._clocks = np.zeros(0, np.int64)
        self._waits = self._timed and len(schemas) > 1
        self.waiting: list[Batch | None] = [None] * len(schemas)
        self.progress = Progress(by_watermark=self._timed)
        self._tests: list[list[Callable[[Batch], Column]]] = [[] for _ in schemas]
        for port, expr in reads:
            if fallible(expr, schemas[port]):
                self._tests[port].append(compile_expression(expr, schemas[port]))

    def add(self, batch: Batch, port: int) -> tuple[Chunk | None, list[tuple[int, Batch]]]:
        """Take a batch; return the chunk it makes, unless it has to wait, and dead letters."""
        time = self._times[port] if self._timed else None
        batch, letters = split_off(batch, self._key_names[port], time, self._step)
        for test in self._tests[port]:
            batch, _, unfit = compute_or_reject(test, batch, self._step)
            letters = combine(letters, unfit)
        dead = [] if letters is None else [(DEAD, letters)]
        if not batch.length:
            return None, dead
        if self._waits:
            waiting = self.waiting[port]
            self.waiting[port] = batch if waiting is None else concat_batches([waiting, batch])
            return None, dead
        return self._chunk([(port, batch)], None), dead

    def through(
        self, batch: Batch, port: int, run: Callable[[Chunk], tuple[Batch | None, Batch | None]]
    ) -> tuple[Batch | None, Batch | None]:
        """Take a batch, and give the chunk it makes to `run`; return what that does, with all dead letters."""
        chunk, dead = self.add(batch, port)
        out, letters = run(chunk) if chunk is not None else (None, None)
        return out, combine(letters, *(letter for _, letter in dead))

    def release(self, watermark: int) -> tuple[Chunk | None, int]:
        """Return the records that come before what a watermark lets pass, and that time.

        They are in order of time; equal times in order of streams. A record on the watermark itself waits: another of the
        same time may still come.
        """
        time = self.progress.time_of(watermark)
        chunk = self._release(time) if self._waits else None
        self.progress.pass_(watermark)
        return chunk, time

    def _release(self, time: int) -> Chunk | None:
        ready: list[tuple[int, Batch]] = []
        for port, waiting in enumerate(self.waiting):
            if waiting is None:
                continue
            now = self._time(waiting, port) < time if time < END else np.ones(waiting.length, np.bool_)
            if now.any():
                ready.append((port, waiting.filter(now)))
                self.waiting[port] = waiting.filter(~now) if not now.all() else None
        if not ready:
            return None
        times = np.concatenate([self._time(batch, port) for port, batch in ready])
        return self._chunk(ready, np.argsort(times, kind="stable"))

    def _time(self, batch: Batch, port: int) -> Array:
        name = self._times[port]
        if self._timed and name is not None:
            return batch.columns[name]  # type: ignore[return-value]
        return batch.stamps[:, CREATED] // 1000

    def _chunk(self, batches: list[tuple[int, Batch]], order: Array | None) -> Chunk | None:
        times = np.concatenate([self._time(batch, port) for port, batch in batches])
        stamps = np.concatenate([batch.stamps for _, batch in batches])
        key_count = len(self.keys)
        slots = np.concatenate([self._slots(batch, port) for port, batch in batches])
        if order is not None:
            times, slots, stamps = times[order], slots[order], stamps[order]
        whole = Chunk(self._parts(batches, order), times, slots, stamps)
        chunk = self._to_all(whole, key_count) if self.to_all else whole
        return None if chunk is None else replace(chunk, times=self._in_order(chunk))

    def _in_order(self, chunk: Chunk) -> Array:
        if not self.by_key:
            return self.progress.in_order(chunk.times)
        self._make_room()
        return self.progress.in_order_by_key(chunk.times, chunk.slots, self._clocks)

    def _make_room(self) -> None:
        more = len(self.keys) - len(self._clocks)
        if more > 0:
            room = np.full(max(more, len(self._clocks), 16), NO_WATERMARK, np.int64)
            self._clocks = np.concatenate([self._clocks, room])

    def clocks(self) -> Array:
        """Return the time that each key has come to."""
        if not self.by_key:
            return np.full(len(self.keys), self.progress.now)
        self._make_room()
        clocks: Array = np.maximum(self._clocks[: len(self.keys)], self.progress.watermark_us)
        return clocks

    def ahead(self) -> Array:
        """Return which keys are ahead of what watermarks have passed, so that their clocks matter."""
        if not self.by_key:
            return np.zeros(len(self.keys), np.bool_)
        mask: Array = self.clocks() > self.progress.watermark_us
        return mask

    def keep(self, slots: Array) -> None:
        """Forget all keys but those of `slots`; `slots[i]` becomes slot i."""
        if self.by_key:
            self._make_room()
            self._clocks = self._clocks[slots]
        self.keys.keep(slots)

    def _parts(self, batches: list[tuple[int, Batch]], order: Array | None) -> tuple[Part, ...]:
        if order is None or len(batches) == 1:
            parts = [Part(port, batch if order is None else batch.take(order), None) for port, batch in batches]
            return tuple(parts)
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        ends = np.cumsum([0, *(batch.length for _, batch in batches)])
        return tuple(
            Part(port, batch, place[a:b]) for (port, batch), a, b in zip(batches, ends, ends[1:], strict=False)
        )

    def _slots(self, batch: Batch, port: int) -> Array:
        names = self._key_names[port]
        if self.to_all and not names:
            return np.full(batch.length, -1, np.int64)
        return self.keys.slots([batch.columns[name] for name in names]) if names else self.keys.slots_of(batch)  # type: ignore[misc]

    def _to_all(self, chunk: Chunk, key_count: int) -> Chunk | None:
        """Repeat each record without a key for every key seen before it, in the order in which they were seen."""
        first = np.full(len(self.keys), -1, np.int64)
        places = np.flatnonzero(chunk.slots >= key_count)
        first[chunk.slots[places][::-1]] = places[::-1]
        by_age = np.argsort(first, kind="stable")
        times = np.where(chunk.slots >= 0, 1, np.searchsorted(first[by_age], np.arange(chunk.length)))
        source = np.repeat(np.arange(chunk.length), times)
        if not len(source):
            return None
        nth = np.arange(len(source)) - np.repeat(np.cumsum(times) - times, times)
        slots = np.where(chunk.slots[source] >= 0, chunk.slots[source], by_age[nth])
        return chunk.repeat(source, slots)

    def save(self, select: Select | None = None) -> dict[str, Any]:
        """Return what waits of the chosen keys, as it is, and their clocks; what goes to every key is among it."""
        waiting = [self._of(port, select) for port in range(len(self.waiting))]
        state: dict[str, Any] = {"clock": (self.progress.now, self.progress.watermark_us), "waiting": waiting}
        if self.by_key:
            slots = select_slots(self.keys, select)
            slots = slots[self.ahead()[slots]]
            state["clocks"] = {"keys": self.keys.columns(slots), "times": self._clocks[slots]}
        return state

    def load(self, state: dict[str, Any]) -> None:
        """Add what waited elsewhere, and clocks; keys that must be known in their order are known already.

        What was saved with one clock for all keys says nothing of each: they begin where the watermark is.
        """
        self.progress.load(*state["clock"])
        clocks = state.get("clocks")
        if clocks is not None and len(clocks["times"]):
            slots = self.keys.slots_of(keys_batch(clocks["keys"], len(clocks["times"])))
            self._make_room()
            self._clocks[slots] = np.maximum(self._clocks[slots], clocks["times"])
        for port, waiting in enumerate(state["waiting"]):
            current = self.waiting[port]
            if waiting is not None:
                both = current is not None and not (self.to_all and not self._key_names[port])  # all have those already
                self.waiting[port] = concat_batches([current, waiting]) if both else waiting  # type: ignore[list-item]

    def forget(self, select: Select) -> None:
        """Drop what waits of the chosen keys."""
        self.waiting = [self._of(port, select, matching=False) for port in range(len(self.waiting))]

    def _of(self, port: int, select: Select | None, *, matching: bool = True) -> Batch | None:
        waiting, names = self.waiting[port], self._key_names[port]
        if waiting is None or select is None or not names:
            return waiting if matching or self.to_all else None
        part = waiting.filter(select.rows([waiting.columns[name] for name in names]) == matching)  # type: ignore[misc]
        return part if part.length else None

    @property
    def nbytes(self) -> int:
        """Bytes of what waits, and of the keys."""
        waiting = sum(batch.nbytes for batch in self.waiting if batch is not None)
        return waiting + self.keys.nbytes + int(self._clocks.nbytes)
