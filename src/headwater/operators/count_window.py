"""Windows of a number of records per key."""

from __future__ import annotations

from typing import Any

import numpy as np

from headwater.data.batch import Batch
from headwater.data.column import Array, Column, Nullable, Text, column_of, concat, parts
from headwater.data.schema import DTYPES, Schema
from headwater.flow.steps import WindowAggregate
from headwater.flow.windows import Count
from headwater.operators.accumulate import Accumulators, beyond, different, sum_of, unfit
from headwater.operators.checked_arithmetic import MOST
from headwater.operators.expression import compile_expression
from headwater.operators.keyed import combine, split_off_keyless, with_letters
from headwater.operators.keys import KeySlots, keys_batch, select_slots
from headwater.operators.operator import Operator, Output, Select, compute_or_reject, dead_letters
from headwater.operators.snapshot import pack_state, unpack_state


class CountWindowOperator(Operator):
    """Aggregates blocks of `size` records of each key."""

    stateless = False

    def __init__(self, kind: WindowAggregate, step: str, schema: Schema) -> None:
        assert isinstance(kind.window, Count)
        self._size, self._step, self._names = kind.window.size, step, kind.keys
        self._keys = KeySlots(schema, kind.keys)
        self._sums = Accumulators(kind.aggregates, schema)
        self._counts = np.zeros(64, np.int64)  #: records of each key so far in its open window

    def process(self, batch: Batch, port: int) -> Output:
        """Return a result for each window that the batch fills."""
        batch, letters = split_off_keyless(batch, self._names, self._step)
        batch, inputs, more = compute_or_reject(self._sums.inputs, batch, self._step)
        letters = combine(letters, more)
        slots = self._keys.slots_of(batch)
        self._grow()
        positions = _positions(slots, self._counts)
        self._counts[slots] %= self._size
        rounds = positions // self._size
        full = positions % self._size == self._size - 1
        order = self._sums.arrived(batch.length)
        rows: list[Array] = []
        columns: list[dict[str, Column]] = []
        broken: list[tuple[int, str]] = []
        for turn in range(int(rounds.max()) + 1 if batch.length else 0):
            now = np.flatnonzero(rounds == turn)
            self._sums.update(slots[now], [None if i is None else i[now] for i in inputs], order[now])
            complete = now[full[now]]
            if len(complete):
                columns.append(self._sums.results(slots[complete]))
                broken += [(int(complete[row]), why) for row, why in self._sums.broken()]
                rows.append(complete)
                self._sums.reset(slots[complete])
        if broken:
            bad = batch.take(np.array([row for row, _ in broken]))
            letters = combine(letters, dead_letters(self._step, [why for _, why in broken], bad))
        return with_letters(self._out(batch, rows, columns), letters)

    def _out(self, batch: Batch, rows: list[Array], columns: list[dict[str, Column]]) -> Batch | None:
        if not rows:
            return None
        at = np.concatenate(rows)
        order = np.argsort(at, kind="stable")  # results come in the order of the records that completed them
        results = {name: concat([part[name] for part in columns])[order] for name in columns[0]}
        keys = {name: batch.columns[name][at[order]] for name in self._names}
        return Batch({**keys, **results}, len(at), batch.stamps[at[order]], batch.watermark)

    def _grow(self) -> None:
        if len(self._keys) > len(self._counts):
            larger = np.zeros(max(2 * len(self._counts), len(self._keys)), np.int64)
            larger[: len(self._counts)] = self._counts
            self._counts = larger
        self._sums.reserve(len(self._keys))

    def snapshot(self, select: Select | None = None) -> bytes:
        """Save the open windows of the chosen keys."""
        slots = select_slots(self._keys, select)
        state = {
            "keys": self._keys.columns(slots),
            "counts": self._counts[slots],
            "sums": self._sums.save(slots),
        }
        return pack_state("count window", state)

    def restore(self, data: bytes) -> None:
        """Take over open windows."""
        state = unpack_state("count window", data)
        if len(state["counts"]):
            slots = self._keys.slots_of(keys_batch(state["keys"], len(state["counts"])))
            self._grow()
            self._counts[slots] = state["counts"]
            self._sums.load(slots, state["sums"])

    def forget(self, select: Select) -> None:
        """Drop the open windows of the chosen keys."""
        rest = np.setdiff1d(np.arange(len(self._keys)), select_slots(self._keys, select))
        counts, sums = self._counts[rest], self._sums.save(rest)
        self._keys.keep(rest)
        self._sums, self._counts = self._sums.empty(), np.zeros(64, np.int64)
        self._grow()
        at = np.arange(len(rest))
        self._counts[at] = counts
        self._sums.load(at, sums)


