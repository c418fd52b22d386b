"""The compiled half of reading JSON objects: reads flat ones of the usual form, and admits when one is not."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwater.data.decimal import read_decimal
from headwater.data.jit import kernel
from headwater.io.senml.scan import number_end, string_end

# Every loop below stops at the text's end and at anything unusual, and a position of -1 means: not sure. So whatever comes
# out is exactly what a JSON library would have found, and a library decides about the rest.
_UNSURE = -1
BOOL, INT, FLOAT, TEXT = 0, 1, 2, 3  #: kinds of fields

_QUOTE, _COMMA, _COLON, _OPEN, _CLOSE = 34, 44, 58, 123, 125
_MINUS, _ZERO, _NINE, _N, _T, _F = 45, 48, 57, 110, 116, 102
_WORDS = np.frombuffer(bytearray(b"nulltruefalse"), np.uint8)


@kernel
def _blank(data: NDArray[np.uint8], at: int, stop: int) -> int:
    while at < stop and (data[at] == 32 or data[at] == 10 or data[at] == 13 or data[at] == 9):
        at += 1
    return at


@kernel
def _word_end(data: NDArray[np.uint8], at: int, stop: int, first: int, size: int) -> int:
    if at + size > stop:
        return _UNSURE
    for i in range(size):
        if data[at + i] != _WORDS[first + i]:
            return _UNSURE
    return at + size


@kernel
def _whole(data: NDArray[np.uint8], start: int, stop: int) -> tuple[int, bool]:
    # A whole number as Python reads it: at most 18 digits, which are sure to fit, and no point.
    at = start + 1 if data[start] == _MINUS else start
    if stop - at > 18:
        return 0, False
    value = 0
    for i in range(at, stop):
        if not _ZERO <= data[i] <= _NINE:
            return 0, False
        value = value * 10 + (int(np.int64(data[i])) - _ZERO)
    return (-value if at > start else value), True


@kernel
def _field(
    data: NDArray[np.uint8], start: int, stop: int, names: NDArray[np.uint8], ends: NDArray[np.int64], guess: int
) -> int:
    # Which field has this name, -1 for none; objects mostly have their fields in one order, so the guess is tried first.
    count, size = len(ends) - 1, stop - start
    for k in range(count):
        field = (guess + k) % count
        first = ends[field]
        if ends[field + 1] - first == size:
            same = True
            for i in range(size):
                if data[start + i] != names[first + i]:
                    same = False
                    break
            if same:
                return field
    return -1


@kernel
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
        return _UNSURE
    first = data[at]
    if first == _QUOTE:
        end = string_end(data, at + 1, stop)
        if end < 0 or (field >= 0 and kind != TEXT):
            return _UNSURE
        if field >= 0:
            spans[place, row, 0], spans[place, row, 1], valid[field, row] = at + 1, end, True
        return end + 1
    if first == _N:
        return _word_end(data, at, stop, 0, 4)
    if first in (_T, _F):
        if field >= 0 and kind != BOOL:
            return _UNSURE
        if field >= 0:
            whole[place, row], valid[field, row] = first == _T, True
        return _word_end(data, at, stop, 4, 4) if first == _T else _word_end(data, at, stop, 8, 5)
    end = number_end(data, at, stop)
    if end < 0 or field < 0:
        return end
    if kind == INT:
        whole[place, row], sure = _whole(data, at, end)
    elif kind == FLOAT:
        floats[place, row], sure = read_decimal(data, at, end)
        sure = sure and not (
            first == _MINUS and floats[place, row] == 0
        )  # whether -0 is 0 depends on how it is written
    else:
        sure = False
    valid[field, row] = True
    return end if sure else _UNSURE


@kernel
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
    seen: NDArray[np.int64],
) -> int:
    at = _blank(data, at, stop)
    if at >= stop or data[at] != _OPEN:
        return _UNSURE
    at = _blank(data, at + 1, stop)
    if at < stop and data[at] == _CLOSE:
        return _blank(data, at + 1, stop)
    guess = 0
    while at < stop and data[at] == _QUOTE:
        end = string_end(data, at + 1, stop)
        if end < 0:
            return _UNSURE
        field = _field(data, at + 1, end, names, ends, guess)
        if field >= 0:
            if seen[field] == row:  # twice: who wins?
                return _UNSURE
            seen[field], guess = row, field + 1
        at = _blank(data, end + 1, stop)
        if at >= stop or data[at] != _COLON:
            return _UNSURE
        at = _blank(data, at + 1, stop)
        kind, place = (kinds[field], places[field]) if field >= 0 else (-1, -1)
        at = _value(data, at, stop, field, kind, place, row, whole, floats, spans, valid)
        if at < 0:
            return _UNSURE
        at = _blank(data, at, stop)
        if at < stop and data[at] == _CLOSE:
            return _blank(data, at + 1, stop)
        if at >= stop or data[at] != _COMMA:
            return _UNSURE
        at = _blank(data, at + 1, stop)
    return _UNSURE


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
    seen = np.full(len(kinds), -1, np.int64)
    for row in range(len(sure)):
        stop = int(offsets[row + 1])
        end = _object(data, int(offsets[row]), stop, names, ends, kinds, places, row, whole, floats, spans, valid, seen)
        sure[row] = end == stop
    return sure
