"""The general matcher behind the face of the compiled ones: what they cannot run, one record at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from headwater.cep import syntax as s
from headwater.cep.automaton import Automaton, Wait, label
from headwater.cep.expressions import attributes
from headwater.cep.matchers.compiled import own_mask
from headwater.cep.matchers.interpreter import Match, Record, TokenMatcher
from headwater.data.batch import Batch, concat_batches
from headwater.data.column import Array, Column, column_of
from headwater.operators.chunk import Chunk
from headwater.operators.operator import dead_letters

_ATTEMPT_BYTES, _RECORD_BYTES = 700, 400  #: of CPython's objects and dictionaries, measured


class GeneralMatcher:
    """Gives records to tokens, and makes batches of their matches."""

    def __init__(self, automaton: Automaton, wanted: tuple[s.Attribute, ...], cap: int) -> None:
        a = self._a = automaton
        self._wanted, self._slots = wanted, 0
        self._tokens = TokenMatcher(a, cap)
        self._tests = [(side, own_mask(a, side)) for side in a.sides()]
        needed: dict[int, set[str]] = {i: set() for i in range(len(a.streams))}
        for attribute in wanted:
            needed[a.stage_of(attribute.ref or "").stream].add(attribute.name)
        for name, stream in _compared(a):
            needed[stream].add(name)
        waits = any(isinstance(side, Wait) for side in a.sides())
        self._every_record_counts = a.strict or waits
        self._needed = {stream: sorted(names) for stream, names in needed.items()}
        self._unfit: list[tuple[int, Record, list[int], str]] = []

    @property
    def live(self) -> int:
        """The number of attempts that have taken something."""
        return self._tokens.busy

    @property
    def evicted(self) -> int:
        """How many attempts went because of the cap."""
        return self._tokens.evicted

    @property
    def nbytes(self) -> int:
        """About how many bytes attempts and their records take as Python objects."""
        return self._tokens.count_records() * _RECORD_BYTES + len(self._tokens.tokens) * _ATTEMPT_BYTES

    def holding(self) -> Array:
        """Return which keys hold anything."""
        held = np.zeros(self._slots, np.bool_)
        held[self._tokens.holding()] = True
        return held

    def reserve(self, slots: int) -> None:
        """Learn how many keys there are; tokens find their room."""
        self._slots = max(self._slots, slots)

    def process(self, chunk: Chunk) -> list[Batch]:
        """Return the matches that the records complete, in order."""
        masks = [(id(side), side.stream, chunk.mask(side.stream, test).tolist()) for side, test in self._tests]
        streams = np.zeros(chunk.length, np.int64)
        records: list[Any] = [None] * chunk.length
        for part in chunk.parts:
            places = np.arange(chunk.length) if part.places is None else part.places
            streams[places] = part.stream
            names = self._needed[part.stream]
            values = [part.batch.columns[name].tolist() for name in names]
            rows = zip(*values, strict=True) if names else [()] * part.batch.length
            for place, row in zip(places.tolist(), rows, strict=True):
                records[place] = dict(zip(names, row, strict=True))
        found: list[Match] = []
        times, slots, stamps = chunk.times.tolist(), chunk.slots.tolist(), chunk.stamps.tolist()
        for i, stream in enumerate(streams.tolist()):
            passes = {side: mask[i] for side, of, mask in masks if of == stream}
            if self._every_record_counts or any(passes.values()):
                found += self._tokens.offer(slots[i], stream, passes, records[i], times[i], tuple(stamps[i]))
                if self._tokens.faults:
                    self._unfit.append((stream, records[i], stamps[i], self._tokens.faults[0]))
                    self._tokens.faults.clear()
        found += self._tokens.advance(times[-1]) if times else []
        return self._results(found)

    def advance(self, time: int) -> list[Batch]:
        """Let time pass."""
        return self._results(self._tokens.advance(time))

    def _results(self, matches: list[Match]) -> list[Batch]:
        if not matches:
            return []
        columns = {}
        for attribute in self._wanted:
            kind = self._a.schemas[self._a.stage_of(attribute.ref or "").stream][attribute.name]
            columns[label(attribute)] = column_of([_read(match, attribute) for match in matches], kind)
        stamps = np.array([match.stamp for match in matches], np.int64).reshape(-1, 2)
        return [Batch(columns, len(matches), stamps)]

    def unfit(self, step: str) -> Batch | None:
        """Return, once, dead letters for records that could not be compared with earlier ones: those did not take them."""
        letters = [
            dead_letters(step, [why], Batch(self._columns(stream, record), 1, np.array([stamps], np.int64)))
            for stream, record, stamps, why in self._unfit
        ]
        self._unfit.clear()
        return concat_batches(letters) if letters else None

    def _columns(self, stream: int, record: Record) -> dict[str, Column]:
        schema = self._a.schemas[stream]
        return {name: column_of([value], schema[name]) for name, value in record.items()}

    def save(self, slots: Array) -> dict[str, Any]:
        """Return the attempts of these keys; their key counts along `slots`."""
        saved = self._tokens.save(slots.tolist())
        place = {slot: i for i, slot in enumerate(slots.tolist())}
        for row in saved["tokens"]:
            row[1] = place[row[1]]
        return {**saved, "done": [place[slot] for slot in saved["done"]]}

    def load(self, saved: dict[str, Any], slots: Array) -> None:
        """Add saved attempts; `slots` are the keys that theirs have here."""
        self._tokens.load(saved, dict(enumerate(slots.tolist())))


def _compared(automaton: Automaton) -> set[tuple[str, int]]:
    """Return the columns that conditions across events read, with their streams."""
    found: set[tuple[str, int]] = set()
    for side in automaton.sides():
        for condition in side.cross:
            for a in attributes(condition):
                found.add((a.name, side.stream if a.ref is None else automaton.stage_of(a.ref).stream))
    return found


def _read(match: Match, attribute: s.Attribute) -> Any:
    records = match.taken.get(attribute.ref or "", [])
    index = attribute.index or s.Index(True)
    if index.offset >= len(records):
        return None
    return records[-1 - index.offset if index.back else index.offset].get(attribute.name)