class SlidingCountOperator(Operator):
    """Aggregates the last `size` records of each key, after each `every` of them once there are enough."""

    stateless = False

    def __init__(self, kind: WindowAggregate, step: str, schema: Schema) -> None:
        assert isinstance(kind.window, Count)
        self._size, self._every = kind.window.size, kind.window.every or 1
        self._step, self._names, self._aggregates = step, kind.keys, kind.aggregates
        self._keys = KeySlots(schema, kind.keys)
        self._schema = schema
        self._reads = [compile_expression(a.of, schema) if a.of is not None else None for _, a in kind.aggregates]
        kinds = [a.of.type_in(schema) if a.of is not None else "int" for _, a in kind.aggregates]
        self._dtypes = [object if k in ("text", "any") else DTYPES[k] for k in kinds]
        self._rings: list[Array] = [np.zeros((64, self._size), dtype) for dtype in self._dtypes]
        self._valid = [np.ones((64, self._size), np.bool_) for _ in self._dtypes]
        self._counts = np.zeros(64, np.int64)  #: records of each key so far

    def process(self, batch: Batch, port: int) -> Output:
        """Return a result for each record that completes a window."""
        batch, letters = split_off_keyless(batch, self._names, self._step)
        batch, inputs, more = compute_or_reject(self._inputs, batch, self._step)
        letters = combine(letters, more)
        slots = self._keys.slots_of(batch)
        self._grow()
        seen = _positions(slots, self._counts) + 1
        rows = np.flatnonzero((seen >= self._size) & ((seen - self._size) % self._every == 0))
        columns: dict[str, Column] = {name: batch.columns[name][rows] for name in self._names}
        for i, (name, aggregate) in enumerate(self._aggregates):
            values: Any
            values, valid = parts(inputs[i])
            if isinstance(values, Text):
                values = column_of(values.tolist(), "any")
            window = _windows(slots, values, self._rings[i], rows, seen)
            window_valid = None
            if valid is not None or not self._valid[i].all():
                mask = np.ones(batch.length, np.bool_) if valid is None else valid
                window_valid = _windows(slots, mask, self._valid[i], rows, seen)
            columns[name] = _reduce(name, aggregate, window, window_valid, aggregate.type_in(self._schema))
            bad = _beyond(window, window_valid) if aggregate.function == "sum" and window.dtype == np.int64 else None
            if bad is not None:
                columns[name] = _without(columns[name], bad)
                at = batch.take(rows[bad])
                letters = combine(letters, dead_letters(self._step, [unfit(name)] * at.length, at))
        out = Batch(columns, len(rows), batch.stamps.take(rows, axis=0), batch.watermark) if len(rows) else None
        return with_letters(out, letters)

    def _inputs(self, batch: Batch) -> list[Column]:
        return [np.ones(batch.length, np.int64) if compute is None else compute(batch) for compute in self._reads]

    def _grow(self) -> None:
        if len(self._keys) <= len(self._counts):
            return
        capacity = max(2 * len(self._counts), len(self._keys))
        self._rings = [_larger(ring, capacity) for ring in self._rings]
        self._valid = [np.concatenate([v, np.ones((capacity - len(v), self._size), np.bool_)]) for v in self._valid]
        self._counts = _larger(self._counts, capacity)

    def snapshot(self, select: Select | None = None) -> bytes:
        """Save the last records of the chosen keys."""
        slots = select_slots(self._keys, select)
        state = {
            "keys": self._keys.columns(slots),
            "counts": self._counts[slots],
            "rings": [_flat(ring[slots]) for ring in self._rings],
            "valid": [valid[slots] for valid in self._valid],
        }
        return pack_state("sliding count window", state)

    def restore(self, data: bytes) -> None:
        """Take over the last records of keys."""
        state = unpack_state("sliding count window", data)
        if not len(state["counts"]):
            return
        slots = self._keys.slots_of(keys_batch(state["keys"], len(state["counts"])))
        self._grow()
        self._counts[slots] = state["counts"]
        for ring, values in zip(self._rings, state["rings"], strict=True):
            ring[slots] = np.asarray(values).reshape(len(slots), self._size)
        for valid, values in zip(self._valid, state["valid"], strict=True):
            valid[slots] = values

    def forget(self, select: Select) -> None:
        """Drop the chosen keys."""
        rest = np.setdiff1d(np.arange(len(self._keys)), select_slots(self._keys, select))
        capacity = max(64, len(rest))
        self._counts = _larger(self._counts[rest], capacity)
        self._rings = [_larger(ring[rest], capacity) for ring in self._rings]
        ones = [np.ones((capacity - len(rest), self._size), np.bool_) for _ in self._valid]
        self._valid = [np.concatenate([v[rest], more]) for v, more in zip(self._valid, ones, strict=True)]
        self._keys.keep(rest)


