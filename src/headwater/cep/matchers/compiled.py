"""Compiled matchers: one loop over a batch, partial matches in arrays; here what they share, and the one of sequences."""

from __future__ import annotations

import operator as op
from functools import reduce
from typing import Any

import numpy as np

from headwater.cep import syntax as s
from headwater.cep.automaton import Automaton, Take, Wait, label
from headwater.cep.expressions import Translator
from headwater.cep.kernels import sequence as cep_sequence
from headwater.cep.kernels.waiting import NULL
from headwater.cep.matchers.comparison import Comparisons, compare, ordered
from headwater.cep.matchers.store import EventStore
from headwater.data.batch import Batch
from headwater.data.column import Array, Column, Text, parts
from headwater.data.schema import Type
from headwater.flow.expr import Expr
from headwater.operators.chunk import Chunk
from headwater.operators.expression import compiled_mask

COMPACT_ROWS = 1 << 18  #: records kept beyond those in use before they are tidied up


class PlainMatcher:
    """What compiled matchers share: the records they keep, and their conditions on single records."""

    def __init__(self, automaton: Automaton, tables: Comparisons, wanted: tuple[s.Attribute, ...]) -> None:
        self._a, self._tables = automaton, tables
        self._sides = automaton.sides()
        streams = {take.ref: take.stream for take in automaton.takes()}
        #: of each column of the result, its name here and the place of the record that has it
        self._wanted = {label(a): (f"{streams[a.ref or '']}.{a.name}", self.place_of(a)) for a in wanted}
        needed = [(derived.stream, name) for derived in tables.derived for name in sorted(derived.expr.columns())]
        needed += [(streams[a.ref or ""], a.name) for a in wanted]
        self._kept = {f"{stream}.{name}": (stream, name) for stream, name in needed}
        self._kinds = {label: automaton.schemas[stream][name] for label, (stream, name) in self._kept.items()}
        self._masks = [own_mask(automaton, side) for side in self._sides]
        self._readers = [d.reader(automaton.schemas[d.stream]) for d in tables.derived]
        self.every = bool(automaton.scopes)
        self.within = -1 if automaton.within_us is None else automaton.within_us
        self.store = self._new_store()

    def place_of(self, attribute: s.Attribute) -> int:
        """Return the place of the record that an attribute reads, among those of a match."""
        return next(i for i, take in enumerate(self._a.takes()) if take.ref == attribute.ref)

    def results(self, rows: Array, stamps: Array | None = None) -> Batch:
        """Return what is wanted of matches, given the rows of their records; a match is as old as its last record."""
        columns = {shown: self.store.column(name, rows[:, place]) for shown, (name, place) in self._wanted.items()}
        return Batch(columns, len(rows), self.store.stamps(rows[:, -1]) if stamps is None else stamps)

    def _new_store(self) -> EventStore:
        return EventStore(self._kinds, len(self._tables.derived))

    def passes(self, chunk: Chunk) -> Array:
        """Return which records suit which side by their own values."""
        return np.array([chunk.mask(side.stream, mask) for side, mask in zip(self._sides, self._masks, strict=True)])

    def keep(self, chunk: Chunk) -> int:
        """Store the records of a chunk and return the row of the first."""
        columns: dict[str, Column] = {}
        for shown, (stream, name) in self._kept.items():
            column = chunk.column(stream, lambda batch, name=name: batch.columns[name])  # type: ignore[misc]
            if column is not None:
                columns[shown] = column
        values = np.full((len(self._readers), chunk.length), NULL)
        for i, (derived, read) in enumerate(zip(self._tables.derived, self._readers, strict=True)):
            found = chunk.column(derived.stream, read)
            if found is not None:
                values[i] = self._coded(found, derived.kind)
        return self.store.append(columns, values, chunk.stamps)

    def _coded(self, column: Column, kind: Type) -> Array:
        texts, valid = parts(column)
        if not isinstance(texts, Text):
            return ordered(column, kind)
        codes = self.store.coded(texts)
        return codes if valid is None else np.where(valid, codes, NULL)

    def saved_records(self, taken: Array) -> tuple[Batch, Array]:
        """Return the records that `taken` refers to, and `taken` with their new row numbers."""
        rows = np.unique(taken[taken >= 0])
        columns = {label: self.store.column(label, rows) for label in self._kept}
        renumbered = np.where(taken >= 0, np.searchsorted(rows, taken), -1)
        return Batch(columns, len(rows), self.store.stamps(rows)), renumbered

    def restore_records(self, records: Batch, taken: Array) -> Array:
        """Store saved records and return `taken` with the rows they got."""
        values = np.full((len(self._readers), records.length), NULL)
        for i, (derived, read) in enumerate(zip(self._tables.derived, self._readers, strict=True)):
            names = {name: f"{derived.stream}.{name}" for name in derived.expr.columns()}
            own = Batch({n: records.columns[label] for n, label in names.items()}, records.length, records.stamps)
            values[i] = self._coded(read(own), derived.kind)
        base = self.store.append(records.columns, values, records.stamps)
        return np.where(taken >= 0, taken + base, -1)


