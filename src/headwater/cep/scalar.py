"""A query's expressions on single values, for the general matcher: a tree of closures, None where a value is missing."""

from __future__ import annotations

import operator as op
from collections.abc import Callable
from typing import Any

from headwater.cep import syntax as s
from headwater.cep.functions import FUNCTIONS

Evaluate = Callable[[Any], Any]

_TWO: dict[str, Callable[[Any, Any], Any]] = {
    "==": op.eq,
    "!=": op.ne,
    "<": op.lt,
    "<=": op.le,
    ">": op.gt,
    ">=": op.ge,
    "+": op.add,
    "-": op.sub,
    "*": op.mul,
}


def scalar(value: s.Value, read: Callable[[s.Attribute], Evaluate]) -> Evaluate:
    """Return a function of a moment (whatever `read`'s functions take) that computes the expression."""
    match value:
        case s.Constant(constant):
            return lambda moment: constant
        case s.Attribute():
            return read(value)
        case s.IsNull(inner):
            inside = scalar(inner, read)
            return lambda moment: inside(moment) is None
        case s.Function(name, args):
            return _called(name, [scalar(arg, read) for arg in args])
        case s.Operation("not" | "-" as sign, (inner,)):
            one = scalar(inner, read)
            return _unary(op.not_ if sign == "not" else op.neg, one)
        case s.Operation(sign, (left, right)):
            a, b = scalar(left, read), scalar(right, read)
            if sign in ("and", "or"):
                return _logic(a, b, stop_at=sign == "or")
            return _binary({"/": _divided, "%": _remainder}.get(sign) or _TWO[sign], a, b)
    raise AssertionError(f"no expression: {value!r}")


def _unary(function: Callable[[Any], Any], inner: Evaluate) -> Evaluate:
    def run(moment: Any) -> Any:
        x = inner(moment)
        return None if x is None else function(x)

    return run


def _binary(function: Callable[[Any, Any], Any], left: Evaluate, right: Evaluate) -> Evaluate:
    def run(moment: Any) -> Any:
        x, y = left(moment), right(moment)
        return None if x is None or y is None else function(x, y)

    return run


def _logic(left: Evaluate, right: Evaluate, *, stop_at: bool) -> Evaluate:
    """Return three-valued and/or: a missing side does not matter where the other side decides."""

    def run(moment: Any) -> Any:
        x = left(moment)
        if x is stop_at:
            return stop_at
        y = right(moment)
        if y is stop_at:
            return stop_at
        return None if x is None or y is None else not stop_at

    return run


def _divided(x: Any, y: Any) -> Any:
    if isinstance(x, int) and isinstance(y, int):
        return None if y == 0 else int(x / y)
    if y == 0:
        return float("nan") if x == 0 or x != x else float("inf") if x > 0 else float("-inf")
    return x / y


def _remainder(x: Any, y: Any) -> Any:
    quotient = _divided(x, y)
    if quotient is None or quotient != quotient or quotient in (float("inf"), float("-inf")):
        return None
    return x - y * int(quotient)


def _called(name: str, args: list[Evaluate]) -> Evaluate:
    function = FUNCTIONS[name]

    def run(moment: Any) -> Any:
        values = [arg(moment) for arg in args]
        if not function.takes_null and any(value is None for value in values):
            return None
        return function.call(*values)

    return run
