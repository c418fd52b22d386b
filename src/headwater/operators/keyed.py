"""Steps with state by key: a user's function per record, or a scan over whole batches."""

from __future__ import annotations

from typing import Any

import numpy as np

from headwater.data.batch import Batch, concat_batches
from headwater.data.column import Array, Text
from headwater.data.schema import Schema
from headwater.errors import SnapshotError, listed
from headwater.flow.state import Cell, makes_of
from headwater.flow.steps import KeyedScan, Process
from headwater.operators.fault_isolation import as_list, error_text, without_the_broken
from headwater.operators.keys import KeySlots, without_key
from headwater.operators.operator import DEAD, FrozenState, Operator, Output, Select, dead_letters
from headwater.operators.retry import PartlyError
from headwater.operators.snapshot import pack_state, unpack_state
from headwater.operators.stateless import fit_columns, records_batch

_LARGE = 2**17  #: bytes of cells that are copied before a batch without a second thought
_MANY = 256  #: slots to a record, from which on looking through all slots takes longer than copying some twice
NO_KEY = "the key is missing or not a number"


def split_off_keyless(batch: Batch, names: tuple[str, ...], step: str) -> tuple[Batch, Batch | None]:
    """Return the records that have a key, and dead letters for those that do not."""
    bad = without_key(batch, names)
    if bad is None:
        return batch, None
    letters = dead_letters(step, [NO_KEY] * int(bad.sum()), batch.filter(bad))
    return batch.filter(~bad), letters


def with_letters(out: Batch | None, letters: Batch | None) -> Output:
    """Return a main output together with dead letters, if there are any."""
    if letters is None:
        return out
    return [(DEAD, letters)] if out is None else [(0, out), (DEAD, letters)]


def combine(*letters: Batch | None) -> Batch | None:
    """Return dead letters of several reasons together, None when there are none."""
    some = [each for each in letters if each is not None]
    return concat_batches(some) if some else None


