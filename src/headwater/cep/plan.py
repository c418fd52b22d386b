"""From queries to steps of a flow: each query reads streams by name and adds one that later queries can read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from headwater.cep import syntax as s
from headwater.cep.automaton import ChainReader, column_type, events_of, indexed, label, unknown_stream
from headwater.cep.complaint import complaint
from headwater.cep.expressions import Translator
from headwater.cep.fluent import Statement
from headwater.cep.fluent import text as written
from headwater.cep.match import DEFAULT_CAP, MatchPlan
from headwater.cep.parse import parse
from headwater.cep.selecting import Selection, Selector
from headwater.cep.sliding import SlidingPlan
from headwater.cep.tumbling import TumblingPlan
from headwater.cep.windowing import Extent, extent
from headwater.errors import listed, suggestion
from headwater.flow.expr import Column, Expr
from headwater.flow.flow import Flow
from headwater.flow.schema import Schema, Type
from headwater.flow.steps import Apply, EventTime, Grouping, Input, WindowAggregate
from headwater.flow.stream import Stream

TYPES: dict[str, Type] = {
    "int": "int", "long": "int", "float": "float", "double": "float", "bool": "bool", "string": "text", "object": "any",
    "time": "time",
}  # fmt: skip


def add_query(
    flow: Flow,
    name: str,
    query: str | s.App | Statement,
    *,
    cap: int = DEFAULT_CAP,
    streams: Mapping[str, Stream] | None = None,
) -> Stream:
    """Add the steps of a query to a flow and return the stream of its last statement.

    A query reads the flow's steps by their names; `streams` gives others names of their own. `cap` bounds the partial
    matches of each pattern, over all keys; the one that began first goes first.
    """
    text = query if isinstance(query, str) else written(query)
    known = {
        step.name: Stream(flow, step.name, time=time_of(flow, step.name))
        for step in flow.steps.values()
        if step.outputs
    }
    return Planner(flow, name, text, {**known, **(streams or {})}, cap).plan(parse(text))


def time_of(flow: Flow, step: str) -> str | None:
    """Return the column of event time that a step's records have, if any."""
    at = flow.steps[step]
    out = next(iter(at.outputs.values()), Schema(()))
    if isinstance(at.kind, EventTime):
        return at.kind.column
    if isinstance(at.kind, WindowAggregate):
        return "end" if at.kind.time else None
    before = time_of(flow, at.inputs[0].step) if at.inputs else None
    return before if before is not None and out.get(before) == "time" else None


