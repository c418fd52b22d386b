"""The functions that a query may call on values, as expressions of a flow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headwater.flow.expr import Expr, coalesce, greatest, least, when


@dataclass(frozen=True)
class Scalar:
    """One function: how many arguments it takes, and its expression."""

    least: int
    most: int | None
    build: Callable[..., Expr]
    takes_null: bool = False  #: whether a missing argument does not make the result missing


FUNCTIONS: dict[str, Scalar] = {
    "ifThenElse": Scalar(3, 3, when, takes_null=True),
    "coalesce": Scalar(1, None, coalesce, takes_null=True),
    "maximum": Scalar(2, None, greatest),
    "minimum": Scalar(2, None, least),
    "math:abs": Scalar(1, 1, lambda x: x.abs()),
    "math:sqrt": Scalar(1, 1, lambda x: x.sqrt()),
    "math:ln": Scalar(1, 1, lambda x: x.log()),
    "math:floor": Scalar(1, 1, lambda x: x.floor()),
    "math:ceil": Scalar(1, 1, lambda x: x.ceil()),
    "math:round": Scalar(1, 1, lambda x: x.round()),
    "str:upper": Scalar(1, 1, lambda x: x.upper()),
    "str:lower": Scalar(1, 1, lambda x: x.lower()),
    "str:trim": Scalar(1, 1, lambda x: x.strip()),
    "str:length": Scalar(1, 1, lambda x: x.length()),
}

#: What a window computes: name here → name of the flow's aggregate.
AGGREGATES = {
    "avg": "mean",
    "sum": "sum",
    "min": "min",
    "max": "max",
    "count": "count",
    "stdDev": "std",
    "distinctCount": "distinct",
}