class ProcessOperator(Operator):
    """Applies `function(state, record) -> (state, result)`; a record that breaks it leaves the state as it was."""

    stateless = False

    def __init__(self, kind: Process, step: str, schema: Schema, out: Schema, *, in_turn: bool = False) -> None:
        """`in_turn` has it stop at a record that breaks the function, with what came of those before it."""
        self._kind, self._step, self._schema, self._out = kind, step, schema, out
        self._in_turn = in_turn
        self._states: dict[tuple[Any, ...], Any] = {}
        self._dirty: set[tuple[Any, ...]] | None = None  #: keys since it was last frozen; None until it is

    def process(self, batch: Batch, port: int) -> Output:
        """Return the results of the records, in order; those that break the function are dead letters."""
        whole = batch
        batch, letters = split_off_keyless(batch, self._kind.keys, self._step)
        if self._in_turn and letters is not None:
            return self._between_keyless(whole, batch, letters)
        keys = list(zip(*(batch.columns[name].tolist() for name in self._kind.keys), strict=True))
        results: list[Any] = []
        rows: list[int] = []
        broken: list[tuple[int, str]] = []
        for i, record in enumerate(batch.rows()):
            key = keys[i] if keys else ()
            try:
                records = self._one(key, record)
            except Exception as error:
                if self._in_turn:
                    raise PartlyError(error, i, records_batch(results, rows, self._out, batch)) from error
                broken.append((i, error_text(error)))
                continue
            results += records
            rows += [i] * len(records)
        out = records_batch(results, rows, self._out, batch)
        if broken:
            more = dead_letters(self._step, [why for _, why in broken], batch.take(np.array([i for i, _ in broken])))
            outputs: list[tuple[int, Batch]] = [(DEAD, more)]
            outputs += [(DEAD, letters)] if letters is not None else []
            return outputs + ([(0, out)] if out is not None else [])
        return with_letters(out, letters)

    def _between_keyless(self, whole: Batch, keyed: Batch, letters: Batch) -> Output:
        """Process the records that have a key; where it stops at one, those without a key before it are done with too."""
        try:
            return [(DEAD, letters), *as_list(self.process(keyed, 0))]
        except PartlyError as error:
            bad = without_key(whole, self._kind.keys)
            assert bad is not None
            row = int(np.flatnonzero(~bad)[error.row])
            letters_before = letters.slice(0, int(bad[:row].sum()))
            raise PartlyError(error.cause, row, [(DEAD, letters_before), *as_list(error.outputs)]) from error.cause

    def _one(self, key: tuple[Any, ...], record: dict[str, Any]) -> list[dict[str, Any]]:
        if self._dirty is not None:
            self._dirty.add(key)  # before, since a function may change what it was given and fail then
        answer = self._kind.function(self._states.get(key), record)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise TypeError(f"a process function returns (state, result), got {answer!r}")
        state, result = answer
        records = [] if result is None else list(result) if isinstance(result, list | tuple) else [result]
        one = Batch({}, 1, np.zeros((1, 2), np.int64))
        records_batch(records, [0] * len(records), self._out, one)  # fits, or raises
        if state is None:
            self._states.pop(key, None)
        else:
            self._states[key] = state
        return records

    def snapshot(self, select: Select | None = None) -> bytes:
        """Save each chosen key and its state."""
        keys = self._select_keys(select)
        return pack_state(
            "process", {"keys": [list(key) for key in keys], "states": [self._states[key] for key in keys]}
        )

    def freeze(self, *, whole: bool) -> FrozenState:
        """Return all keys, or those that came since; encoded at once, since functions may change what they were given."""
        dirty, self._dirty = self._dirty, set()
        if whole or dirty is None:
            data = self.snapshot()
            return FrozenState(True, lambda: data)
        keys = [key for key in dirty if key in self._states]
        changes = {
            "keys": [list(key) for key in keys],
            "states": [self._states[key] for key in keys],
            "gone": [list(key) for key in dirty if key not in self._states],
        }
        data = pack_state("process changes", changes)
        return FrozenState(False, lambda: data)

    def change(self, data: bytes) -> None:
        """Take over keys that had changed, and forget those that were gone."""
        state = unpack_state("process changes", data)
        self._take_over(state)
        for key in state["gone"]:
            self._states.pop(tuple(key), None)

    def restore(self, data: bytes) -> None:
        """Take over saved keys."""
        self._take_over(unpack_state("process", data))

    def _take_over(self, content: dict[str, Any]) -> None:
        for key, state in zip(content["keys"], content["states"], strict=True):
            self._states[tuple(key)] = state

    def forget(self, select: Select) -> None:
        """Drop the chosen keys."""
        for key in self._select_keys(select):
            del self._states[key]

    def _select_keys(self, select: Select | None) -> list[tuple[Any, ...]]:
        keys = list(self._states)
        if select is None or not keys:
            return keys
        schema = self._schema.only(self._kind.keys)
        columns = Batch.of_rows([dict(zip(schema, key, strict=True)) for key in keys], schema).columns
        mask = select.rows(list(columns.values()))  # type: ignore[arg-type]
        return [key for key, inside in zip(keys, mask.tolist(), strict=True) if inside]


