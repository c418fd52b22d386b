"""Moments as text: ISO 8601 in UTC outside, microseconds since 1970 inside."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater.data.column import Column, parts
from headwater.data.iso_text import read_moments
from headwater.data.jit import uncompiled

_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_FORM = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?")
#: what is read as a moment, as `iso_text` reads it a column at a time
_READ = re.compile(
    r"\d{4}-\d\d-\d\d([Tt ]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d([.,]\d+)?)?([Zz]|[+-]([01]\d|2[0-3])(:?[0-5]\d)?)?)?",
    re.ASCII,
)
FIRST_US, LAST_US = -62135596800000000, 253402300799999999  #: years 1 to 9999: what ISO text holds


def micros(moment: datetime) -> int:
    """Return microseconds since 1970; a moment without a zone is in UTC.

    >>> micros(datetime(1970, 1, 1, 0, 0, 1))
    1000000
    """
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND


def micros_of_text(text: str) -> int:
    """Read ISO text, or a whole number of microseconds; raises ValueError for other text.

    A date, or a date and a time of day to the minute, the second or any part of one, and a zone, or none, which means UTC.
    Digits after the sixth of a second are left off.

    >>> micros_of_text("1970-01-01T00:00:01.5Z"), micros_of_text("1970-01-01 00:00:01.4999999+01"), micros_of_text("1500000")
    (1500000, -3598500001, 1500000)
    """
    text = text.strip(" ")
    if _READ.fullmatch(text):
        return micros(datetime.fromisoformat(text.upper()))
    try:
        if "_" not in text:  # Python alone reads 1_000 as a number
            return int(text)
    except ValueError:
        pass
    raise ValueError(f"expected a time, such as 2026-11-15T08:00:00Z or whole microseconds since 1970, got {text!r}")


@uncompiled(read_moments)
def _read_moments_one_by_one(
    data: NDArray[np.uint8], offsets: NDArray[np.int32], out: NDArray[np.int64], valid: NDArray[np.bool_]
) -> None:
    content = data.tobytes()
    for row, (start, stop) in enumerate(pairwise(offsets.tolist())):
        text = content[start:stop].decode(errors="replace").strip(" ")
        out[row], valid[row] = 0, _READ.fullmatch(text) is not None
        try:
            out[row] = micros(datetime.fromisoformat(text.upper())) if valid[row] else 0
        except ValueError:  # the thirtieth of February
            valid[row] = False


def is_moment(text: str) -> bool:
    """Tell whether a text looks like a moment: a date and a time of day.

    >>> is_moment("2026-11-15T08:00:00Z"), is_moment("2026-11-15"), is_moment("20261115")
    (True, False, False)
    """
    return _FORM.fullmatch(text) is not None


def moments_as_text(column: Column) -> list[Any]:
    """Return a time column as ISO texts, None where missing; years beyond 1 to 9999 stay numbers.

    >>> moments_as_text(np.array([0, 2**62]))
    ['1970-01-01T00:00:00.000000Z', 4611686018427387904]
    """
    values, valid = parts(column)
    assert isinstance(values, np.ndarray)
    texts: list[Any] = np.datetime_as_string(values.view("datetime64[us]"), timezone="UTC").tolist()
    odd = (values < FIRST_US) | (values > LAST_US)
    if odd.any():
        texts = [n if far else text for n, far, text in zip(values.tolist(), odd, texts, strict=True)]
    if valid is not None:
        texts = [text if is_valid else None for text, is_valid in zip(texts, valid, strict=True)]
    return texts


def moment_as_text(at_us: int) -> str | int:
    """Return one moment as `moments_as_text` does."""
    text: str | int = moments_as_text(np.array([at_us]))[0]
    return text


def event_time_reached(watermarks_us: Mapping[str, int]) -> str:
    """Say how far event time has come, behind what else a line says; nothing where no source tells.

    >>> event_time_reached({"levels": 2_000_000, "valves": 1_000_000}), event_time_reached({})
    (', event time 1970-01-01T00:00:01.000000Z', '')
    """
    return f", event time {moment_as_text(min(watermarks_us.values()))}" if watermarks_us else ""
