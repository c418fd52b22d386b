"""The step that matches a chain: records in, one result per match out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headwater.cep import syntax as s
from headwater.cep.arrivals import Arrivals
from headwater.cep.automaton import Automaton, Wait, sides
from headwater.cep.chunk import Chunk
from headwater.cep.compared import comparisons
from headwater.cep.indexed import PatternMatcher
from headwater.cep.plain import Matches, SequenceMatcher, own_mask
from headwater.cep.projection import Projection
from headwater.cep.tokens import FOREVER, Match, TokenMatcher
from headwater.flow.batch import END, NO_WATERMARK, Batch, concat_batches
from headwater.flow.column import Array, Column, column_of
from headwater.flow.schema import Type
from headwater.operators.count_window import chosen_slots, keys_batch
from headwater.operators.operator import Operator, Output, Select
from headwater.operators.snapshot import packed, unpacked

DEFAULT_CAP = 100_000  #: partial matches that a query keeps unless told otherwise

_KIND = "match"


def label(attribute: s.Attribute) -> str:
    """Return the name of an event's column in the result of a match, before `select` renames it."""
    index = attribute.index
    shown = "" if index is None else f"[{'last-' if index.back else ''}{index.offset}]"
    return f"{attribute.ref}{shown}.{attribute.name}"


@dataclass(frozen=True)
class MatchPlan:
    """Everything a match step needs to know."""

    automaton: Automaton
    wanted: tuple[s.Attribute, ...]  #: what the result reads of the events
    projection: Projection
    times: tuple[str | None, ...]
    keys: tuple[tuple[str, ...], ...]
    step: str
    cap: int = DEFAULT_CAP
    general: bool = False  #: run even a plain chain by the general matcher

    def __call__(self) -> MatchOperator:
        """Make a new operator."""
        return MatchOperator(self)

    @property
    def __name__(self) -> str:
        """What drawings call the step."""
        kind = "sequence" if self.automaton.strict else "pattern"
        return f"{kind} of {len(self.automaton.stages)}"


class MatchOperator(Operator):
    """Runs a chain over its streams; the shape of the chain decides which matcher does it."""

    stateless = False

    def __init__(self, plan: MatchPlan) -> None:
        self._plan = plan
        a = plan.automaton
        self._arrivals = Arrivals(a.schemas, plan.times, plan.keys, plan.step)
        self._select = plan.projection.runner()
        tables = None if plan.general else comparisons(a)
        self._matcher: _General | SequenceMatcher | PatternMatcher
        if tables is None:
            self._matcher = _General(plan)
        else:
            wanted: dict[tuple[int, str], Type] = {}
            for attribute in plan.wanted:
                stream = a.stage_of(attribute.ref or "").stream
                wanted[(stream, attribute.name)] = a.schemas[stream][attribute.name]
            if a.strict:
                self._matcher = SequenceMatcher(a, tables, wanted)
            else:
                self._matcher = PatternMatcher(a, tables, wanted, plan.cap)

    @property
    def partial_matches(self) -> int:
        """How many partial matches there are now."""
        return self._matcher.live

    @property
    def evicted(self) -> int:
        """How many partial matches the cap has cost so far."""
        return self._matcher.evicted

    @property
    def nbytes(self) -> int:
        """Bytes that the partial matches take."""
        return int(getattr(self._matcher, "nbytes", 0))

    def process(self, batch: Batch, port: int) -> Output:
        """Return the results of the matches that these records complete."""
        chunk, dead = self._arrivals.add(batch, port)
        out = self._run(chunk) if chunk is not None else None
        if not dead:
            return out
        return [*dead, (0, out)] if out is not None else dead

    def advance(self, watermark: int) -> Output:
        """Take records that waited for their turn, and let time pass."""
        chunk = self._arrivals.release(watermark)
        results = [out for out in (self._run(chunk) if chunk is not None else None,) if out is not None]
        if watermark > NO_WATERMARK:
            late = self._results(self._matcher.advance(min(watermark, FOREVER) if watermark < END else FOREVER))
            results += [late] if late is not None else []
        return concat_batches(results) if results else None

    def _run(self, chunk: Chunk) -> Batch | None:
        self._matcher.reserve(len(self._arrivals.keys))
        return self._results(self._matcher.process(chunk))

    def _results(self, found: list[Any]) -> Batch | None:
        if not found:
            return None
        batches = (
            [self._of_rows(matches) for matches in found] if isinstance(found[0], Matches) else [self._of_tokens(found)]
        )
        return self._select.run(concat_batches(batches))

    def _of_rows(self, matches: Matches) -> Batch:
        places = {take.ref: (i, take.stream) for i, take in enumerate(self._plan.automaton.takes())}
        columns: dict[str, Column] = {}
        for attribute in self._plan.wanted:
            place, stream = places[attribute.ref or ""]
            columns[label(attribute)] = matches.store.column(f"{stream}.{attribute.name}", matches.rows[:, place])
        return Batch(columns, len(matches.rows), matches.store.stamps(matches.rows[:, -1]))

    def _of_tokens(self, matches: list[Match]) -> Batch:
        columns: dict[str, Column] = {}
        for attribute in self._plan.wanted:
            kind = self._plan.projection.given[label(attribute)]
            columns[label(attribute)] = column_of([_read(match, attribute) for match in matches], kind)
        return Batch(columns, len(matches), np.array([match.stamp for match in matches], np.int64).reshape(-1, 2))

    def snapshot(self, select: Select | None = None) -> bytes:
        """Save the partial matches of the chosen keys."""
        slots = chosen_slots(self._arrivals.keys, select)
        state = {
            "count": len(slots),
            "keys": self._arrivals.keys.columns(slots),
            "arrivals": self._arrivals.save(),
            "matcher": self._matcher.save(slots),
            "evicted": self.evicted,
        }
        return packed(_KIND, state)

    def restore(self, data: bytes) -> None:
        """Take over partial matches."""
        saved = unpacked(_KIND, data)
        self._arrivals.load(saved["arrivals"])
        if saved["count"]:
            slots = self._arrivals.keys.slots_of(keys_batch(saved["keys"], saved["count"]))
            self._matcher.reserve(len(self._arrivals.keys))
            self._matcher.load(saved["matcher"], slots)

    def forget(self, select: Select) -> None:
        """Drop the partial matches of the chosen keys."""
        self._matcher.forget(chosen_slots(self._arrivals.keys, select))


