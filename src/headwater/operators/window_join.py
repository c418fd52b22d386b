"""The step that joins two windows: a record of either side meets the records in the other's window.

A query's join takes records in one order and its windows end at the newest record. A flow's `join` pairs what lies within a
span of event time, whichever side comes first, until the watermark has passed; hence `JoinOperator`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from headwater.data.batch import Batch, concat_batches
from headwater.data.column import Array, Column, Nullable, Text, empty
from headwater.data.keys import KeyIndex
from headwater.data.schema import DTYPES, Schema, Type
from headwater.errors import RecordError
from headwater.flow.expr import Expr
from headwater.operators.arrivals import Arrivals
from headwater.operators.chunk import Chunk
from headwater.operators.expression import compile_expression, compile_mask
from headwater.operators.kernels.match import pair
from headwater.operators.keyed import combine, with_letters
from headwater.operators.keys import IdleKeys, keys_batch, select_slots
from headwater.operators.operator import Operator, Output, Select, split_off_broken
from headwater.operators.projection import Projection
from headwater.operators.snapshot import pack_state, unpack_state

_KIND = "query join"
_TIDY = 1 << 16  #: rows beyond those in a window before they are forgotten


@dataclass(frozen=True)
class JoinPlan:
    """Two streams, their windows, and what must hold of a pair."""

    schemas: tuple[Schema, Schema]
    names: tuple[str, str]  #: what the sides' columns are called, before the dot
    limits: tuple[int, int]  #: records in the window; 0 for no such bound
    spans: tuple[int, int]  #: microseconds
    active: tuple[bool, bool]  #: whether a record of the side looks for partners
    outer: tuple[bool, bool]  #: whether one without a partner gives a result
    equal: tuple[tuple[Expr, Expr, Type], ...]  #: values that must be equal, left and right
    on: Expr | None  #: what else must hold of a pair's columns
    projection: Projection
    times: tuple[str | None, str | None]
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    step: str
    result_time: str | None = None  #: a pair has none

    def __call__(self) -> JoinWindowsOperator:
        """Make a new operator."""
        return JoinWindowsOperator(self)

    @property
    def __name__(self) -> str:
        """What drawings call the step."""
        return f"join {self.names[0]} and {self.names[1]}"

    @property
    def keeps(self) -> str:
        """What saved state is about."""
        sizes = [limit or f"{span / 1e6:g} s" for limit, span in zip(self.limits, self.spans, strict=True)]
        equal = " and ".join(f"{left} == {right}" for left, right, _ in self.equal)
        return f"{self.__name__} of {sizes[0]} and {sizes[1]} on {equal or 'nothing equal'}"


class JoinWindowsOperator(Operator):
    """Keeps each side's window as rows chained by the values that must be equal, so a record touches its partners alone."""

    stateless = False

    def __init__(self, plan: JoinPlan) -> None:
        self._plan = plan
        reads = [(side, values[side]) for values in plan.equal for side in range(2)]
        self._arrivals = Arrivals(plan.schemas, plan.times, plan.keys, plan.step, reads)  # type: ignore[arg-type]
        self._select = plan.projection.runner(plan.step)
        self._on = compile_mask(plan.on, plan.projection.schema) if plan.on is not None else None
        sides = [(left, right) for left, right, _ in plan.equal]
        self._reads: list[list[Callable[[Batch], Column]]] = [
            [compile_expression(values[side], plan.schemas[side]) for values in sides] for side in range(2)
        ]
        kinds = ["text" if kind == "text" else "float" if kind == "float" else "int" for _, _, kind in plan.equal]
        self._values = KeyIndex("int", *kinds)  # type: ignore[arg-type]
        self.idle_keys = IdleKeys()  #: those whose windows are empty
        self._clear()

    def _clear(self) -> None:
        self._rows: list[Batch] = [Batch.none(schema) for schema in self._plan.schemas]
        self._window_of = [np.zeros(0, np.int64), np.zeros(0, np.int64)]
        self._head = np.full((2, 64), -1, np.int64)
        self._before, self._place, self._time = (np.zeros((2, 64), np.int64) for _ in range(3))
        self._count = np.zeros((2, 16), np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of all state: records in windows and those that wait for their turn, chains, keys."""
        arrays = (*self._window_of, self._head, self._before, self._place, self._time, self._count)
        tables = sum(array.nbytes for array in arrays) + self._values.nbytes + self._arrivals.nbytes
        return int(tables + sum(rows.nbytes + rows.stamps.nbytes for rows in self._rows))

    @property
    def rows(self) -> int:
        """How many records both windows hold, with those not yet tidied up."""
        return self._rows[0].length + self._rows[1].length

    def process(self, batch: Batch, port: int) -> Output:
        """Return the pairs that these records complete."""
        return with_letters(*self._arrivals.through(batch, port, self._run))

    def advance(self, watermark: int) -> Output:
        """Take records that waited for their turn."""
        chunk, _ = self._arrivals.release(watermark)
        return with_letters(*self._run(chunk)) if chunk is not None else None

    def _run(self, chunk: Chunk) -> tuple[Batch | None, Batch | None]:
        sides, slots, new_rows = self._enter(chunk)
        pairs = self._pairs(chunk, sides, slots, new_rows)
        results = self._results(chunk, sides, new_rows, *pairs)
        self._tidy()
        return results

    def _enter(self, chunk: Chunk) -> tuple[Array, Array, Array]:
        """Store the records of a chunk; return the side, the chain and the row of each."""
        sides, slots, new_rows = (np.zeros(chunk.length, np.int64) for _ in range(3))
        for part in chunk.parts:
            at = np.arange(chunk.length) if part.places is None else part.places
            order = np.argsort(at)
            batch, at = part.batch.take(order), at[order]
            side, base = part.stream, self._rows[part.stream].length
            self._rows[side] = concat_batches([self._rows[side], batch]) if base else batch
            self._window_of[side] = np.concatenate([self._window_of[side], chunk.slots[at]])
            sides[at], new_rows[at] = side, base + np.arange(batch.length)
            slots[at] = self._chains(batch, side, chunk.slots[at])
        self._reserve()
        return sides, slots, new_rows

    def _chains(self, batch: Batch, side: int, windows: Array) -> Array:
        columns: list[Any] = [windows]
        missing = np.zeros(batch.length, np.bool_)
        for compute, (_, _, kind) in zip(self._reads[side], self._plan.equal, strict=True):
            column = compute(batch)
            if isinstance(column, Nullable):
                missing |= ~column.valid
                column = column.values
            if not isinstance(column, Text):
                column = column.astype(np.float64 if kind == "float" else np.int64, copy=False)
            if kind == "float" and isinstance(column, np.ndarray):
                missing |= np.isnan(column)
            columns.append(column)
        # a missing value equals nothing: such a record gets a chain of its own kind, which the other side never looks at
        columns[0] = np.where(missing, -1 - side, windows)
        chains: Array = self._values.slots(columns)
        return chains

    def _reserve(self) -> None:
        rows = max(batch.length for batch in self._rows)
        if rows > self._before.shape[1]:
            room = max(rows, 2 * self._before.shape[1])
            self._before, self._place, self._time = (
                _wider(array, room, 0) for array in (self._before, self._place, self._time)
            )
        if len(self._values) > self._head.shape[1]:
            self._head = _wider(self._head, 2 * len(self._values), -1)
        if len(self._arrivals.keys) > self._count.shape[1]:
            self._count = _wider(self._count, 2 * len(self._arrivals.keys), 0)

    def _pairs(self, chunk: Chunk, sides: Array, slots: Array, new_rows: Array) -> tuple[Array, Array]:
        p = self._plan
        backup = self._head.copy(), self._count.copy()
        room = 2 * chunk.length + 16
        while True:
            left, right = np.empty(room, np.int64), np.empty(room, np.int64)
            n = pair(  # type: ignore[no-untyped-call]
                sides, slots, chunk.slots, chunk.times, np.array(p.limits), np.array(p.spans), np.array(p.active),
                self._head,
                self._before, self._place, self._time, self._count, new_rows, left, right,
            )  # fmt: skip
            if n <= room:
                return left[:n], right[:n]
            # there were more pairs than room: once more from the start
            room = int(n)
            self._head, self._count = backup[0].copy(), backup[1].copy()

    def _results(
        self, chunk: Chunk, sides: Array, new_rows: Array, at: Array, other: Array
    ) -> tuple[Batch | None, Batch | None]:
        p = self._plan
        side = sides[at]
        rows = [np.where(side == s, new_rows[at], other) for s in range(2)]
        pairs, letters = self._join_rows(rows, chunk.stamps[at]), None
        if self._on is not None and pairs.length:
            mask, letters = self._condition_mask(self._on, pairs)
            pairs, at = pairs.filter(mask), at[mask]
        alone = np.array(p.outer)[sides] & np.array(p.active)[sides]
        alone[at] = False
        if alone.any():
            lonely = np.flatnonzero(alone)
            rows = [np.where(sides[lonely] == s, new_rows[lonely], -1) for s in range(2)]
            both = concat_batches([b for b in (pairs, self._join_rows(rows, chunk.stamps[lonely])) if b.length])
            pairs = both.take(np.argsort(np.concatenate([at, lonely]), kind="stable"))
        out, more = self._select.run(pairs)
        return out, combine(letters, more)

    def _condition_mask(self, on: Callable[[Batch], Array], pairs: Batch) -> tuple[Array, Batch | None]:
        """Return for which pairs the condition holds, and dead letters for those of which it cannot be said."""
        try:
            return on(pairs), None
        except RecordError as error:
            rest, letters = split_off_broken(error, pairs, self._plan.step)
            mask = np.ones(pairs.length, np.bool_)
            mask[error.rows] = False
        mask[mask], more = self._condition_mask(on, rest) if rest.length else (np.zeros(0, np.bool_), None)
        return mask, combine(letters, more)

    def _join_rows(self, rows: list[Array], stamps: Array) -> Batch:
        columns: dict[str, Column] = {}
        for side, (name, schema) in enumerate(zip(self._plan.names, self._plan.schemas, strict=True)):
            valid = rows[side] >= 0
            for column, kind in schema.items():
                columns[f"{name}.{column}"] = _gather(self._rows[side].columns[column], rows[side], valid, kind)
        return Batch(columns, len(stamps), stamps)

    # -- tidying and saving -------------------------------------------------------------------------------------------

    def _in_window(self, side: int) -> Array:
        n = self._rows[side].length
        limit, span = self._plan.limits[side], self._plan.spans[side]
        inside = np.zeros(n, np.bool_) if not limit and not span else np.ones(n, np.bool_)
        if limit:
            inside &= self._place[side, :n] >= self._count[side][self._window_of[side]] - limit
        if span:
            inside &= self._time[side, :n] > self._arrivals.clocks()[self._window_of[side]] - span
        return inside

    def _tidy(self) -> None:
        """Forget records that have left their window, and keys that have none left, once they are the greater part."""
        key_count = len(self._arrivals.keys)
        full = self.idle_keys.may_be_many(key_count) and not self._arrivals.to_all
        if self.rows <= _TIDY and not full:
            return
        inside = [self._in_window(side) for side in range(2)]
        slots = np.unique(np.concatenate([self._window_of[side][inside[side]] for side in range(2)]))
        if self._arrivals.to_all or not self._plan.keys[0]:
            slots = np.arange(key_count)
        if 2 * sum(int(mask.sum()) for mask in inside) < self.rows or self.idle_keys.worth(key_count - len(slots)):
            self._keep(slots)
        self.idle_keys.note(key_count, len(self._arrivals.keys))

    def _keep(self, slots: Array) -> None:
        """Start over with these keys alone, and what their windows hold."""
        state = self._save(slots)
        self._arrivals.keep(slots)
        self._values = KeyIndex(*self._values.kinds)
        self._clear()
        self._load(state, np.arange(len(slots)))

    def _save(self, slots: Array) -> dict[str, Any]:
        place = np.full(len(self._arrivals.keys), -1, np.int64)
        place[slots] = np.arange(len(slots))
        state: dict[str, Any] = {"rows": [], "window": [], "time": [], "side": []}
        for side in range(2):
            windows = place[self._window_of[side]]
            mask = self._in_window(side) & (windows >= 0)
            state["rows"].append(self._rows[side].filter(mask))
            state["window"].append(windows[mask])
            state["time"].append(self._time[side, : len(mask)][mask])
        return state

    def _load(self, state: dict[str, Any], slots: Array) -> None:
        self._reserve()
        for side in range(2):
            rows = state["rows"][side]
            if not rows.length:
                continue
            windows = slots[state["window"][side]]
            base = self._rows[side].length
            self._rows[side] = concat_batches([self._rows[side], rows]) if base else rows
            self._window_of[side] = np.concatenate([self._window_of[side], windows])
            chains = self._chains(rows, side, windows)
            self._reserve()
            nothing = np.zeros(0, np.int64)
            pair(  # type: ignore[no-untyped-call]
                np.full(rows.length, side), chains, windows, state["time"][side], np.array(self._plan.limits),
                np.array(self._plan.spans), np.zeros(2, np.bool_), self._head, self._before, self._place, self._time,
                self._count, base + np.arange(rows.length), nothing, nothing,
            )  # fmt: skip

    def snapshot(self, select: Select | None = None) -> bytes:
        """Save the windows of the chosen keys."""
        slots = select_slots(self._arrivals.keys, select)
        state = self._save(slots)
        keys = self._arrivals.keys.columns(slots)
        return pack_state(_KIND, {**state, "count": len(slots), "keys": keys, "arrivals": self._arrivals.save(select)})

    def restore(self, data: bytes) -> None:
        """Take over windows."""
        state = unpack_state(_KIND, data)
        if state["count"]:
            self._load(state, self._arrivals.keys.slots_of(keys_batch(state["keys"], state["count"])))
        self._arrivals.load(state["arrivals"])

    def forget(self, select: Select) -> None:
        """Drop the windows of the chosen keys, and what waits of theirs."""
        slots = select_slots(self._arrivals.keys, select)
        self._arrivals.forget(select)
        self._keep(np.setdiff1d(np.arange(len(self._arrivals.keys)), slots))


def _wider(array: Array, room: int, fill: int) -> Array:
    more = np.full((2, room - array.shape[1]), fill, array.dtype)
    return np.concatenate([array, more], axis=1)


def _gather(column: Column, rows: Array, valid: Array, kind: Type) -> Column:
    if valid.all():
        return column[rows]
    if not valid.any():
        missing: Any = Text.of([""] * len(rows)) if kind == "text" else np.zeros(len(rows), DTYPES[kind])
        return Nullable(missing, valid)
    values = column[np.maximum(rows, 0)] if len(column) else empty(kind)
    if isinstance(values, Nullable):
        return Nullable(values.values, values.valid & valid)
    return Nullable(values, valid)
