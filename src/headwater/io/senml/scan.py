"""The compiled half of the SenML parser: reads messages of the usual form, and admits when one is not."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwater.data.decimal import read_decimal
from headwater.data.jit import kernel, uncompiled
from headwater.io.json.lexer import (
    BACKSLASH,
    CLOSE,
    CLOSE_LIST,
    COLON,
    COMMA,
    OPEN,
    OPEN_LIST,
    QUOTE,
    UNSURE,
    blank_end,
    field_called,
    string_end,
)

_MINUS, _PLUS, _DOT, _ZERO, _NINE, _UPPER_E, _LOWER_E = 45, 43, 46, 48, 57, 69, 101
_N, _U, _V, _S, _B, _T, _E = 110, 117, 118, 115, 98, 116, 101


@kernel
def _skipped_string(data: NDArray[np.uint8], at: int, stop: int) -> int:
    # Like string_end, for a text nobody asks for: the escape of a slash, which some writers love, may pass.
    while at < stop:
        c = data[at]
        if c == QUOTE:
            return at
        if c == BACKSLASH and at + 1 < stop and data[at + 1] == 47:
            at += 1
        elif c == BACKSLASH or c < 32 or c > 126:
            return UNSURE
        at += 1
    return UNSURE


@kernel
def _digits(data: NDArray[np.uint8], at: int, stop: int) -> int:
    while at < stop and _ZERO <= data[at] <= _NINE:
        at += 1
    return at


@kernel
def number_end(data: NDArray[np.uint8], at: int, stop: int) -> int:
    """Return the end of a JSON number: no plus, no leading zero, digits on both sides of the point; or -1."""
    if at < stop and data[at] == _MINUS:
        at += 1
    first = at
    at = _digits(data, at, stop)
    if at == first or (data[first] == _ZERO and at - first > 1):
        return UNSURE
    if at < stop and data[at] == _DOT:
        first = at + 1
        at = _digits(data, first, stop)
        if at == first:
            return UNSURE
    if at < stop and (data[at] == _LOWER_E or data[at] == _UPPER_E):
        at += 1
        if at < stop and (data[at] == _MINUS or data[at] == _PLUS):
            at += 1
        first = at
        at = _digits(data, first, stop)
        if at == first:
            return UNSURE
    return at


@kernel
def _scalar(data: NDArray[np.uint8], at: int, stop: int) -> tuple[int, int, int]:
    # A string or number value: where its text starts and ends, and what comes after it.
    if at < stop and data[at] == QUOTE:
        end = string_end(data, at + 1, stop)
        return at + 1, end, end + 1 if end >= 0 else UNSURE
    end = number_end(data, at, stop)
    return at, end, end


@kernel
def _key_of_entry(data: NDArray[np.uint8], at: int, stop: int) -> tuple[int, int]:
    # Behind the quote of an entry's key: which of n, u, v, s(v) it is, and the place behind its closing one.
    if at + 1 < stop and data[at + 1] == QUOTE:
        if data[at] == _N or data[at] == _U or data[at] == _V:
            return data[at], at + 2
    elif at + 2 < stop and data[at] == _S and data[at + 1] == _V and data[at + 2] == QUOTE:
        return _S, at + 3
    return 0, UNSURE


@kernel
def _entry(data: NDArray[np.uint8], at: int, stop: int, spans: NDArray[np.int64]) -> int:
    # One {"n": ..., "v": ...}; leaves name and value as spans[0:2] and spans[2:4], and returns what follows.
    spans[0] = spans[2] = UNSURE
    has_v = False
    if at >= stop or data[at] != OPEN:
        return UNSURE
    at += 1
    while True:
        at = blank_end(data, at, stop)
        if at >= stop or data[at] != QUOTE:
            return UNSURE
        key, at = _key_of_entry(data, at + 1, stop)
        if at < 0:
            return UNSURE
        at = blank_end(data, at, stop)
        if at >= stop or data[at] != COLON:
            return UNSURE
        at = blank_end(data, at + 1, stop)
        if key == _V:
            spans[2], spans[3], at = _scalar(data, at, stop)
            has_v = True
        else:
            if at >= stop or data[at] != QUOTE:
                return UNSURE
            first = at + 1
            end = _skipped_string(data, first, stop) if key == _U else string_end(data, first, stop)
            if end < 0:
                return UNSURE
            at = end + 1
            if key == _N:
                spans[0], spans[1] = first, end
            elif key == _S and not has_v:
                spans[2], spans[3] = first, end
        if at < 0:
            return UNSURE
        at = blank_end(data, at, stop)
        if at >= stop:
            return UNSURE
        if data[at] == CLOSE:
            return at + 1 if spans[0] >= 0 and spans[2] >= 0 else UNSURE
        if data[at] != COMMA:
            return UNSURE
        at += 1


@kernel
def _entries(
    data: NDArray[np.uint8],
    at: int,
    stop: int,
    names: NDArray[np.uint8],
    ends: NDArray[np.int32],
    row: int,
    values: NDArray[np.float64],
    texts: NDArray[np.int64],
    spans: NDArray[np.int64],
) -> int:
    # The list under "e"; every field of the schema once, whatever else besides.
    count = len(ends) - 1
    mask, guess = 0, 0
    if at >= stop or data[at] != OPEN_LIST:
        return UNSURE
    at += 1
    while True:
        at = _entry(data, blank_end(data, at, stop), stop, spans)
        if at < 0:
            return UNSURE
        field = field_called(data, spans[0], spans[1], names, ends, guess)
        if field >= 0:
            if mask >> field & 1:
                return UNSURE
            mask |= 1 << field
            guess = field + 1 if field + 1 < count else 0
            if field < len(values):
                value, sure = read_decimal(data, spans[2], spans[3])
                if not sure:
                    return UNSURE
                values[field, row] = value
            else:
                texts[field - len(values), row, 0] = spans[2]
                texts[field - len(values), row, 1] = spans[3]
        at = blank_end(data, at, stop)
        if at >= stop:
            return UNSURE
        if data[at] == CLOSE_LIST:
            return at + 1 if mask == (1 << count) - 1 else UNSURE
        if data[at] != COMMA:
            return UNSURE
        at += 1


@kernel
def _base_time(data: NDArray[np.uint8], at: int, stop: int) -> tuple[int, int]:
    # A whole number of at most 15 digits, bare or as a string.
    first, end, after = _scalar(data, at, stop)
    if after < 0 or end - first > 15 or end == first or _digits(data, first, end) != end:
        return 0, UNSURE
    value = 0
    for i in range(first, end):
        value = value * 10 + (int(data[i]) - _ZERO)
    return value, after


@kernel
def _message(
    data: NDArray[np.uint8],
    at: int,
    stop: int,
    names: NDArray[np.uint8],
    ends: NDArray[np.int32],
    row: int,
    values: NDArray[np.float64],
    texts: NDArray[np.int64],
    times: NDArray[np.int64],
    spans: NDArray[np.int64],
) -> bool:
    at = blank_end(data, at, stop)
    if at >= stop or data[at] != OPEN:
        return False
    at += 1
    has_e = has_bt = False
    while True:
        at = blank_end(data, at, stop)
        is_e = at + 2 < stop and data[at] == QUOTE and data[at + 1] == _E and data[at + 2] == QUOTE
        is_bt = at + 3 < stop and data[at] == QUOTE and data[at + 1] == _B and data[at + 2] == _T
        if (not is_e or has_e) and (not is_bt or data[at + 3] != QUOTE or has_bt):
            return False
        at = blank_end(data, at + (3 if is_e else 4), stop)
        if at >= stop or data[at] != COLON:
            return False
        at = blank_end(data, at + 1, stop)
        if is_e:
            at = _entries(data, at, stop, names, ends, row, values, texts, spans)
            has_e = True
        else:
            times[row], at = _base_time(data, at, stop)
            has_bt = True
        if at < 0:
            return False
        at = blank_end(data, at, stop)
        if at >= stop:
            return False
        if data[at] == CLOSE:
            return has_e and has_bt and blank_end(data, at + 1, stop) == stop
        if data[at] != COMMA:
            return False
        at += 1


@kernel
def scan(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int32],
    names: NDArray[np.uint8],
    ends: NDArray[np.int32],
    values: NDArray[np.float64],
    texts: NDArray[np.int64],
    times: NDArray[np.int64],
    sure: NDArray[np.bool_],
) -> int:
    """Read the numbers of each message that is not `sure` yet into `values` and the places of its texts into `texts`.

    `names` and `ends` hold the field names as a text column, those of numbers first. Returns how many
    messages are not of the usual form; `sure` tells which.
    """
    spans = np.empty(4, np.int64)
    unsure = 0
    for row in range(len(sure)):
        if sure[row]:
            continue
        start, stop = offsets[row], offsets[row + 1]
        sure[row] = _message(data, start, stop, names, ends, row, values, texts, times, spans)
        if not sure[row]:
            unsure += 1
    return unsure


@uncompiled(scan)
def _leave_all(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int32],
    names: NDArray[np.uint8],
    ends: NDArray[np.int32],
    values: NDArray[np.float64],
    texts: NDArray[np.int64],
    times: NDArray[np.int64],
    sure: NDArray[np.bool_],
) -> int:
    # A JSON library finds the same, and is much faster than the loops above when they are not compiled.
    return int(np.count_nonzero(~sure))


@kernel
def gather_spans(data: NDArray[np.uint8], spans: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Copy the texts `data[spans[i, 0]:spans[i, 1]]` into a text column of their own."""
    offsets = np.empty(len(spans) + 1, np.int32)
    total = 0
    for i in range(len(spans)):
        offsets[i] = total
        total += spans[i, 1] - spans[i, 0]
    offsets[len(spans)] = total
    out = np.empty(total, np.uint8)
    for i in range(len(spans)):
        to, source = out[offsets[i] : offsets[i + 1]], data[spans[i, 0] : spans[i, 1]]
        for j in range(len(source)):
            to[j] = source[j]
    return out, offsets


@uncompiled(gather_spans)
def _gather_spans(data: NDArray[np.uint8], spans: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    sizes = spans[:, 1] - spans[:, 0]
    offsets = np.zeros(len(spans) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return data[np.repeat(spans[:, 0] - offsets[:-1], sizes) + np.arange(offsets[-1])], offsets
