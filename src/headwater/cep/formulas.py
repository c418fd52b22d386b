"""Expressions of a flow (`col.height < 150`) in queries, with columns of events and the functions of the language."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from headwater.cep import syntax as s
from headwater.cep.functions import AGGREGATES, FUNCTIONS, OPERATORS
from headwater.data.schema import Schema, Type
from headwater.errors import FlowError, QueryError
from headwater.flow.expr import Call, Column, Expr, Literal, expr

#: What a flow calls a function → what the text does.
_SIGNS = {**{of_flow: sign for sign, of_flow in OPERATORS.items()}, "mod": "%", "neg": "-"}
_FUNCTIONS = {**{scalar.of_flow: name for name, scalar in FUNCTIONS.items()}, "fill_null": "coalesce"}
_AGGREGATES = {of_flow: name for name, of_flow in AGGREGATES.items()}


class _InQuery(Expr):
    """An expression that means something in a query alone."""

    __slots__ = ()

    def columns(self) -> frozenset[str]:
        """Complain: only a query knows the columns."""
        self._refuse()

    def type_in(self, schema: Schema) -> Type:
        """Complain: only a query knows the type."""
        self._refuse()

    def to_json(self) -> Any:
        """Complain: a query is described by its text."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise FlowError(f"{self} belongs to a query; give it to select(), pattern() … of headwater.cep")


@dataclass(frozen=True, eq=False, slots=True)
class Reference(_InQuery):
    """A column of an event or of one side of a join: `e1.height`, `e1[0].height`."""

    ref: str
    name: str
    index: s.Index | None = None

    def __str__(self) -> str:
        return f"{self.ref}.{self.name}"


@dataclass(frozen=True, eq=False, slots=True)
class Function(_InQuery):
    """A function of the query language, by its name there."""

    name: str
    args: tuple[Expr, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.args))})"


def call(name: str, *args: Any) -> Function:
    """Call a function of the query language: `call("math:abs", col.height)`."""
    return Function(name, tuple(map(expr, args)))


def count() -> Function:
    """Return how many records the window holds."""
    return call(_AGGREGATES["count"])


def sum(of: Any) -> Function:
    """Add up over the window."""
    return call(_AGGREGATES["sum"], of)


def mean(of: Any) -> Function:
    """Take the arithmetic mean over the window (`avg` in the text)."""
    return call(_AGGREGATES["mean"], of)


def std(of: Any) -> Function:
    """Take the standard deviation over the window (`stdDev` in the text)."""
    return call(_AGGREGATES["std"], of)


def min(of: Any) -> Function:
    """Take the smallest value in the window."""
    return call(_AGGREGATES["min"], of)


def max(of: Any) -> Function:
    """Take the largest value in the window."""
    return call(_AGGREGATES["max"], of)


def distinct(of: Any) -> Function:
    """Count the different values in the window (`distinctCount` in the text)."""
    return call(_AGGREGATES["distinct"], of)


def value_of(value: Any) -> s.Value:
    """Return an expression, or a constant, as the plain data of a query."""
    match expr(value):
        case Literal(bool() | int() | float() | str() as constant):
            return s.Constant(constant)
        case Column(name):
            return s.Attribute(name)
        case Reference(ref, name, index):
            return s.Attribute(name, ref, index)
        case Function(name, args):
            return s.Function(name, tuple(map(value_of, args)))
        case Call("is_null", (inner,)):
            return s.IsNull(value_of(inner))
        case Call("round", (inner, Literal(0))):
            return s.Function(_FUNCTIONS["round"], (value_of(inner),))
        case Call(name, args) if name in _SIGNS:
            return s.Operation(_SIGNS[name], tuple(map(value_of, args)))
        case Call(name, args) if name in _FUNCTIONS and name != "round":
            return s.Function(_FUNCTIONS[name], tuple(map(value_of, args)))
        case other:
            raise QueryError(
                f"{other} has no form in a query; it takes + - * / % comparisons & | ~ and its own functions"
            )
