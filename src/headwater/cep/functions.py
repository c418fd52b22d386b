"""The functions that a query may call on values: their vectorised form, and the same on single values."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from headwater.flow.expr import Expr, coalesce, greatest, least, when


@dataclass(frozen=True)
class Scalar:
    """One function: how many arguments it takes, its expression, and what it does to single values."""

    least: int
    most: int | None
    build: Callable[..., Expr]
    call: Callable[..., Any]
    takes_null: bool = False  #: whether a missing argument does not make the result missing


def _choose(condition: Any, then: Any, otherwise: Any) -> Any:
    return then if condition else otherwise


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def _root(x: float) -> float:
    return math.sqrt(x) if x >= 0 else math.nan


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf if x == 0 else math.nan


FUNCTIONS: dict[str, Scalar] = {
    "ifThenElse": Scalar(3, 3, when, _choose, takes_null=True),
    "coalesce": Scalar(1, None, coalesce, _first, takes_null=True),
    "maximum": Scalar(2, None, greatest, max),
    "minimum": Scalar(2, None, least, min),
    "math:abs": Scalar(1, 1, lambda x: x.abs(), abs),
    "math:sqrt": Scalar(1, 1, lambda x: x.sqrt(), _root),
    "math:ln": Scalar(1, 1, lambda x: x.log(), _log),
    "math:floor": Scalar(1, 1, lambda x: x.floor(), math.floor),
    "math:ceil": Scalar(1, 1, lambda x: x.ceil(), math.ceil),
    "math:round": Scalar(1, 1, lambda x: x.round(), round),
    "str:upper": Scalar(1, 1, lambda x: x.upper(), str.upper),
    "str:lower": Scalar(1, 1, lambda x: x.lower(), str.lower),
    "str:trim": Scalar(1, 1, lambda x: x.strip(), str.strip),
    "str:length": Scalar(1, 1, lambda x: x.length(), len),
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