class ScanOperator(Operator):
    """Runs a scan: one array per cell, a slot per key."""

    stateless = False

    def __init__(self, kind: KeyedScan, step: str, schema: Schema, out: Schema) -> None:
        self._kind, self._step, self._out, self._schema = kind, step, out, schema
        self._scan, self._makes = kind.scan, makes_of(kind.scan)
        self._keys = KeySlots(schema, kind.keys)
        self._state = {name: _new_cells(cell, 64) for name, cell in self._scan.state.items()}
        self._capacity = 64
        self._dirty: Array | None = None  #: which slots changed since it was last frozen; None until it is
        self._cell_bytes = sum(array[:1].nbytes for array in self._state.values())

    def process(self, batch: Batch, port: int) -> Output:
        """Return the scan's results for the batch."""
        batch, letters = split_off_keyless(batch, self._kind.keys, self._step)
        try:
            out = self._run_scan(batch)
        except Exception as error:
            outputs = without_the_broken(self._run_scan, batch, error, self._step)
            return outputs + ([(DEAD, letters)] if letters is not None else [])
        return with_letters(out, letters)

    def _run_scan(self, batch: Batch) -> Batch | None:
        """Run the scan; when it fails, the cells are what they were before."""
        slots = self._keys.slots_of(batch)
        self._grow()
        unique_slots = self._once_each(slots)
        before = {name: array.take(unique_slots, axis=0) for name, array in self._state.items()}
        if self._dirty is not None:
            self._dirty[slots] = True
        try:
            result = self._scan.run(batch, slots, self._state)
            rows, columns = result if isinstance(result, tuple) else (None, result)
            if self._makes is not None and not columns.keys() <= self._makes:
                more = listed(columns.keys() - self._makes)
                raise TypeError(
                    f"{type(self._scan).__name__} says that it makes {listed(self._makes)}, and made {more}"
                )
            out = fit_columns(columns, self._out, batch, rows)
        except Exception:
            for name, values in before.items():
                self._state[name][unique_slots] = values
            raise
        return out if out is not None and out.length else None

    def _once_each(self, slots: Array) -> Array:
        """Return the slots without those that come again; as they are where copying those is quicker than finding them."""
        if len(slots) * self._cell_bytes < _LARGE or self._capacity > _MANY * len(slots):
            return slots
        mask = np.zeros(self._capacity, np.bool_)
        mask[slots] = True
        return np.flatnonzero(mask)

    def _grow(self) -> None:
        capacity = self._capacity
        while capacity < len(self._keys):
            capacity *= 2
        added = capacity - self._capacity
        if not added:
            return
        before, self._state = self._state, {name: _new_cells(cell, capacity) for name, cell in self._scan.state.items()}
        for name, array in before.items():
            self._state[name][: self._capacity] = array
        if self._dirty is not None:
            self._dirty = np.concatenate([self._dirty, np.zeros(added, np.bool_)])
        self._capacity = capacity

    def snapshot(self, select: Select | None = None) -> bytes:
        """Save the chosen keys and their cells."""
        return self._pack(self._copy_of(self._select_keys(select)))

    def freeze(self, *, whole: bool) -> FrozenState:
        """Return copies of all cells, or of those that changed."""
        dirty, self._dirty = self._dirty, np.zeros(self._capacity, np.bool_)
        whole = whole or dirty is None
        slots = np.arange(len(self._keys)) if dirty is None or whole else np.flatnonzero(dirty)
        copy = self._copy_of(slots)
        return FrozenState(whole, lambda: self._pack(copy))

    def _copy_of(self, slots: Array) -> dict[str, Any]:
        every = len(slots) == len(self._keys)  # then they are in order, and a plain copy is several times as fast
        cells = {name: array[: len(slots)].copy() if every else array[slots] for name, array in self._state.items()}
        return {"slots": len(slots), "keys": self._keys.columns(slots), "cells": cells}

    def _pack(self, copy: dict[str, Any]) -> bytes:
        return pack_state(self._label, copy)

    def change(self, data: bytes) -> None:
        """Take over cells that had changed: a key's cells replace those it has."""
        self.restore(data)

    def restore(self, data: bytes) -> None:
        """Take over saved keys and their cells."""
        state = unpack_state(self._label, data)
        if state["cells"].keys() != self._state.keys():
            raise SnapshotError(
                f"step {self._step!r} keeps {list(self._state)}, but the snapshot has {list(state['cells'])}"
            )
        count, key_count = state["slots"], len(self._keys)
        if not count:
            return
        self._dirty = None  # what came from elsewhere is in no checkpoint of this run: the next has all
        self._keys.reserve(key_count + count)
        slots = self._keys.slots_of(Batch(state["keys"], count, np.zeros((count, 2), np.int64)))
        if not key_count and count >= self._capacity:  # they are all there is, in order: no need to copy them
            self._state = {name: state["cells"][name] for name in self._state}
            self._capacity = count
            return
        self._grow()
        for name, values in state["cells"].items():
            self._state[name][slots] = values

    def forget(self, select: Select) -> None:
        """Drop the chosen keys."""
        mask = np.zeros(len(self._keys), np.bool_)
        mask[self._select_keys(select)] = True
        rest = np.flatnonzero(~mask)
        fresh = {name: _new_cells(cell, self._capacity) for name, cell in self._scan.state.items()}
        for name, array in fresh.items():
            array[: len(rest)] = self._state[name][rest]
        self._state = fresh
        self._keys.keep(rest)

    def _select_keys(self, select: Select | None) -> Array:
        slots = np.arange(len(self._keys))
        if select is None or not len(slots) or not self._kind.keys:
            return slots
        columns: list[Array | Text] = list(self._keys.columns(slots).values())  # type: ignore[arg-type]
        return slots[select.rows(columns)]

    @property
    def _label(self) -> str:
        return f"scan {type(self._scan).__name__}"


def _new_cells(cell: Cell, slots: int) -> Array:
    if cell.initial == 0:  # memory that is not touched before it is used
        return np.zeros((slots, *cell.shape), cell.dtype)
    return np.full((slots, *cell.shape), cell.initial, cell.dtype)
