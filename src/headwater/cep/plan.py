"""From queries to steps of a flow: each query reads streams by name and adds one that later queries can read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headwater.cep import syntax as s
from headwater.cep.automaton import column_type, unknown_stream
from headwater.cep.diagnostics import error_at
from headwater.cep.expressions import Translator
from headwater.cep.fluent import Statement
from headwater.cep.fluent import text as text_of
from headwater.cep.match import DEFAULT_CAP
from headwater.cep.parse import TOO_DEEP, parse
from headwater.cep.planning.order import Node, in_order, nodes
from headwater.cep.planning.selection import Selection, Selector
from headwater.cep.planning.window import Extent, extent
from headwater.data.schema import Schema, Type
from headwater.errors import FlowError, QueryError, listed, suggestion
from headwater.flow.expr import Column, Expr
from headwater.flow.flow import Flow
from headwater.flow.steps import Apply, EventTime, Grouping, Input, WindowAggregate
from headwater.flow.stream import Stream
from headwater.operators.batch_window import BatchWindowPlan
from headwater.operators.merge import MergePlan
from headwater.operators.sliding_window import SlidingWindowPlan

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
    if cap < 1:
        raise FlowError(f"query {name!r}: cap is how many partial matches are kept at most, 1 or more; got {cap}")
    text = query if isinstance(query, str) else text_of(query)
    by_name = {
        step.name: Stream(flow, step.name, time=time_of(flow, step.name))
        for step in flow.steps.values()
        if step.outputs
    }
    try:
        return Planner(flow, name, text, {**by_name, **(streams or {})}, cap).plan(parse(text))
    except RecursionError:
        raise QueryError(TOO_DEEP) from None


def time_of(flow: Flow, step: str) -> str | None:
    """Return the column of event time that a step's records have, if any."""
    at = flow.steps[step]
    out = next(iter(at.outputs.values()), Schema(()))
    if isinstance(at.kind, EventTime):
        return at.kind.column
    if isinstance(at.kind, WindowAggregate):
        return "end" if at.kind.time else None
    if isinstance(at.kind, Apply) and hasattr(at.kind.make, "result_time"):
        return at.kind.make.result_time  # type: ignore[no-any-return]
    before = time_of(flow, at.inputs[0].step) if at.inputs else None
    return before if before is not None and out.get(before) == "time" else None


