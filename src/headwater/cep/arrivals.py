"""Puts records of one or several streams into one order, with a time each and the slot of their key.

One stream is taken as it comes. Several are taken in order of event time, once the watermark has passed, or as they
come when they have no event time; then a record's time is the moment it was created. Time never runs back: a record
that comes late counts as of the time that was reached.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headwater.cep.chunk import Chunk, Part
from headwater.flow.batch import CREATED, END, Batch, concat_batches
from headwater.flow.column import Array, Column
from headwater.flow.expr import Expr
from headwater.flow.schema import Schema
from headwater.operators.expression import compiled, fallible
from headwater.operators.keyed import joined, split_off_keyless
from headwater.operators.keys import KeySlots
from headwater.operators.operator import DEAD, Select, computed


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
        self.keys = KeySlots(schemas[0], keys[0])
        self._waits = self._timed and len(schemas) > 1
        self.waiting: list[Batch | None] = [None] * len(schemas)
        self.clock = -(2**63)
        self._tests: list[list[Callable[[Batch], Column]]] = [[] for _ in schemas]
        for port, read in reads:
            if fallible(read, schemas[port]):
                self._tests[port].append(compiled(read, schemas[port]))

    def add(self, batch: Batch, port: int) -> tuple[Chunk | None, list[tuple[int, Batch]]]:
        """Take a batch; return the chunk it makes, unless it has to wait, and dead letters."""
        batch, letters = split_off_keyless(batch, self._key_names[port], self._step)
        for test in self._tests[port]:
            batch, _, unfit = computed(test, batch, self._step)
            letters = joined(letters, unfit)
        dead = [] if letters is None else [(DEAD, letters)]
        if not batch.length:
            return None, dead
        if self._waits:
            held = self.waiting[port]
            self.waiting[port] = batch if held is None else concat_batches([held, batch])
            return None, dead
        return self._chunk([(port, batch)], None), dead

    def release(self, watermark: int) -> Chunk | None:
        """Return the records that the watermark has passed, in order of time; equal times in order of streams."""
        if not self._waits:
            return None
        ready: list[tuple[int, Batch]] = []
        for port, held in enumerate(self.waiting):
            if held is None:
                continue
            now = self._time(held, port) <= watermark if watermark < END else np.ones(held.length, np.bool_)
            if now.any():
                ready.append((port, held.filter(now)))
                self.waiting[port] = held.filter(~now) if not now.all() else None
        if not ready:
            return None
        times = np.concatenate([self._time(batch, port) for port, batch in ready])
        return self._chunk(ready, np.argsort(times, kind="stable"))

    def _time(self, batch: Batch, port: int) -> Array:
        name = self._times[port]
        if self._timed and name is not None:
            return batch.columns[name]  # type: ignore[return-value]
        return batch.stamps[:, CREATED] // 1000

    def _chunk(self, given: list[tuple[int, Batch]], order: Array | None) -> Chunk:
        times = np.concatenate([self._time(batch, port) for port, batch in given])
        slots = np.concatenate([self._slots(batch, port) for port, batch in given])
        stamps = np.concatenate([batch.stamps for _, batch in given])
        if order is not None:
            times, slots, stamps = times[order], slots[order], stamps[order]
        times = np.maximum.accumulate(np.maximum(times, self.clock))
        self.clock = int(times[-1])
        return Chunk(self._parts(given, order), times, slots, stamps)

    def _parts(self, given: list[tuple[int, Batch]], order: Array | None) -> tuple[Part, ...]:
        if order is None or len(given) == 1:
            parts = [Part(port, batch if order is None else batch.take(order), None) for port, batch in given]
            return tuple(parts)
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        ends = np.cumsum([0, *(batch.length for _, batch in given)])
        return tuple(Part(port, batch, place[a:b]) for (port, batch), a, b in zip(given, ends, ends[1:], strict=False))

    def _slots(self, batch: Batch, port: int) -> Array:
        names = self._key_names[port]
        return self.keys.slots([batch.columns[name] for name in names]) if names else self.keys.slots_of(batch)  # type: ignore[misc]

    def save(self, select: Select | None = None) -> dict[str, Any]:
        """Return what waits of the chosen keys, as it is."""
        return {"clock": self.clock, "waiting": [self._of(port, select) for port in range(len(self.waiting))]}

    def load(self, saved: dict[str, Any]) -> None:
        """Add what waited elsewhere."""
        self.clock = max(self.clock, saved["clock"])
        for port, held in enumerate(saved["waiting"]):
            mine = self.waiting[port]
            if held is not None:
                self.waiting[port] = held if mine is None else concat_batches([mine, held])

    def forget(self, select: Select) -> None:
        """Drop what waits of the chosen keys."""
        self.waiting = [self._of(port, select, chosen=False) for port in range(len(self.waiting))]

    def _of(self, port: int, select: Select | None, *, chosen: bool = True) -> Batch | None:
        held, names = self.waiting[port], self._key_names[port]
        if held is None or select is None or not names:
            return held if chosen else None
        part = held.filter(select.rows([held.columns[name] for name in names]) == chosen)  # type: ignore[misc]
        return part if part.length else None

    @property
    def nbytes(self) -> int:
        """Bytes of what waits, and of the keys."""
        waiting = sum(held.nbytes for held in self.waiting if held is not None)
        return waiting + self.keys.nbytes
