"""What compiled matchers share: one loop over a batch, attempts in arrays, records in a store."""

from __future__ import annotations

import operator as op
from abc import abstractmethod
from collections.abc import Iterable
from functools import reduce
from typing import Any

import numpy as np

from headwater.cep import syntax as s
from headwater.cep.automaton import Absence, Accept, Automaton, label
from headwater.cep.kernels.waiting import NULL
from headwater.cep.matchers.comparison import Comparisons, compare, ordered
from headwater.cep.matchers.store import EventStore
from headwater.data.batch import Batch, concat_batches
from headwater.data.column import Array, Column, Text, parts
from headwater.data.schema import Type
from headwater.flow.expr import Expr
from headwater.operators.chunk import Chunk
from headwater.operators.expression import compile_mask

COMPACT_ROWS = 1 << 18  #: records kept beyond those in use before they are tidied up


class CompiledMatcher:
    """What compiled matchers share: the records they keep, and their conditions on single records."""

    def __init__(self, automaton: Automaton, tables: Comparisons, attributes: tuple[s.Attribute, ...]) -> None:
        self._a, self._tables = automaton, tables
        self._sides = automaton.sides()
        streams = {take.ref: take.stream for take in automaton.accepts()}
        #: of each column of the result, its name here and the place of the record that has it
        self._outputs = {label(a): (f"{streams[a.ref or '']}.{a.name}", self.place_of(a)) for a in attributes}
        columns = [(derived.stream, name) for derived in tables.derived for name in sorted(derived.expr.columns())]
        columns += [(streams[a.ref or ""], a.name) for a in attributes]
        self._inputs = {f"{stream}.{name}": (stream, name) for stream, name in columns}
        self._kinds = {label: automaton.schemas[stream][name] for label, (stream, name) in self._inputs.items()}
        self._masks = [own_mask(automaton, side) for side in self._sides]
        self._readers = [d.reader(automaton.schemas[d.stream]) for d in tables.derived]
        self.every = bool(automaton.scopes)
        self.within = -1 if automaton.within_us is None else automaton.within_us
        self.store = self._new_store()

    def place_of(self, attribute: s.Attribute) -> int:
        """Return the place of the record that an attribute reads, among those of a match."""
        return next(i for i, take in enumerate(self._a.accepts()) if take.ref == attribute.ref)

    def results(self, rows: Array, stamps: Array | None = None) -> Batch:
        """Return what is wanted of matches, given the rows of their records; a match is as old as its last record."""
        columns = {output: self.store.column(name, rows[:, place]) for output, (name, place) in self._outputs.items()}
        return Batch(columns, len(rows), self.store.stamps(rows[:, -1]) if stamps is None else stamps)

    def _new_store(self) -> EventStore:
        return EventStore(self._kinds, len(self._tables.derived))

    def passes(self, chunk: Chunk) -> Array:
        """Return which records suit which side by their own values."""
        return np.array([chunk.mask(side.stream, mask) for side, mask in zip(self._sides, self._masks, strict=True)])

    def keep(self, chunk: Chunk) -> int:
        """Store the records of a chunk and return the row of the first."""
        columns: dict[str, Column] = {}
        for key, (stream, name) in self._inputs.items():
            column = chunk.column(stream, lambda batch, name=name: batch.columns[name])  # type: ignore[misc]
            if column is not None:
                columns[key] = column
        values = np.full((len(self._readers), chunk.length), NULL)
        for i, (derived, compute) in enumerate(zip(self._tables.derived, self._readers, strict=True)):
            derived_column = chunk.column(derived.stream, compute)
            if derived_column is not None:
                values[i] = self._codes_of(derived_column, derived.kind)
        return self.store.append(columns, values, chunk.stamps)

    def _codes_of(self, column: Column, kind: Type) -> Array:
        texts, valid = parts(column)
        if not isinstance(texts, Text):
            return ordered(column, kind)
        codes = self.store.codes_of(texts)
        return codes if valid is None else np.where(valid, codes, NULL)

    def save_records(self, references: Array) -> tuple[Batch, Array]:
        """Return the records that `references` refers to, and `references` with their new row numbers."""
        rows = np.unique(references[references >= 0])
        columns = {label: self.store.column(label, rows) for label in self._inputs}
        renumbered = np.where(references >= 0, np.searchsorted(rows, references), -1)
        return Batch(columns, len(rows), self.store.stamps(rows)), renumbered

    def restore_records(self, records: Batch, references: Array) -> Array:
        """Store saved records and return `references` with the rows they got."""
        values = np.full((len(self._readers), records.length), NULL)
        for i, (derived, compute) in enumerate(zip(self._tables.derived, self._readers, strict=True)):
            names = {name: f"{derived.stream}.{name}" for name in derived.expr.columns()}
            batch = Batch({n: records.columns[label] for n, label in names.items()}, records.length, records.stamps)
            values[i] = self._codes_of(compute(batch), derived.kind)
        base = self.store.append(records.columns, values, records.stamps)
        return np.where(references >= 0, references + base, -1)