def own_reads(automaton: Automaton) -> list[tuple[int, Expr]]:
    """Return what is computed of single records, by stream: conditions on their own values, and what is compared.

    The latter matters only of records that some place takes by their own values.
    """
    sides = automaton.sides()
    reads = [(side.stream, _own(automaton, side)) for side in sides if side.own]
    tables = compare(automaton, lambda earlier: 0)
    for derived in tables.derived if tables is not None else ():
        here = [side for side in sides if side.stream == derived.stream]
        # compiled matchers use the two least numbers as codes: a record with one of them is told apart, never mistaken
        wanted = (derived.expr - 2 if derived.kind == "int" else derived.expr).is_null()
        if all(side.own for side in here):
            wanted = reduce(op.or_, [_own(automaton, side) for side in here]) & wanted
        reads.append((derived.stream, wanted))
    return reads


def own_mask(automaton: Automaton, take: Take | Wait) -> Any:
    """Return a function that says which records of a batch suit a place by their own values; None if all do."""
    if not take.own:
        return None
    return compiled_mask(_own(automaton, take), automaton.schemas[take.stream])


def _own(automaton: Automaton, take: Take | Wait) -> Expr:
    schema = automaton.schemas[take.stream]
    translator = Translator("", lambda a: (a.name, schema[a.name]))
    condition = translator.condition(take.own[0])
    for more in take.own[1:]:
        condition = condition & translator.condition(more)
    return condition


class SequenceMatcher(PlainMatcher):
    """Matches sequences: at most one attempt per stage and key, so there is nothing to bound."""

    evicted = 0

    def __init__(self, automaton: Automaton, tables: Comparisons, wanted: tuple[s.Attribute, ...]) -> None:
        super().__init__(automaton, tables, wanted)
        self._stages = len(self._sides)
        self._rows = np.full((0, self._stages, self._stages), -1, np.int64)
        self._first = np.zeros((0, self._stages), np.int64)
        self._armed = np.zeros(0, np.int64)
        self._clock = -(2**62)

    @property
    def live(self) -> int:
        """The number of partial matches."""
        return int((self._rows[:, 1:, 0] >= 0).sum())

    @property
    def nbytes(self) -> int:
        """Bytes of all that is kept, room to grow included."""
        return int(self._rows.nbytes + self._first.nbytes + self._armed.nbytes) + self.store.nbytes

    def holding(self) -> Array:
        """Return which keys hold anything: an attempt that is not too old yet, or the memory of a match."""
        waiting = self._rows[:, :, 0] >= 0
        if self.within >= 0:
            waiting &= self._first >= self._clock - self.within
        done = np.zeros(len(self._armed), np.bool_) if self.every else self._armed == 2
        held: Array = waiting.any(axis=1) | done
        return held

    def reserve(self, slots: int) -> None:
        """Make room for this many keys."""
        if slots > len(self._armed):
            more = max(slots, 2 * len(self._armed), 16) - len(self._armed)
            self._rows = np.concatenate([self._rows, np.full((more, self._stages, self._stages), -1, np.int64)])
            self._first = np.concatenate([self._first, np.zeros((more, self._stages), np.int64)])
            self._armed = np.concatenate([self._armed, np.zeros(more, np.int64)])

    def process(self, chunk: Chunk) -> list[Batch]:
        """Return the matches that the records complete, in order."""
        self._tidy()
        self.advance(int(chunk.times[-1]))
        passes = self.passes(chunk)
        base = self.keep(chunk)
        out = np.empty((chunk.length, self._stages), np.int64)
        t = self._tables
        n = cep_sequence.match(  # type: ignore[no-untyped-call]
            base, self.store.values, chunk.times, chunk.slots, passes, t.conditions, t.bounds, self.every, self.within,
            self._rows, self._first, self._armed, out,
        )  # fmt: skip
        return [self.results(out[:n])] if n else []

    def advance(self, time: int) -> list[Batch]:
        """Let time pass, so that attempts grow too old."""
        self._clock = max(self._clock, time)
        return []

    def _tidy(self) -> None:
        if self.store.length > COMPACT_ROWS:
            state = self.save(np.arange(len(self._armed)))
            self.store = self._new_store()
            self._rows[:] = -1
            self.load(state, np.arange(len(self._armed)))

    def save(self, slots: Array) -> dict[str, Any]:
        """Return the attempts of these keys as plain arrays."""
        valid = self._rows[slots]
        waiting = valid[:, :, :1] >= 0
        places = np.arange(self._stages)
        valid = np.where(waiting & (places[None, None, :] < places[None, :, None]), valid, -1)
        records, taken = self.saved_records(valid)
        return {"records": records, "taken": taken, "first": self._first[slots], "armed": self._armed[slots]}

    def load(self, saved: dict[str, Any], slots: Array) -> None:
        """Put saved attempts into these keys."""
        if len(slots):
            self.reserve(int(slots.max()) + 1)
            self._rows[slots] = self.restore_records(saved["records"], saved["taken"])
            self._first[slots] = saved["first"]
            self._armed[slots] = saved["armed"]
