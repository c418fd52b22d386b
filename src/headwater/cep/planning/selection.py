"""`select`, `group by` and `having`: which columns a query's result has, and what has to be aggregated for them."""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.cep import syntax as s
from headwater.cep.diagnostics import error_at
from headwater.cep.expressions import Resolve, Translator
from headwater.cep.functions import AGGREGATES
from headwater.cep.printer import value as text_of
from headwater.data.schema import NUMERIC, Schema, Type
from headwater.errors import listed, suggestion
from headwater.flow.aggregates import Aggregate
from headwater.flow.expr import Column, Expr
from headwater.operators.projection import Projection


def refuse_groups(text: str, query: s.Query) -> None:
    """Refuse `group by` where a query has no window."""
    if query.group_by:
        raise error_at(
            text, query.group_by[0].at, "'group by' needs a window; let a second query read this one's result"
        )


@dataclass
class Selection:
    """What `select` was found to say: result columns, and aggregates by the hidden column they are put into."""

    columns: list[tuple[str, Expr, Type]] = field(default_factory=list)
    aggregates: dict[str, tuple[Aggregate, Type]] = field(default_factory=dict)
    having: Expr | None = None

    @property
    def out(self) -> Schema:
        """The schema of the result."""
        return Schema(tuple((name, kind) for name, _, kind in self.columns))

    def projection(self, schema: Schema) -> Projection:
        """Return the last step: from the given columns and the aggregates to the result."""
        full = schema.with_fields({name: kind for name, (_, kind) in self.aggregates.items()})
        return Projection(full, tuple((name, expr) for name, expr, _ in self.columns), self.out, self.having)

    def of_aggregates(self) -> tuple[tuple[str, Aggregate], ...]:
        """Return the aggregates with their columns."""
        return tuple((name, aggregate) for name, (aggregate, _) in self.aggregates.items())


class Selector(Translator):
    """Reads `select`: like any expression, but aggregates may stand in it."""

    def __init__(self, text: str, query: s.Query, resolve: Resolve, *, last: bool = False) -> None:
        super().__init__(text, resolve)
        self._query, self._last = query, last
        self.selection = Selection()

    def read(self, everything: list[tuple[str, Expr, Type]]) -> Selection:
        """Return the selection; `everything` is what `*` stands for."""
        selection = self.selection
        if not self._query.select:
            selection.columns = everything
        for item in self._query.select:
            name = self._name(item)
            if any(name == column for column, _, _ in selection.columns):
                raise error_at(self.text, item.at, f"the result has {name!r} twice; rename one with 'as'")
            expr, kind = self.translate(item.value)
            selection.columns.append((name, expr, kind))
        if self._query.having is not None:
            selection.having = Translator(self.text, self._result).condition(self._having(self._query.having))
        return selection

    def _name(self, item: s.SelectItem) -> str:
        if item.name:
            return item.name
        if isinstance(item.value, s.Attribute):
            return item.value.name
        raise error_at(self.text, item.at, f"{text_of(item.value)} needs a name; add 'as' and a name")

    def translate(self, value: s.Value) -> tuple[Expr, Type]:
        """Return the expression and its type; an aggregate becomes the hidden column of its result."""
        if isinstance(value, s.Function) and value.name in AGGREGATES:
            return self._aggregate(value)
        if isinstance(value, s.Attribute) and self._last:
            # of a whole batch of records there is one result; it shows the last one's attributes
            name, kind = self.resolve(value)
            return self._hide(f"last({name})", Aggregate("last", Column(name)), kind)
        return super().translate(value)

    def _aggregate(self, value: s.Function) -> tuple[Expr, Type]:
        function = AGGREGATES[value.name]
        self.count_arguments(value, 0 if function == "count" else 1, 0 if function == "count" else 1)
        if function == "count":
            return self._hide("count()", Aggregate("count"), "int")
        expr, kind = Translator(self.text, self.resolve).translate(value.args[0])
        if function == "distinct":
            if kind == "any":
                self.complain(value, f"{value.name}() does not take {kind}")
            return self._hide(text_of(value), Aggregate("distinct", expr), "int")
        types = (*NUMERIC, "time") if function in ("min", "max") else NUMERIC
        if kind not in types:
            self.complain(value.args[0], f"{value.name}() takes numbers; {text_of(value.args[0])} is {kind}")
        return self._hide(text_of(value), Aggregate(function, expr), "float" if function in ("mean", "std") else kind)

    def _hide(self, name: str, aggregate: Aggregate, kind: Type) -> tuple[Expr, Type]:
        self.selection.aggregates.setdefault(name, (aggregate, kind))
        return Column(name), kind

    def _having(self, value: s.Value) -> s.Value:
        """Return a condition over the result's columns: what was selected goes by the name it got."""
        for item in self._query.select:
            if item.value == value:
                return s.Attribute(self._name(item), at=value.at)
        match value:
            case s.Operation(op, args, at):
                return s.Operation(op, tuple(map(self._having, args)), at)
            case s.IsNull(inner, at):
                return s.IsNull(self._having(inner), at)
            case s.Function(name, _, at) if name in AGGREGATES:
                raise error_at(self.text, at, f"'having' reads the result; select {text_of(value)} first, with a name")
            case s.Function(name, args, at):
                return s.Function(name, tuple(map(self._having, args)), at)
        return value

    def _result(self, attribute: s.Attribute) -> tuple[str, Type]:
        out = self.selection.out
        if attribute.ref is None and attribute.name in out:
            return attribute.name, out[attribute.name]
        near = suggestion(attribute.name, out) or f"; it has {listed(out)}"
        raise error_at(self.text, attribute.at, f"'having' reads the result, which has no {text_of(attribute)!r}{near}")
