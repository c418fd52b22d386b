"""Moments as ISO 8601 text, read a column at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwater.data.jit import kernel

_ZERO, _NINE, _PLUS, _COMMA, _MINUS, _DOT, _COLON = 48, 57, 43, 44, 45, 46, 58
_T, _LOWER_T, _SPACE, _Z, _LOWER_Z = 84, 116, 32, 90, 122
_BEFORE_MONTH = np.array([0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334])
_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
_DAYS_TO_1970 = 719162  # from the first day of year 1
_NO = -1


@kernel
def read_moments(
    data: NDArray[np.uint8], offsets: NDArray[np.int32], out: NDArray[np.int64], valid: NDArray[np.bool_]
) -> None:
    """Read texts as microseconds since 1970; `valid` says which ones are moments.

    A date, or a date, `T` or a space, and a time of day to the minute, the second or any part of one; then `Z`, an
    offset from UTC (`+02:00`, `+0200`, `+02`), or nothing, which means UTC. Digits after the sixth of a second are left off.
    """
    for i in range(len(out)):
        start, stop = offsets[i], offsets[i + 1]
        while start < stop and data[start] == _SPACE:
            start += 1
        while stop > start and data[stop - 1] == _SPACE:
            stop -= 1
        days = _date(data, start, stop)
        valid[i] = days != _NO
        at = start + 10
        second, micro, offset = 0, 0, 0
        if valid[i] and at < stop:
            valid[i] = data[at] == _T or data[at] == _LOWER_T or data[at] == _SPACE
            hour, minute = _pair(data, at + 1, stop, 23), _pair(data, at + 4, stop, 59)
            valid[i] &= hour != _NO and minute != _NO and data[at + 3] == _COLON
            at += 6
            if valid[i] and at < stop and data[at] == _COLON:
                second = _pair(data, at + 1, stop, 59)
                valid[i] = second != _NO
                at += 3
                if valid[i] and at < stop and (data[at] == _DOT or data[at] == _COMMA):
                    at, micro = _fraction(data, at + 1, stop)
                    valid[i] = micro != _NO
            if valid[i]:
                second += hour * 3600 + minute * 60
                offset, good = _offset(data, at, stop)
                valid[i] = good
        out[i] = ((days - _DAYS_TO_1970) * 86400 + second - offset) * 1_000_000 + micro if valid[i] else 0


@kernel
def _pair(data: NDArray[np.uint8], at: int, stop: int, most: int) -> int:
    """Read two digits that are at most `most`."""
    if at + 2 > stop or not (_ZERO <= data[at] <= _NINE and _ZERO <= data[at + 1] <= _NINE):
        return _NO
    number = (int(data[at]) - _ZERO) * 10 + int(data[at + 1]) - _ZERO
    return number if number <= most else _NO


@kernel
def _date(data: NDArray[np.uint8], at: int, stop: int) -> int:
    """Read YYYY-MM-DD as days since the first day of year 1."""
    if at + 10 > stop or data[at + 4] != _MINUS or data[at + 7] != _MINUS:
        return _NO
    century, rest = _pair(data, at, stop, 99), _pair(data, at + 2, stop, 99)
    month, day = _pair(data, at + 5, stop, 12), _pair(data, at + 8, stop, 31)
    if century == _NO or rest == _NO or month < 1 or day < 1:
        return _NO
    year = century * 100 + rest
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if year < 1 or day > _DAYS[month] + (1 if leap and month == 2 else 0):
        return _NO
    before = year - 1
    days = before * 365 + before // 4 - before // 100 + before // 400
    return days + int(_BEFORE_MONTH[month]) + (1 if leap and month > 2 else 0) + day - 1


@kernel
def _fraction(data: NDArray[np.uint8], at: int, stop: int) -> tuple[int, int]:
    """Read digits after the point as microseconds; return where they end."""
    first, micro, unit = at, 0, 100_000
    while at < stop and _ZERO <= data[at] <= _NINE:
        micro += (int(data[at]) - _ZERO) * unit
        unit //= 10
        at += 1
    return at, micro if at > first else _NO


@kernel
def _offset(data: NDArray[np.uint8], at: int, stop: int) -> tuple[int, bool]:
    """Read how far a zone is ahead of UTC, in seconds."""
    if at == stop:
        return 0, True
    if data[at] == _Z or data[at] == _LOWER_Z:
        return 0, at + 1 == stop
    if data[at] != _PLUS and data[at] != _MINUS:
        return 0, False
    sign = 1 if data[at] == _PLUS else -1
    hours, minutes = _pair(data, at + 1, stop, 23), 0
    at += 3
    if hours != _NO and at < stop:
        at += 1 if data[at] == _COLON else 0
        minutes = _pair(data, at, stop, 59)
        at += 2
    return sign * (hours * 3600 + minutes * 60), hours != _NO and minutes != _NO and at == stop
