"""The compiled half of reading JSON objects: reads flat ones of the usual form, and admits when one is not."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwater.data.decimal import read_exponent
from headwater.data.jit import kernel, small_kernel, uncompiled
from headwater.io.json.lexer import CLOSE, COLON, COMMA, OPEN, QUOTE, UNSURE, blank_end, field_called, string_end

BOOL, INT, FLOAT, TEXT = 0, 1, 2, 3  #: kinds of fields

_MINUS, _DOT, _ZERO, _NINE, _N, _T, _F = 45, 46, 48, 57, 110, 116, 102
_MOST_DIGITS = 18  # always fit an int64
_EXACT = 2**53  # whole numbers up to here, and powers of ten up to 22, are exact as floats: one rounding is right
_TEN = np.array([10.0**i for i in range(23)])
_WORDS = np.frombuffer(bytearray(b"nulltruefalse"), np.uint8)


@small_kernel
def _word_end(data: NDArray[np.uint8], at: int, stop: int, first: int, size: int) -> int:
    if at + size > stop:
        return UNSURE
    for i in range(size):
        if data[at + i] != _WORDS[first + i]:
            return UNSURE
    return at + size


@small_kernel
def _number(data: NDArray[np.uint8], at: int, stop: int) -> tuple[int, int, int]:
    # Behind its minus, a number's digits as one whole number and the power of ten to take it by; and its end. A power above
    # 0 comes from an exponent alone, and a whole number has none: its power is 0.
    value, power, first = 0, 0, at
    while at < stop and _ZERO <= data[at] <= _NINE:
        value, at = value * 10 + (int(np.int64(data[at])) - _ZERO), at + 1
    digits = at - first
    if digits == 0 or (data[first] == _ZERO and digits > 1):
        return 0, 0, UNSURE
    if at < stop and data[at] == _DOT:
        at, point = at + 1, at + 1
        while at < stop and _ZERO <= data[at] <= _NINE:
            value, at = value * 10 + (int(np.int64(data[at])) - _ZERO), at + 1
        power, digits = point - at, digits + at - point
        if power == 0:
            return 0, 0, UNSURE
    if digits > _MOST_DIGITS:
        return 0, 0, UNSURE
    exponent, end = read_exponent(data, at, stop)
    if end < 0 or (end > at and power + exponent == 0) or (end < stop and _ZERO <= data[end] <= _NINE):
        return 0, 0, UNSURE
    return value, power + exponent, end


@small_kernel
def _value(
    data: NDArray[np.uint8],
    at: int,
    stop: int,
    field: int,
    kind: int,
    place: int,
    row: int,
    whole: NDArray[np.int64],
    floats: NDArray[np.float64],
    spans: NDArray[np.int64],
    valid: NDArray[np.bool_],
) -> int:
    # Reads one value for a field, or for none (-1); returns what follows it.
    if at >= stop:
        return UNSURE
    first = data[at]
    if first == QUOTE:
        end = string_end(data, at + 1, stop)
        if end < 0 or (field >= 0 and kind != TEXT):
            return UNSURE
        if field >= 0:
            spans[place, row, 0], spans[place, row, 1], valid[field, row] = at + 1, end, True
        return end + 1
    if first == _N:
        return _word_end(data, at, stop, 0, 4)
    if first in (_T, _F):
        if field >= 0 and kind != BOOL:
            return UNSURE
        if field >= 0:
            whole[place, row], valid[field, row] = first == _T, True
        return _word_end(data, at, stop, 4, 4) if first == _T else _word_end(data, at, stop, 8, 5)
    negative = first == _MINUS
    value, power, end = _number(data, at + 1 if negative else at, stop)
    if end < 0 or field < 0:
        return end
    valid[field, row] = True
    if kind == INT and power == 0:
        whole[place, row] = -value if negative else value
    elif kind == FLOAT and value <= _EXACT and -22 <= power <= 22 and not (negative and value == 0):  # is -0 a 0?
        exact = value / _TEN[-power] if power < 0 else value * _TEN[power]
        floats[place, row] = -exact if negative else exact
    else:
        return UNSURE
    return end


@small_kernel
def _object(
    data: NDArray[np.uint8],
    at: int,
    stop: int,
    names: NDArray[np.uint8],
    ends: NDArray[np.int64],
    kinds: NDArray[np.int64],
    places: NDArray[np.int64],
    row: int,
    whole: NDArray[np.int64],
    floats: NDArray[np.float64],
    spans: NDArray[np.int64],
    valid: NDArray[np.bool_],
    last_rows: NDArray[np.int64],
) -> int:
    at = blank_end(data, at, stop)
    if at >= stop or data[at] != OPEN:
        return UNSURE
    at = blank_end(data, at + 1, stop)
    if at < stop and data[at] == CLOSE:
        return blank_end(data, at + 1, stop)
    guess = 0
    while at < stop and data[at] == QUOTE:
        end = string_end(data, at + 1, stop)
        if end < 0:
            return UNSURE
        field = field_called(data, at + 1, end, names, ends, guess)
        if field >= 0:
            if last_rows[field] == row:  # twice: who wins?
                return UNSURE
            last_rows[field], guess = row, field + 1
        at = blank_end(data, end + 1, stop)
        if at >= stop or data[at] != COLON:
            return UNSURE
        at = blank_end(data, at + 1, stop)
        kind, place = (kinds[field], places[field]) if field >= 0 else (-1, -1)
        at = _value(data, at, stop, field, kind, place, row, whole, floats, spans, valid)
        if at < 0:
            return UNSURE
        at = blank_end(data, at, stop)
        if at < stop and data[at] == CLOSE:
            return blank_end(data, at + 1, stop)
        if at >= stop or data[at] != COMMA:
            return UNSURE
        at = blank_end(data, at + 1, stop)
    return UNSURE


@kernel
def scan(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int32],
    names: NDArray[np.uint8],
    ends: NDArray[np.int64],
    kinds: NDArray[np.int64],
    places: NDArray[np.int64],
    whole: NDArray[np.int64],
    floats: NDArray[np.float64],
    spans: NDArray[np.int64],
    valid: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Read flat objects with fields of these names and kinds, and tell of which texts that was sure.

    Whole numbers and truths go to `whole`, others to `floats`, and of texts goes where they lie to `spans`, each by its
    field's place there and by row. `valid` is by field and row; it comes as all false, and what stays so is missing.
    """
    sure = np.zeros(len(offsets) - 1, np.bool_)
    last_rows = np.full(len(kinds), -1, np.int64)
    for row in range(len(sure)):
        stop = int(offsets[row + 1])
        end = _object(
            data, int(offsets[row]), stop, names, ends, kinds, places, row, whole, floats, spans, valid, last_rows
        )
        sure[row] = end == stop
    return sure


@uncompiled(scan)
def _nothing_is_sure(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int32],
    names: NDArray[np.uint8],
    ends: NDArray[np.int64],
    kinds: NDArray[np.int64],
    places: NDArray[np.int64],
    whole: NDArray[np.int64],
    floats: NDArray[np.float64],
    spans: NDArray[np.int64],
    valid: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    # In Python the scan takes a hundred times as long as a decoder that is compiled always.
    return np.zeros(len(offsets) - 1, np.bool_)
