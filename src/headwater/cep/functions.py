"""What the language calls operators, functions and aggregates, and what a flow calls them: the one table of names."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.flow.expr import Expr, Literal

#: Sign in the text → function of a flow's expressions; whole numbers are divided by `quotient`.
OPERATORS = {
    "==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "+": "add", "-": "sub", "*": "mul", "/": "div",
    "%": "remainder", "and": "and", "or": "or", "not": "not",
}  # fmt: skip
#: Each comparison → the same with its sides exchanged.
COMPARISONS = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


@dataclass(frozen=True)
class Scalar:
    """A function of values: the flow's name, how many arguments it takes, and those the flow wants beside them."""

    of_flow: str
    least: int = 1
    most: int | None = 1
    constants: tuple[Expr, ...] = ()


FUNCTIONS: dict[str, Scalar] = {
    "ifThenElse": Scalar("when", 3, 3),
    "coalesce": Scalar("coalesce", 1, None),
    "maximum": Scalar("greatest", 2, None),
    "minimum": Scalar("least", 2, None),
    "math:abs": Scalar("abs"),
    "math:sqrt": Scalar("sqrt"),
    "math:ln": Scalar("log"),
    "math:floor": Scalar("floor"),
    "math:ceil": Scalar("ceil"),
    "math:round": Scalar("round", constants=(Literal(0),)),
    "str:upper": Scalar("upper"),
    "str:lower": Scalar("lower"),
    "str:trim": Scalar("strip"),
    "str:length": Scalar("length"),
}

#: What a window computes: name in the text → name of the flow's aggregate, which it has in Python too.
AGGREGATES = {
    "avg": "mean",
    "sum": "sum",
    "min": "min",
    "max": "max",
    "count": "count",
    "stdDev": "std",
    "distinctCount": "distinct",
}