class Planner:
    """Adds the statements of one text to a flow, one after the other."""

    def __init__(self, flow: Flow, name: str, text: str, streams: dict[str, Stream], cap: int) -> None:
        self.flow, self._name, self.text, self._cap = flow, name, text, cap
        self._streams = streams
        self._keys: dict[str, tuple[str, ...]] = {}
        self._partition: tuple[str, ...] = ()

    def plan(self, app: s.App) -> Stream:
        """Add all queries and return the stream of the last."""
        queries = [q for st in app.statements for q in (st.queries if isinstance(st, s.Partition) else (st,))]
        wanted = [q for q in queries if isinstance(q, s.Query)]
        if not wanted:
            raise complaint(self.text, (0, 1), "there is no query here; one begins with 'from'")
        last = None
        for statement in app.statements:
            match statement:
                case s.Define():
                    self._check_definition(statement)
                case s.Query():
                    last = self._add(statement, is_last=statement is wanted[-1])
                case s.Partition(keys, inner):
                    self._enter_partition(statement, keys)
                    for query in inner:
                        last = self._add(query, is_last=query is wanted[-1])
                    self._keys, self._partition = {}, ()
        assert last is not None
        return last

    def _check_definition(self, definition: s.Define) -> None:
        for column, kind in definition.fields:
            if kind not in TYPES:
                near = suggestion(kind, TYPES) or f"; types are {', '.join(TYPES)}"
                raise complaint(self.text, definition.at, f"column {column!r}: there is no type {kind!r}{near}")
        if definition.stream not in self._streams:
            raise unknown_stream(self.text, definition.at, definition.stream, self._schemas())
        schema = self._streams[definition.stream].schema
        for column, kind in definition.fields:
            if column not in schema:
                raise complaint(
                    self.text,
                    definition.at,
                    f"column {column!r} is not in the flow's stream {definition.stream!r}; it has {listed(schema)}",
                )
            if (
                TYPES[kind] != schema[column]
                and TYPES[kind] != "any"
                and {TYPES[kind], schema[column]} != {"int", "time"}
            ):
                raise complaint(
                    self.text,
                    definition.at,
                    f"column {column!r} is defined as {kind}; in the flow it is {schema[column]}",
                )

    def _schemas(self) -> dict[str, Schema]:
        return {name: stream.schema for name, stream in self._streams.items()}

    def _enter_partition(self, partition: s.Partition, keys: tuple[tuple[str, str], ...]) -> None:
        for column, stream in keys:
            if stream not in self._streams:
                raise unknown_stream(self.text, partition.at, stream, self._schemas())
            column_type(self.text, s.Attribute(column, at=partition.at), stream, self._streams[stream].schema)
            self._keys[stream] = (*self._keys.get(stream, ()), column)
        self._partition = tuple(column for column, stream in keys if stream == keys[0][1])

    def keys_of(self, name: str, at: s.Place) -> tuple[str, ...]:
        """Return the columns by which the partition, if any, tells a stream's records apart."""
        if not self._keys:
            return ()
        found = self._keys.get(name)
        if found is None and all(key in self._streams[name].schema for key in self._partition):
            found = self._partition  # a stream that an earlier query of the partition made keeps its keys
        if found is None or len(found) != len(self._partition):
            raise complaint(
                self.text, at, f"the partition has no key for stream {name!r}; add 'column of {name}' to it"
            )
        return found

    def _add(self, query: s.Query, *, is_last: bool) -> Stream:
        name = self._name if is_last else f"{self._name}.{query.into or len(self.flow.steps)}"
        if not is_last and query.into is None:
            raise complaint(self.text, query.at, "nothing reads this query; add 'insert into' and a name")
        match query.source:
            case s.Source():
                made = self._add_source(name, query, query.source)
            case s.Chain():
                made = self._add_chain(name, query, query.source)
            case s.Join():
                from headwater.cep.joining import add_join

                made = add_join(self, name, query, query.source)
        if query.into is not None:
            self._insert(query, made)
        return made

    def _insert(self, query: s.Query, made: Stream) -> None:
        into = query.into
        assert into is not None
        earlier = self._streams.get(into)
        if earlier is None or (earlier.step == into and into == self._name):
            self._streams[into] = made
        elif earlier.schema != made.schema:
            raise complaint(
                self.text,
                query.at,
                f"stream {into!r} has the columns ({earlier.schema}); this query gives ({made.schema})",
            )
        elif not made.step.startswith(f"{self._name}.") or earlier.step == into:
            raise complaint(self.text, query.at, f"the flow has a stream {into!r} already; insert into another name")
        else:
            both = earlier.union(f"{made.step} and before", made)
            self._streams[into] = both

    # -- a single stream ----------------------------------------------------------------------------------------------

    def _add_source(self, name: str, query: s.Query, source: s.Source) -> Stream:
        stream = self.filtered(name, source)
        resolve = self.resolve_in({None: (source.stream, stream.schema), source.stream: (source.stream, stream.schema)})
        window = extent(self.text, source.window, source.stream, stream.schema) if source.window else None
        batch = window is not None and window.batch
        selection = Selector(self.text, query, resolve, last=batch).read(self._everything(query, stream, batch))
        groups = tuple(resolve(attribute)[0] for attribute in query.group_by)
        if batch and not self._truly_aggregates(selection):
            assert source.window is not None
            raise complaint(
                self.text,
                source.window.at,
                f"a window {source.window.kind!r} needs an aggregate in 'select', such as count()",
            )
        if not selection.aggregates:
            if groups:
                raise complaint(
                    self.text, query.group_by[0].at, "'group by' needs an aggregate in 'select', such as count()"
                )
            return self._selected(name, stream, selection)
        return self._windowed(name, stream, source, window or Extent("length", 0), selection, groups)

    def _everything(self, query: s.Query, stream: Stream, batch: bool) -> list[tuple[str, Expr, Type]]:
        if batch and not query.select:
            raise complaint(
                self.text, query.at, "a batch of records has one result; select aggregates, such as count() as n"
            )
        return [(column, Column(column), kind) for column, kind in stream.schema.items()]

    def _truly_aggregates(self, selection: Selection) -> bool:
        return any(aggregate.function != "last" for aggregate, _ in selection.aggregates.values())

    def filtered(self, name: str, source: s.Source) -> Stream:
        """Return a source's stream, with a step before it for its conditions."""
        if source.stream not in self._streams:
            raise unknown_stream(self.text, source.at, source.stream, self._schemas())
        stream = self._streams[source.stream]
        if not source.filters:
            return stream
        names = {None: (source.stream, stream.schema), source.stream: (source.stream, stream.schema)}
        if source.alias:
            names[source.alias] = (source.stream, stream.schema)
        translator = Translator(self.text, self.resolve_in(names))
        condition = translator.condition(source.filters[0])
        for more in source.filters[1:]:
            condition = condition & translator.condition(more)
        return stream.filter(self._free(f"{name} where"), condition)

    def _free(self, name: str) -> str:
        return name if name not in self.flow.steps else f"{name} {len(self.flow.steps)}"

    def _selected(self, name: str, stream: Stream, selection: Selection) -> Stream:
        columns: dict[str, Any] = {column: expr for column, expr, _ in selection.columns}
        first = name if selection.having is None else self._free(f"{name} all")
        made = stream.select(first, **columns)
        if selection.having is not None:
            made = made.filter(name, selection.having)
        return Stream(self.flow, made.step, time=self._renamed_time(selection, stream.time))

    def _renamed_time(self, selection: Selection, time: str | None) -> str | None:
        if time is None:
            return None
        hidden = {str(Column(time)), str(Column(f"last({time})"))}
        return next((column for column, expr, _ in selection.columns if str(expr) in hidden), None)

    def _windowed(
        self, name: str, stream: Stream, source: s.Source, window: Extent, selection: Selection, groups: tuple[str, ...]
    ) -> Stream:
        keys = self.keys_of(source.stream, source.at)
        time = window.time or stream.time
        lag = 0 if time is not None and time == stream.time else None
        common: dict[str, Any] = {
            "given": stream.schema, "time": time, "groups": groups, "aggregates": selection.of_aggregates(), "step": name,
            "lag_us": lag,
        }  # fmt: skip
        if window.batch:
            own = keys if window.key is None or window.key in keys else (*keys, window.key)
            # of a batch only its keys and aggregates are left
            left = stream.schema.only((*own, *(g for g in groups if g not in own)))
            common["groups"] = tuple(g for g in groups if g not in own)
            common["aggregates"] = tuple((n, _as_custom(a)) for n, a in common["aggregates"])
            plan: Callable[[], Any] = TumblingPlan(
                kind=window.kind, size=window.size, keys=own, projection=selection.projection(left), **common
            )
        else:
            limit, span = (window.size, 0) if window.kind == "length" else (0, window.size)
            plan = SlidingPlan(
                limit=limit, span_us=span, keys=keys, projection=selection.projection(stream.schema), **common
            )
        self.add_step(name, plan, [(stream, keys)], selection.out)
        return Stream(self.flow, name, time=self._renamed_time(selection, stream.time))

    def add_step(
        self, name: str, plan: Callable[[], Any], given: list[tuple[Stream, tuple[str, ...]]], out: Schema
    ) -> None:
        """Add a step that one instance runs, or one per part of the keys."""
        grouping: Grouping = "key" if self._keys else "one"
        inputs = tuple(Input(st.step, st.port, st.schema, grouping, keys) for st, keys in given)
        self.flow.add(name, Apply(plan, given[0][1]), inputs=inputs, outputs={"out": out})

    def resolve_in(self, names: Mapping[str | None, tuple[str, Schema]]) -> Callable[[s.Attribute], tuple[str, Type]]:
        """Return how attributes are found when each name stands for one stream."""

        def resolve(attribute: s.Attribute) -> tuple[str, Type]:
            if attribute.index is not None:
                raise complaint(
                    self.text,
                    attribute.at,
                    "an index belongs to an event of a pattern that is counted, such as e1[0].x",
                )
            if attribute.ref not in names:
                shown = [name for name in names if name]
                near = suggestion(attribute.ref or "", shown) or f"; names are {listed(shown)}"
                raise complaint(self.text, attribute.at, f"there is no stream {attribute.ref!r} in this query{near}")
            stream, schema = names[attribute.ref]
            return attribute.name, column_type(self.text, attribute, stream, schema)

        return resolve

    # -- chains -------------------------------------------------------------------------------------------------------

    def _add_chain(self, name: str, query: s.Query, chain: s.Chain) -> Stream:
        automaton = ChainReader(self.text, chain, self._schemas()).automaton()
        refs = {t.ref: (automaton.streams[t.stream], t.counted) for t in automaton.takes() if not t.ref.startswith("#")}
        wanted: dict[str, tuple[s.Attribute, Type]] = {}

        def resolve(attribute: s.Attribute) -> tuple[str, Type]:
            full = self._of_event(attribute, refs)
            kind = column_type(self.text, full, refs[full.ref or ""][0], self._streams[refs[full.ref or ""][0]].schema)
            wanted[label(full)] = (full, kind)
            return label(full), kind

        if query.group_by:
            raise complaint(
                self.text, query.group_by[0].at, "'group by' needs a window; let a second query read this one's result"
            )
        selector = Selector(self.text, query, resolve)
        everything = self._all_events(refs, resolve) if not query.select else []
        selection = selector.read(everything)
        if selection.aggregates:
            found = next(item for item in query.select if isinstance(item.value, s.Function))
            raise complaint(
                self.text, found.at, "an aggregate needs a window; let a second query read this one's result"
            )
        given = Schema(tuple((column, kind) for column, (_, kind) in wanted.items()))
        streams = [self._streams[stream] for stream in automaton.streams]
        places = {event.stream: event.at for event in events_of(chain.links)}
        keys = tuple(self.keys_of(stream, places[stream]) for stream in automaton.streams)
        plan = MatchPlan(
            automaton,
            tuple(attribute for attribute, _ in wanted.values()),
            selection.projection(given),
            tuple(stream.time for stream in streams),
            keys,
            name,
            self._cap,
        )
        self.add_step(name, plan, list(zip(streams, keys, strict=True)), selection.out)
        return Stream(self.flow, name, time=self._time_of_match(plan, selection))

    def _of_event(self, attribute: s.Attribute, refs: Mapping[str, tuple[str, bool]]) -> s.Attribute:
        if attribute.ref is None:
            holding = [ref for ref, (stream, _) in refs.items() if attribute.name in self._streams[stream].schema]
            if len(holding) != 1:
                fix = (
                    f"did you mean {' or '.join(f'{ref}.{attribute.name}' for ref in holding)}?"
                    if holding
                    else f"events are {listed(refs)}"
                )
                raise complaint(self.text, attribute.at, f"of which event is {attribute.name!r}; {fix}")
            attribute = replace(attribute, ref=holding[0])
        if attribute.ref not in refs:
            near = suggestion(attribute.ref or "", refs) or f"; events are {listed(refs)}"
            raise complaint(self.text, attribute.at, f"there is no event {attribute.ref!r}{near}")
        assert attribute.ref is not None
        if attribute.index is not None and not refs[attribute.ref][1]:
            raise complaint(
                self.text,
                attribute.at,
                f"{attribute.ref!r} takes one record; leave the index out, or count it, such as <1:5>",
            )
        return indexed(attribute, refs)

    def _all_events(
        self, refs: Mapping[str, tuple[str, bool]], resolve: Callable[[s.Attribute], tuple[str, Type]]
    ) -> list[tuple[str, Expr, Type]]:
        found: list[tuple[str, Expr, Type]] = []
        for ref, (stream, _) in refs.items():
            for column in self._streams[stream].schema:
                at, kind = resolve(s.Attribute(column, ref))
                found.append((f"{ref}_{column}", Column(at), kind))
        return found

    def _time_of_match(self, plan: MatchPlan, selection: Selection) -> str | None:
        """Return the result's column that holds the time of the last event, if it was selected."""
        takes = plan.automaton.takes()
        time = plan.times[takes[-1].stream] if takes else None
        if time is None or not all(plan.times):
            return None
        hidden = str(Column(f"{takes[-1].ref}.{time}"))
        return next((column for column, expr, _ in selection.columns if str(expr) == hidden), None)


def _as_custom(aggregate: Any) -> Any:
    """Return an aggregate as batch windows run it: the number of different values is a function of them all."""
    return replace(aggregate, function="custom") if aggregate.function == "distinct" else aggregate
