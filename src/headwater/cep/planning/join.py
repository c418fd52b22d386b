"""From `join` in a query to a step: which values must be equal, what else must hold, which windows there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.cep import syntax as s
from headwater.cep.automaton import column_type, owner
from headwater.cep.diagnostics import error_at
from headwater.cep.expressions import Translator, conjuncts, rename_columns
from headwater.cep.planning.selection import Selector, refuse_groups
from headwater.cep.planning.window import extent
from headwater.data.schema import NUMERIC, Schema, Type
from headwater.flow.expr import Call, Column, Expr
from headwater.flow.stream import Stream
from headwater.operators.window_join import JoinPlan

if TYPE_CHECKING:
    from headwater.cep.plan import Planner


def add_join(planner: Planner, name: str, query: s.Query, join: s.Join) -> Stream:
    """Add the step of a join and return its stream."""
    return _JoinBuilder(planner, name, query, join).add()


class _JoinBuilder:
    def __init__(self, planner: Planner, name: str, query: s.Query, join: s.Join) -> None:
        self._planner, self._name, self._query, self._join = planner, name, query, join
        self._text = planner.text
        self._sides = (join.left, join.right)
        self._names = tuple(side.alias or side.stream for side in self._sides)

    def add(self) -> Stream:
        if self._names[0] == self._names[1]:
            raise error_at(
                self._text, self._join.right.at, f"both sides are called {self._names[0]!r}; name them with 'as'"
            )
        refuse_groups(self._text, self._query)
        streams = [
            self._planner.filter_source(f"{self._name} {which}", side)
            for which, side in zip(("left", "right"), self._sides, strict=True)
        ]
        self._schemas = (streams[0].schema, streams[1].schema)
        limits, spans = self._extents(streams)
        equal, rest = self._condition()
        selector = Selector(self._text, self._query, self._resolve)
        selection = selector.read(self._everything() if not self._query.select else [])
        if selection.aggregates:
            raise error_at(
                self._text,
                self._query.select[0].at,
                "an aggregate of a join needs a second query that reads this one's result",
            )
        keys = self._planner.keys_of({side.stream: side.at for side in self._sides})
        keys = (keys[0], keys[-1])  # of a stream joined with itself there is one
        kind, one_way = self._join.kind, self._join.unidirectional
        plan = JoinPlan(
            schemas=self._schemas,
            names=(self._names[0], self._names[1]),
            limits=limits,
            spans=spans,
            active=(one_way != "right", one_way != "left"),
            outer=(kind in ("left outer join", "full outer join"), kind in ("right outer join", "full outer join")),
            equal=equal,
            on=rest,
            projection=selection.projection(self._pair_schema()),
            times=(streams[0].time, streams[1].time),
            keys=keys,
            step=self._name,
        )
        return self._planner.add_step(self._name, plan, list(zip(streams, keys, strict=True)), selection.out)

    def _extents(self, streams: list[Stream]) -> tuple[tuple[int, int], tuple[int, int]]:
        limits, spans = [0, 0], [0, 0]
        for i, side in enumerate(self._sides):
            if side.window is None:
                continue
            window = extent(self._text, side.window, side.stream, streams[i].schema)
            if window.batch:
                raise error_at(self._text, side.window.at, "a join holds sliding windows: length(…) or time(…)")
            if window.time is not None and window.time != streams[i].time:
                raise error_at(
                    self._text,
                    side.window.at,
                    f"a join goes by the streams' event time; put .event_time(…, {window.time!r}) before it",
                )
            if window.kind == "length":
                limits[i] = window.size
            else:
                spans[i] = window.size
        if not any(limits) and not any(spans):
            raise error_at(
                self._text, self._join.at, "a join needs a window on a side, such as levels#window.time(1 min)"
            )
        return (limits[0], limits[1]), (spans[0], spans[1])

    def _pair_schema(self) -> Schema:
        return Schema(
            tuple(
                (f"{n}.{column}", kind)
                for n, sc in zip(self._names, self._schemas, strict=True)
                for column, kind in sc.items()
            )
        )

    def _everything(self) -> list[tuple[str, Expr, Type]]:
        return [(column.replace(".", "_"), Column(column), kind) for column, kind in self._pair_schema().items()]

    def _resolve(self, attribute: s.Attribute) -> tuple[str, Type]:
        schemas = dict(zip(self._names, self._schemas, strict=True))
        ref = owner(self._text, attribute, schemas, "side", " of this join")
        side = self._names.index(ref)
        kind = column_type(self._text, attribute, self._sides[side].stream, self._schemas[side])
        return f"{ref}.{attribute.name}", kind

    def _condition(self) -> tuple[tuple[tuple[Expr, Expr, Type], ...], Expr | None]:
        """Split `on` into values that must be equal, by which partners are found, and the rest."""
        if self._join.on is None:
            return (), None
        equal: list[tuple[Expr, Expr, Type]] = []
        rest: Expr | None = None
        for value in conjuncts((self._join.on,)):
            condition = Translator(self._text, self._resolve).condition(value)
            equality = self._equality(condition)
            if equality is not None:
                equal.append(equality)
            else:
                rest = condition if rest is None else rest & condition
        return tuple(equal), rest

    def _equality(self, condition: Expr) -> tuple[Expr, Expr, Type] | None:
        if not isinstance(condition, Call) or condition.name != "eq":
            return None
        values: dict[int, Expr] = {}
        for value in condition.args:
            columns = {column: column.partition(".") for column in value.columns()}
            sides = {name for name, _, _ in columns.values()}
            if len(sides) != 1:
                return None
            side = self._names.index(sides.pop())
            values[side] = rename_columns(value, {column: name for column, (_, _, name) in columns.items()})
        kinds = {value.type_in(self._schemas[side]) for side, value in values.items()}
        if len(values) != 2 or (kinds != {"text"} and kinds - {*NUMERIC, "time", "bool"}):
            return None
        kind: Type = "text" if kinds == {"text"} else "float" if kinds & {"float", "float32"} else "int"
        return values[0], values[1], kind
