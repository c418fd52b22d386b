"""Conversions between types.

What has no counterpart in the other type is missing: text that is no number, NaN as a whole number. A number that has one,
but outside 64 bits, does not fit, and that is an error of its record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headwater.data.column import Text
from headwater.data.schema import DTYPES, Type
from headwater.data.timestamps import moments_as_text
from headwater.operators.checked_arithmetic import LEAST, MOST, Answer, fits

_TRUTH = {"true": True, "false": False}


def converter(source: Type, target: Type) -> Callable[[Any], Answer]:
    """Return a function that converts a column or a single value: (results, where missing, where it does not fit)."""
    if source == target or {source, target} == {"int", "time"}:
        return lambda values: (values, None, None)
    if source == "text":
        return lambda values: _parse(values, target)
    if target == "text":
        return lambda values: (_format(values, source), None, None)
    if target in ("int", "time") and source in ("float", "float32"):
        return _truncate
    dtype = DTYPES[target]
    return lambda values: (np.asarray(values).astype(dtype)[()], None, None)


def _truncate(values: Any) -> Answer:
    finite = np.isfinite(values)
    inside = np.greater_equal(values, float(LEAST)) & np.less(
        values, float(MOST)
    )  # float(MOST) is the next one after it
    whole = np.where(inside, values, 0).astype(np.int64)[()]
    return whole, ~finite, finite & ~inside


def _format(values: Any, source: Type) -> Any:
    if not isinstance(values, np.ndarray):
        return _format(np.array([values], DTYPES[source]), source).tolist()[0]
    if source == "time":
        return Text.of(map(str, moments_as_text(values)))
    if source == "bool":
        return Text.of(["true" if value else "false" for value in values.tolist()])
    # a float32 has fewer digits than the float64 that `tolist` makes of it
    return Text.of(map(str, values if source == "float32" else values.tolist()))


def _parse(values: Any, target: Type) -> Answer:
    if not isinstance(values, Text):
        result, missing, overflow = _parse(Text.of([values]), target)
        return result[0], missing[0], None if overflow is None else overflow[0]
    if target == "time":
        return _moments(values)
    if target == "int":
        return _numbers(values.tolist())
    parse = _truth if target == "bool" else _decimal
    results = [parse(text) for text in values.tolist()]
    missing = np.array([value is None for value in results], np.bool_)
    return np.array([value or 0 for value in results], DTYPES[target]), missing, None


def _moments(texts: Text) -> Answer:
    """Read ISO 8601; a whole number is microseconds since 1970, as in files."""
    from headwater.data.iso_text import read_moments

    out, valid = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.bool_)
    read_moments(texts.data, np.ascontiguousarray(texts.offsets), out, valid)
    rest = np.flatnonzero(~valid)
    overflow = np.zeros(len(texts), np.bool_)
    if len(rest):
        numbers, missing, too_large = _numbers(texts.take(rest).tolist())
        out[rest], valid[rest], overflow[rest] = numbers, ~missing, too_large
    return out, ~valid, overflow


def _numbers(texts: list[str]) -> Answer:
    results = [_whole(text) for text in texts]
    missing = np.array([value is None for value in results], np.bool_)
    overflow = np.array([value is not None and not fits(value) for value in results], np.bool_)
    numbers = [value if value is not None and fits(value) else 0 for value in results]
    return np.array(numbers, np.int64), missing, overflow


def _whole(text: str) -> int | None:
    try:
        return int(text) if "_" not in text else None  # 1_000 is a number in Python alone
    except ValueError:
        return None


def _decimal(text: str) -> float | None:
    try:
        return float(text) if "_" not in text else None  # 1_000 is a number in Python alone
    except ValueError:
        return None


def _truth(text: str) -> bool | None:
    return _TRUTH.get(text.strip().lower())


def as_kind(values: Any, kind: Type) -> Any:
    """Return numbers as their type lies in memory; of single ones, Python's own will do."""
    if isinstance(values, np.ndarray):
        return values.astype(DTYPES[kind], copy=False)
    if kind == "float32":
        return np.float32(values)
    return float(values) if kind == "float" else values