class PooledMatcher(CompiledMatcher):
    """Keeps attempts in the rows of a pool; here how their records are tidied up, saved and put together again."""

    _pool: Array
    _rows: Array  #: by attempt, the rows of its records in the store
    _columns: tuple[int, int, int]  #: of the pool: stage, below 0 where there is no attempt; key; age

    def __init__(self, automaton: Automaton, tables: Comparisons, attributes: tuple[s.Attribute, ...]) -> None:
        super().__init__(automaton, tables, attributes)
        self._in_use = 0  #: records that were in use when they were last tidied up

    def _attempts(self) -> Array:
        return np.flatnonzero(self._pool[:, self._columns[0]] >= 0)

    def _record_rows(self, attempts: Array) -> Array:
        """Return the rows of the records that attempts hold, -1 for none."""
        return self._rows[attempts]

    @abstractmethod
    def _start_over(self) -> None:
        """Begin with new texts too: most of those known are in no record any more."""

    def _tidy(self) -> None:
        """Forget records that no attempt holds, once they are the greater part."""
        if self.store.length <= COMPACT_ROWS + 2 * self._in_use:
            return
        if self.store.texts > COMPACT_ROWS + 2 * self._in_use:
            self._start_over()
        else:
            attempts = self._attempts()
            rows = self._record_rows(attempts)
            used = np.zeros(self.store.length + 1, np.bool_)
            used[rows] = True  # -1, which stands for none, is the last place
            used[-1] = False
            self._rows[attempts] = np.where(rows >= 0, (np.cumsum(used) - 1)[rows], -1)
            self.store.keep(np.flatnonzero(used))
        self._in_use = self.store.length

    def _save_attempts(self, slots: Array, keys: int) -> tuple[Array, dict[str, Any]]:
        """Return the attempts of these keys, the oldest first, with their records and keys, which count along `slots`."""
        _, key, age = self._columns
        place = np.full(keys, -1, np.int64)
        place[slots] = np.arange(len(slots))
        attempts = self._attempts()
        attempts = attempts[place[self._pool[attempts, key]] >= 0]
        attempts = attempts[np.argsort(self._pool[attempts, age])]
        records, references = self.save_records(self._record_rows(attempts))
        return attempts, {"records": records, "taken": references, "slot": place[self._pool[attempts, key]]}

    def _merge_states(self, states: list[dict[str, Any]], names: Iterable[str]) -> tuple[Array, dict[str, Array]]:
        """Put the records of saved states into a new store; return the rows they got, and the other fields."""
        offsets = np.cumsum([0, *(state["records"].length for state in states)])
        references = [np.where(s["taken"] >= 0, s["taken"] + o, -1) for s, o in zip(states, offsets, strict=False)]
        records = [state["records"] for state in states if state["records"].length] or [states[0]["records"]]
        self.store = self._new_store()
        rows = self.restore_records(concat_batches(records), np.concatenate(references))
        return rows, {name: np.concatenate([state[name] for state in states]) for name in names}


def own_reads(automaton: Automaton) -> list[tuple[int, Expr]]:
    """Return what is computed of single records, by stream: conditions on their own values, and what is compared.

    The latter matters only of records that some place takes by their own values.
    """
    sides = automaton.sides()
    reads = [(side.stream, side.own) for side in sides if side.own is not None]
    tables = compare(automaton, lambda earlier: 0)
    for derived in tables.derived if tables is not None else ():
        here = [side for side in sides if side.stream == derived.stream]
        # compiled matchers use the two least numbers as codes: a record with one of them is told apart, never mistaken
        check = (derived.expr - 2 if derived.kind == "int" else derived.expr).is_null()
        owns = [side.own for side in here if side.own is not None]
        if len(owns) == len(here):
            check = reduce(op.or_, owns) & check
        reads.append((derived.stream, check))
    return reads


def own_mask(automaton: Automaton, take: Accept | Absence) -> Any:
    """Return a function that says which records of a batch suit a place by their own values; None if all do."""
    return None if take.own is None else compile_mask(take.own, automaton.schemas[take.stream])
