"""Aggregates: what a window computes from its records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.data.schema import NUMERIC, Schema, Type, checked_type
from headwater.errors import FlowError
from headwater.flow.expr import Column, Expr
from headwater.flow.names import name_of

Of = str | Expr


@dataclass(frozen=True, eq=False, slots=True)
class Aggregate:
    """One result column of a window: a function and the expression it reads."""

    function: str
    of: Expr | None = None
    custom: Callable[[Any], Any] | None = None
    out: Type | None = None

    def type_in(self, schema: Schema) -> Type:
        """Return the type of the result over a stream of this schema."""
        if self.of is None or self.function == "distinct":
            return "int"
        kind = self.of.type_in(schema)
        if self.function == "custom":
            return self.out or kind
        if self.function in ("sum", "mean", "std") and kind not in NUMERIC:
            raise FlowError(f"{self}: cannot take the {self.function} of {kind}")
        if self.function in ("min", "max") and kind not in (*NUMERIC, "time"):
            raise FlowError(f"{self}: cannot take the {self.function} of {kind}")
        return "float" if self.function in ("mean", "std") else kind

    def __str__(self) -> str:
        name = name_of(self.custom) if self.custom else self.function
        return f"{name}({self.of if self.of is not None else ''})"


def _expression(of: Of) -> Expr:
    return Column(of) if isinstance(of, str) else of


def count() -> Aggregate:
    """Count the records."""
    return Aggregate("count")


def sum(of: Of) -> Aggregate:
    """Add up; whole numbers stay whole."""
    return Aggregate("sum", _expression(of))


def mean(of: Of) -> Aggregate:
    """Take the arithmetic mean."""
    return Aggregate("mean", _expression(of))


def std(of: Of) -> Aggregate:
    """Take the standard deviation of the records as a whole population."""
    return Aggregate("std", _expression(of))


def min(of: Of) -> Aggregate:
    """Take the smallest."""
    return Aggregate("min", _expression(of))


def max(of: Of) -> Aggregate:
    """Take the largest."""
    return Aggregate("max", _expression(of))


def distinct(of: Of) -> Aggregate:
    """Count the different values, of which NaN is one; keeps all of them till the window ends."""
    return Aggregate("distinct", _expression(of))


def first(of: Of) -> Aggregate:
    """Take the one that arrived first."""
    return Aggregate("first", _expression(of))


def last(of: Of) -> Aggregate:
    """Take the one that arrived last."""
    return Aggregate("last", _expression(of))


def custom(function: Callable[[Any], Any], of: Of, out: Type | type | None = None) -> Aggregate:
    """Apply a Python function to the array of a window's values, in order of arrival; keeps all of them till then.

    `out` is the type of what it returns, by its name or as `int`, `float`, `bool`, `str` or `datetime`, else that of `of`.
    """
    kind = None if out is None else checked_type(f"the result of {name_of(function)}", out)
    return Aggregate("custom", _expression(of), function, kind)


def aggregates_text(groups: Sequence[str], aggregates: Sequence[tuple[str, Aggregate]]) -> str:
    """Return in words what a window of a query computes."""
    by = f"by {', '.join(groups)}" if groups else "of all"
    return f"{by}: {', '.join(f'{name} = {aggregate}' for name, aggregate in aggregates)}"
