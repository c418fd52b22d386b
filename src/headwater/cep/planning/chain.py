"""From a pattern or a sequence in a query to a step: which events its result reads, and what time that has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.cep import syntax as s
from headwater.cep.automaton import (
    Absence,
    Accept,
    Automaton,
    ChainReader,
    Pair,
    column_type,
    events_of,
    label,
    owner,
    with_index,
)
from headwater.cep.diagnostics import error_at
from headwater.cep.match import MatchPlan
from headwater.cep.planning.selection import Selection, Selector, refuse_groups
from headwater.data.schema import Schema, Type
from headwater.flow.expr import Column, Expr
from headwater.flow.stream import Stream

if TYPE_CHECKING:
    from headwater.cep.plan import Planner


def add_chain(planner: Planner, name: str, query: s.Query, chain: s.Chain, cap: int) -> Stream:
    """Add the step of a chain and return its stream."""
    return _Chaining(planner, query, chain).add(name, cap)


class _Chaining:
    def __init__(self, planner: Planner, query: s.Query, chain: s.Chain) -> None:
        self._planner, self._text, self._query = planner, planner.text, query
        self._automaton = ChainReader(planner.text, chain, planner.schemas()).automaton()
        self._at = {event.stream: event.at for event in events_of(chain.links)}
        names, takes = self._automaton.streams, self._automaton.accepts()
        self._refs = {t.ref: (names[t.stream], t.counted) for t in takes if not t.ref.startswith("#")}
        self._reads: dict[str, tuple[s.Attribute, Type]] = {}

    def add(self, name: str, cap: int) -> Stream:
        refuse_groups(self._text, self._query)
        selection = Selector(self._text, self._query, self._resolve).read(
            self._all_events() if not self._query.select else []
        )
        if selection.aggregates:
            aggregate = next(item for item in self._query.select if isinstance(item.value, s.Function))
            raise error_at(
                self._text, aggregate.at, "an aggregate needs a window; let a second query read this one's result"
            )
        schema = Schema(tuple((column, kind) for column, (_, kind) in self._reads.items()))
        names = self._automaton.streams
        streams = [self._planner.streams[stream] for stream in names]
        keys = self._planner.keys_of({stream: self._at[stream] for stream in names})
        times = tuple(stream.time for stream in streams)
        time, delay_us = self._time(times, selection)
        plan = MatchPlan(
            self._automaton,
            tuple(attribute for attribute, _ in self._reads.values()),
            selection.projection(schema),
            times,
            keys,
            name,
            cap,
            time,
            delay_us,
        )
        return self._planner.add_step(name, plan, list(zip(streams, keys, strict=True)), selection.out)

    def _resolve(self, attribute: s.Attribute) -> tuple[str, Type]:
        full = self._of_event(attribute)
        stream = self._refs[full.ref or ""][0]
        kind = column_type(self._text, full, stream, self._planner.streams[stream].schema)
        self._reads[label(full)] = (full, kind)
        return label(full), kind

    def _of_event(self, attribute: s.Attribute) -> s.Attribute:
        refs, streams = self._refs, self._planner.streams
        schemas = {ref: streams[stream].schema for ref, (stream, _) in refs.items()}
        ref = owner(self._text, attribute, schemas, "event")
        if attribute.index is not None and not refs[ref][1]:
            raise error_at(
                self._text,
                attribute.at,
                f"{ref!r} takes one record; leave the index out, or count it, such as <1:5>",
            )
        return with_index(replace(attribute, ref=ref), refs)

    def _all_events(self) -> list[tuple[str, Expr, Type]]:
        columns: list[tuple[str, Expr, Type]] = []
        for ref, (stream, _) in self._refs.items():
            for column in self._planner.streams[stream].schema:
                at, kind = self._resolve(s.Attribute(column, ref))
                columns.append((f"{ref}_{column}", Column(at), kind))
        return columns

    def _time(self, times: tuple[str | None, ...], selection: Selection) -> tuple[str | None, int]:
        """Return the result's column with the last event's time, if it was selected, and how old that may be by then."""
        last, delay_us = _last(self._automaton)
        if last is None or not all(times):
            return None, 0
        hidden = str(Column(f"{last.ref}.{times[last.stream]}"))
        return next((column for column, expr, _ in selection.columns if str(expr) == hidden), None), delay_us


def _last(automaton: Automaton) -> tuple[Accept | None, int]:
    """Return the event that completes a chain, or comes a known time before that happens."""
    last = automaton.stages[-1]
    if isinstance(last, Absence) and len(automaton.stages) > 1 and last.wait_us is not None:
        before = automaton.stages[-2]
        return (before, last.wait_us) if isinstance(before, Accept) else (None, 0)
    if isinstance(last, Pair):
        of_both = [side for side in last.sides if isinstance(side, Accept)]
        within = automaton.within_us
        return (of_both[-1], within) if within is not None and last.op == "and" else (None, 0)
    return (last, 0) if isinstance(last, Accept) else (None, 0)