class Planner:
    """Adds the queries of one text to a flow, each after those whose results it reads."""

    def __init__(self, flow: Flow, name: str, text: str, streams: dict[str, Stream], cap: int) -> None:
        self.flow, self._name, self.text, self._cap = flow, name, text, cap
        self.streams = streams
        self._inputs = set(streams)  #: the flow's own
        self._parts: dict[str, list[Stream]] = {}  #: what each query has inserted into a stream so far
        self._keys: dict[str, tuple[str, ...]] = {}
        self._partition: tuple[str, ...] = ()

    def plan(self, app: s.App) -> Stream:
        """Add all queries and return the stream of the last."""
        queries = nodes(app)
        if not queries:
            raise error_at(self.text, (0, 1), "there is no query here; one begins with 'from'")
        for statement in app.statements:
            if isinstance(statement, s.Define):
                self._check_definition(statement)
        outputs = {node: self._add_node(node, queries) for node in in_order(self.text, queries)}
        return outputs[queries[-1]] if queries[-1].into is None else self.streams[queries[-1].into]

    def _add_node(self, node: Node, queries: list[Node]) -> Stream:
        if node.partition is not None:
            self._enter_partition(node)
        output = self._add(node, queries)
        if node.into is not None:
            self._insert(node, output, queries)
        self._keys, self._partition = {}, ()
        for inner in [name for name in self.streams if name.startswith("#") and " of " not in name]:
            del self.streams[inner]
        return output

    def _check_definition(self, definition: s.Define) -> None:
        for column, kind in definition.fields:
            if kind not in TYPES:
                near = suggestion(kind, TYPES) or f"; types are {', '.join(TYPES)}"
                raise error_at(self.text, definition.at, f"column {column!r}: there is no type {kind!r}{near}")
        if definition.stream not in self.streams:
            raise unknown_stream(self.text, definition.at, definition.stream, self.schemas())
        schema = self.streams[definition.stream].schema
        for column, kind in definition.fields:
            if column not in schema:
                raise error_at(
                    self.text,
                    definition.at,
                    f"column {column!r} is not in the flow's stream {definition.stream!r}; it has {listed(schema)}",
                )
            if (
                TYPES[kind] != schema[column]
                and TYPES[kind] != "any"
                and {TYPES[kind], schema[column]} != {"int", "time"}
            ):
                raise error_at(
                    self.text,
                    definition.at,
                    f"column {column!r} is defined as {kind}; in the flow it is {schema[column]}",
                )

    def schemas(self) -> dict[str, Schema]:
        """Return the columns of all streams that can be read so far."""
        return {name: stream.schema for name, stream in self.streams.items()}

    def _enter_partition(self, node: Node) -> None:
        partition = node.partition
        assert partition is not None
        for column, stream in partition.keys:
            if stream not in self.streams:
                raise unknown_stream(self.text, partition.at, stream, self.schemas())
            column_type(self.text, s.Attribute(column, at=partition.at), stream, self.streams[stream].schema)
            self._keys[stream] = (*self._keys.get(stream, ()), column)
        self._partition = self._keys[partition.keys[0][1]]
        uneven = next((stream for stream, keys in self._keys.items() if len(keys) != len(self._partition)), None)
        if uneven is not None:
            raise error_at(
                self.text,
                partition.at,
                f"the partition has {len(self._partition)} of {partition.keys[0][1]!r}, but {len(self._keys[uneven])} of "
                f"{uneven!r}; name as many columns of each",
            )
        for name in [name for name in self.streams if name.startswith("#")]:
            inner = name.partition(" of ")[0]
            if node.name_of(inner) == name:
                self.streams[inner], self._keys[inner] = self.streams[name], self._partition

    def keys_of(self, streams: Mapping[str, s.Position]) -> tuple[tuple[str, ...], ...]:
        """Return by which columns the partition, if any, tells each stream's records apart.

        Those of a stream that has none there go to every key.
        """
        keys = tuple(self._keys.get(name, ()) for name in streams)
        if self._keys and not any(keys):
            name, at = next(iter(streams.items()))
            inner = f", write #{name} for a stream of each key," if name in self._parts else ""
            raise error_at(
                self.text,
                at,
                f"stream {name!r} has no key in this partition, so that every key would give the same; "
                f"add 'column of {name}' to it{inner} or take this query out of it",
            )
        return keys

    def _add(self, node: Node, queries: list[Node]) -> Stream:
        query, is_last = node.query, node is queries[-1]
        if not is_last and query.into is None:
            raise error_at(self.text, query.at, "nothing reads this query; add 'insert into' and a name")
        name = self._name_of(node, queries)
        match query.source:
            case s.Source():
                return self._add_source(name, query, query.source)
            case s.Chain():
                from headwater.cep.planning.chain import add_chain

                return add_chain(self, name, query, query.source, self._cap)
            case s.Join():
                from headwater.cep.planning.join import add_join

                return add_join(self, name, query, query.source)

    def _name_of(self, node: Node, queries: list[Node]) -> str:
        """Return what a query's step is called: one of several that insert into a stream has a number."""
        together = [other for other in queries if node.into is not None and other.into == node.into]
        if len(together) > 1:
            return f"{self._name}.{node.query.into} {together.index(node) + 1}"
        return self._name if node is queries[-1] else f"{self._name}.{node.query.into}"

    def _insert(self, node: Node, output: Stream, queries: list[Node]) -> None:
        """Let a stream be read once the last query that inserts into it has been planned."""
        into, query = node.into, node.query
        assert into is not None
        if into in self._inputs:
            raise error_at(self.text, query.at, f"the flow has a stream {into!r} already; insert into another name")
        if into != query.into and not all(key in output.schema for key in self._partition):
            raise error_at(
                self.text, query.at, f"{query.into!r} is a stream of each key; select {listed(self._partition)} too"
            )
        if into != query.into and node.partition is None:
            raise error_at(self.text, query.at, f"{query.into!r}, a stream of each key, belongs into a partition")
        parts = self._parts.setdefault(into, [])
        if parts and parts[0].schema != output.schema:
            raise error_at(
                self.text,
                query.at,
                f"stream {query.into!r} has the columns ({parts[0].schema}); this query gives ({output.schema})",
            )
        parts.append(output)
        if len(parts) == sum(other.into == into for other in queries):
            name = self._name if queries[-1].into == into else f"{self._name}.{query.into}"
            self.streams[into] = self._merge(name, parts)

    def _merge(self, name: str, parts: list[Stream]) -> Stream:
        """Return the results of several queries as one stream: in order of event time, else as they come."""
        if len(parts) == 1:
            return parts[0]
        time = parts[0].time
        if time is None or any(part.time != time for part in parts):
            return parts[0].union(name, *parts[1:])
        plan = MergePlan(parts[0].schema, len(parts), time, name)
        inputs = tuple(Input(part.step, part.port, part.schema, "one") for part in parts)
        self.flow.add(name, Apply(plan), inputs=inputs, outputs={"out": parts[0].schema})
        return Stream(self.flow, name, time=time)

    # -- a single stream ----------------------------------------------------------------------------------------------

    def _add_source(self, name: str, query: s.Query, source: s.Source) -> Stream:
        stream = self.filter_source(name, source)
        resolve = self.resolve_in({None: (source.stream, stream.schema), source.stream: (source.stream, stream.schema)})
        window = extent(self.text, source.window, source.stream, stream.schema) if source.window else None
        batch = window is not None and window.batch
        selection = Selector(self.text, query, resolve, last=batch).read(self._everything(query, stream, batch))
        groups = tuple(resolve(attribute)[0] for attribute in query.group_by)
        if batch and not self._truly_aggregates(selection):
            assert source.window is not None
            raise error_at(
                self.text,
                source.window.at,
                f"a window {source.window.kind!r} needs an aggregate in 'select', such as count()",
            )
        if not selection.aggregates:
            if groups:
                raise error_at(
                    self.text, query.group_by[0].at, "'group by' needs an aggregate in 'select', such as count()"
                )
            self.keys_of({source.stream: source.at})
            return self._select(name, stream, selection)
        return self._add_window(name, stream, source, window or Extent("length", 0), selection, groups)

    def _everything(self, query: s.Query, stream: Stream, batch: bool) -> list[tuple[str, Expr, Type]]:
        if batch and not query.select:
            raise error_at(
                self.text, query.at, "a batch of records has one result; select aggregates, such as count() as n"
            )
        return [(column, Column(column), kind) for column, kind in stream.schema.items()]

    def _truly_aggregates(self, selection: Selection) -> bool:
        return any(aggregate.function != "last" for aggregate, _ in selection.aggregates.values())

    def filter_source(self, name: str, source: s.Source) -> Stream:
        """Return a source's stream, with a step before it for its conditions."""
        if source.stream not in self.streams:
            raise unknown_stream(self.text, source.at, source.stream, self.schemas())
        stream = self.streams[source.stream]
        if not source.filters:
            return stream
        names = {None: (source.stream, stream.schema), source.stream: (source.stream, stream.schema)}
        if source.alias:
            names[source.alias] = (source.stream, stream.schema)
        condition = Translator(self.text, self.resolve_in(names)).conjunction(source.filters)
        return stream.filter(self._free(f"{name} where"), condition)

    def _free(self, name: str) -> str:
        return name if name not in self.flow.steps else f"{name} {len(self.flow.steps)}"

    def _select(self, name: str, stream: Stream, selection: Selection) -> Stream:
        columns: dict[str, Any] = {column: expr for column, expr, _ in selection.columns}
        first = name if selection.having is None else self._free(f"{name} all")
        output = stream.select(first, **columns)
        if selection.having is not None:
            output = output.filter(name, selection.having)
        return Stream(self.flow, output.step, time=self._renamed_time(selection, stream.time))

    def _renamed_time(self, selection: Selection, time: str | None) -> str | None:
        if time is None:
            return None
        hidden = {str(Column(time)), str(Column(f"last({time})"))}
        return next((column for column, expr, _ in selection.columns if str(expr) in hidden), None)

    def _add_window(
        self, name: str, stream: Stream, source: s.Source, window: Extent, selection: Selection, groups: tuple[str, ...]
    ) -> Stream:
        (keys,) = self.keys_of({source.stream: source.at})
        time = window.time or stream.time
        by_watermark = time is not None and time == stream.time
        common: dict[str, Any] = {
            "schema": stream.schema, "time": time, "groups": groups, "aggregates": selection.of_aggregates(), "step": name,
            "by_watermark": by_watermark, "result_time": self._renamed_time(selection, stream.time),
        }  # fmt: skip
        if window.batch:
            batch_keys = keys if window.key is None or window.key in keys else (*keys, window.key)
            # of a batch only its keys and aggregates are left
            batch_schema = stream.schema.only((*batch_keys, *(g for g in groups if g not in batch_keys)))
            common["groups"] = tuple(g for g in groups if g not in batch_keys)
            if (common["groups"] and window.kind != "time") or (not by_watermark and window.kind != "length"):
                common["result_time"] = None  # the last record of a group may be of any age when the batch ends
            plan: Any = BatchWindowPlan(
                kind=window.kind,
                size=window.size,
                keys=batch_keys,
                projection=selection.projection(batch_schema),
                **common,
            )
        else:
            limit, span = (window.size, 0) if window.kind == "length" else (0, window.size)
            plan = SlidingWindowPlan(
                limit=limit, span_us=span, keys=keys, projection=selection.projection(stream.schema), **common
            )
        return self.add_step(name, plan, [(stream, keys)], selection.out)

    def add_step(self, name: str, plan: Any, sources: list[tuple[Stream, tuple[str, ...]]], out: Schema) -> Stream:
        """Add a step that one instance runs, or one per part of the keys, and return its stream."""
        elsewhere: Grouping = "all" if self._keys else "one"
        inputs = tuple(Input(st.step, st.port, st.schema, "key" if keys else elsewhere, keys) for st, keys in sources)
        step_keys = next((keys for _, keys in sources if keys), ())
        self.flow.add(name, Apply(plan, step_keys), inputs=inputs, outputs={"out": out})
        return Stream(self.flow, name, time=plan.result_time)

    def resolve_in(self, names: Mapping[str | None, tuple[str, Schema]]) -> Callable[[s.Attribute], tuple[str, Type]]:
        """Return how attributes are found when each name stands for one stream."""

        def resolve(attribute: s.Attribute) -> tuple[str, Type]:
            if attribute.index is not None:
                raise error_at(
                    self.text,
                    attribute.at,
                    "an index belongs to an event of a pattern that is counted, such as e1[0].x",
                )
            if attribute.ref not in names:
                refs = [name for name in names if name]
                near = suggestion(attribute.ref or "", refs) or f"; names are {listed(refs)}"
                raise error_at(self.text, attribute.at, f"there is no stream {attribute.ref!r} in this query{near}")
            stream, schema = names[attribute.ref]
            return attribute.name, column_type(self.text, attribute, stream, schema)

        return resolve
