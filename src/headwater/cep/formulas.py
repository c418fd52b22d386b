"""Expressions of a flow (`col.height < 150`) in queries, with columns of events and the functions of the language."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from headwater.cep import syntax as s
from headwater.data.schema import Schema, Type
from headwater.errors import FlowError, QueryError
from headwater.flow.expr import Call, Column, Expr, Literal, expr

_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%", "remainder": "%", "eq": "==", "ne": "!=", "lt": "<",
    "le": "<=", "gt": ">", "ge": ">=", "and": "and", "or": "or", "not": "not", "neg": "-",
}  # fmt: skip
_FUNCTIONS = {
    "when": "ifThenElse", "coalesce": "coalesce", "fill_null": "coalesce", "greatest": "maximum", "least": "minimum",
    "abs": "math:abs", "sqrt": "math:sqrt", "log": "math:ln", "floor": "math:floor", "ceil": "math:ceil",
    "upper": "str:upper", "lower": "str:lower", "strip": "str:trim", "length": "str:length",
}  # fmt: skip


class _InQuery(Expr):
    """An expression that means something in a query alone."""

    __slots__ = ()

    def columns(self) -> frozenset[str]:
        """Complain: only a query knows the columns."""
        self._misplaced()

    def type_in(self, schema: Schema) -> Type:
        """Complain: only a query knows the type."""
        self._misplaced()

    def to_json(self) -> Any:
        """Complain: a query is described by its text."""
        self._misplaced()

    def _misplaced(self) -> NoReturn:
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


def avg(value: Any) -> Function:
    """Return the mean over the window."""
    return call("avg", value)


def total(value: Any) -> Function:
    """Return the sum over the window (`sum` in the text)."""
    return call("sum", value)


def lowest(value: Any) -> Function:
    """Return the smallest value in the window (`min` in the text)."""
    return call("min", value)


def highest(value: Any) -> Function:
    """Return the largest value in the window (`max` in the text)."""
    return call("max", value)


def count() -> Function:
    """Return how many records the window holds."""
    return call("count")


def deviation(value: Any) -> Function:
    """Return the standard deviation over the window (`stdDev` in the text)."""
    return call("stdDev", value)


def distinct(value: Any) -> Function:
    """Return how many different values the window holds (`distinctCount` in the text)."""
    return call("distinctCount", value)


def value_of(given: Any) -> s.Value:
    """Return an expression, or a constant, as the plain data of a query."""
    match expr(given):
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
            return s.Function("math:round", (value_of(inner),))
        case Call(name, args) if name in _OPERATORS:
            return s.Operation(_OPERATORS[name], tuple(map(value_of, args)))
        case Call(name, args) if name in _FUNCTIONS:
            return s.Function(_FUNCTIONS[name], tuple(map(value_of, args)))
        case other:
            raise QueryError(
                f"{other} has no form in a query; it takes + - * / % comparisons & | ~ and its own functions"
            )