def _reduce(name: str, aggregate: Any, window: Array, valid: Array | None, out: Any) -> Column:
    """Aggregate each row of a matrix of windows, oldest value first."""
    function = aggregate.function
    if function == "count":
        return np.full(len(window), window.shape[1], np.int64)
    if valid is not None and not valid.all():
        # rare: some values are missing, so windows have different lengths
        return _ragged(name, aggregate, window, valid, out)
    if function in ("custom", "distinct"):
        custom = different if function == "distinct" else aggregate.custom
        return column_of([custom(row) for row in window], out, name=name)
    if function in ("first", "last"):
        values = window[:, 0 if function == "first" else -1]
        return column_of(list(values), out) if window.dtype == object else values
    if function == "mean" and window.dtype == np.int64:
        total: Array = window.sum(axis=1)
        if _may_leave(window):
            total = sum_of(total, (window >> 32).sum(axis=1))
        means: Array = total / window.shape[1]
        return means
    reduce = {"sum": np.sum, "mean": np.mean, "std": np.std, "min": np.min, "max": np.max}[function]
    wide = window.astype(np.float64) if function in ("mean", "std", "sum") and window.dtype == np.float32 else window
    result: Array = reduce(wide, axis=1)  # type: ignore[operator]
    return result.astype(DTYPES[out], copy=False)


def _beyond(window: Array, valid: Array | None) -> Array | None:
    """Return which rows add up to more than 64 bits hold, or None when none does."""
    values = window if valid is None else np.where(valid, window, 0)
    if not _may_leave(values):
        return None
    bad = beyond(values.sum(axis=1), (values >> 32).sum(axis=1))
    return bad if bad.any() else None


def _may_leave(window: Array) -> bool:
    """Say whether a row may add up to more than 64 bits hold."""
    return bool(window.size) and max(int(window.max()), -int(window.min())) * window.shape[1] > MOST


def _without(column: Column, bad: Array) -> Column:
    values, valid = parts(column)
    return Nullable(values, ~bad if valid is None else valid & ~bad)


def _ragged(name: str, aggregate: Any, window: Array, valid: Array, out: Any) -> Column:
    results: list[Any] = []
    for values, mask in zip(window, valid, strict=True):
        present = values[mask]
        nothing = [0 if aggregate.function == "distinct" else None]
        result = parts(_reduce(name, aggregate, present[None, :], None, out))[0].tolist() if len(present) else nothing
        results.append(result[0])
    return column_of(results, out)


def _positions(slots: Array, counts: Array) -> Array:
    from headwater.operators.kernels.windows import positions

    out: Array = positions(slots, counts)
    return out


def _windows(slots: Array, values: Array, ring: Array, rows: Array, seen: Array) -> Array:
    from headwater.operators.kernels import windows

    slide = getattr(windows.slide, "py_func", windows.slide) if values.dtype == object else windows.slide
    out: Array = slide(slots, values, ring, seen, rows, np.empty((len(rows), ring.shape[1]), ring.dtype))
    return out


def _larger(array: Array, capacity: int) -> Array:
    larger = np.zeros((capacity, *array.shape[1:]), array.dtype)
    larger[: len(array)] = array
    return larger


def _flat(array: Array) -> Array:
    return array.reshape(-1) if array.dtype == object else array