def _read(match: Match, attribute: s.Attribute) -> Any:
    records = match.taken.get(attribute.ref or "", [])
    index = attribute.index or s.Index(True)
    if index.offset >= len(records):
        return None
    return records[-1 - index.offset if index.back else index.offset].get(attribute.name)


class _General:
    """The general matcher behind the same face as the compiled ones."""

    def __init__(self, plan: MatchPlan) -> None:
        a = self._a = plan.automaton
        self._tokens = TokenMatcher(a, plan.cap)
        self._tests = [(side, own_mask(a, side)) for stage in a.stages for side in sides(stage)]
        needed: dict[int, set[str]] = {i: set() for i in range(len(a.streams))}
        for attribute in plan.wanted:
            needed[a.stage_of(attribute.ref or "").stream].add(attribute.name)
        for name, stream in _compared(a):
            needed[stream].add(name)
        waits = any(isinstance(side, Wait) for stage in a.stages for side in sides(stage))
        self._every_record_counts = a.strict or waits
        self._needed = {stream: sorted(names) for stream, names in needed.items()}

    @property
    def live(self) -> int:
        return self._tokens.busy

    @property
    def evicted(self) -> int:
        return self._tokens.evicted

    def reserve(self, slots: int) -> None:
        """Nothing to do: tokens find their room."""

    def process(self, chunk: Chunk) -> list[Match]:
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
        found += self._tokens.advance(times[-1]) if times else []
        return found

    def advance(self, time: int) -> list[Match]:
        return self._tokens.advance(time)

    def save(self, slots: Array) -> dict[str, Any]:
        saved = self._tokens.save(slots.tolist())
        place = {slot: i for i, slot in enumerate(slots.tolist())}
        for row in saved["tokens"]:
            row[1] = place[row[1]]
        return {**saved, "done": [place[slot] for slot in saved["done"]]}

    def load(self, saved: dict[str, Any], slots: Array) -> None:
        self._tokens.load(saved, dict(enumerate(slots.tolist())))

    def forget(self, slots: Array) -> None:
        self._tokens.forget(slots.tolist())


def _compared(automaton: Automaton) -> set[tuple[str, int]]:
    """Return the columns that conditions across events read, with their streams."""
    from headwater.cep.expressions import attributes

    found: set[tuple[str, int]] = set()
    for stage in automaton.stages:
        for side in sides(stage):
            for condition in side.cross:
                for a in attributes(condition):
                    found.add((a.name, side.stream if a.ref is None else automaton.stage_of(a.ref).stream))
    return found
