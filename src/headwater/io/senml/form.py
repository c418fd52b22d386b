"""Messages of a form seen before: all that does not change is compared, and only the values are read.

A device writes the same names and units in the same order again and again. The form of one message, once known, is what lies
between its values; a message that has it needs no taking apart, and one that has not is left to the scan.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headwater.data.decimal import read_decimal
from headwater.data.jit import kernel, uncompiled
from headwater.io.json.lexer import QUOTE, string_end
from headwater.io.senml.scan import number_end

_ZERO, _NINE = 48, 57
_TIME, _NOTHING = -1, -2  #: what a value is for, when it is no field's
_ENTRY = re.compile(rb"\{[^{}]*\}")
_NAME = re.compile(rb'"n"\s*:\s*"([^"\\]*)"')
_VALUE = re.compile(rb'"s?v"\s*:\s*(?:"(?P<text>[^"\\]*)"|(?P<number>-?[0-9][-+.eE0-9]*))')
_BASE_TIME = re.compile(rb'"bt"\s*:\s*"?([0-9]+)')


@dataclass(frozen=True, slots=True)
class Form:
    """What lies before, between and after the values of a message, and which field each value is for."""

    pieces: NDArray[np.uint8]  #: all pieces in a row
    ends: NDArray[np.int64]  #: where each piece starts, and the last one ends
    fields: NDArray[np.int64]  #: the field of the value behind each piece but the last


def form_of(message: bytes, names: Sequence[str]) -> Form | None:
    """Return the form of a message that the scan has understood, or None when it is too unusual to be told.

    >>> form = form_of(b'{"e":[{"n":"a","v":"1"}],"bt":5}', ["a"])
    >>> bytes(form.pieces), form.ends.tolist(), form.fields.tolist()
    (b'{"e":[{"n":"a","v":""}],"bt":}', [0, 20, 29, 30], [0, -1])
    """
    values: list[tuple[int, int, int]] = []
    for entry in _ENTRY.finditer(message):
        matches, name_match = list(_VALUE.finditer(message, *entry.span())), _NAME.search(entry[0])
        if len(matches) != 1 or name_match is None:  # a value and a text value, say
            return None
        name, span = name_match[1].decode(), matches[0].span(matches[0].lastgroup or 0)
        values.append((*span, names.index(name) if name in names else _NOTHING))
    times = list(_BASE_TIME.finditer(message))
    if len(times) != 1:
        return None
    values.append((*times[0].span(1), _TIME))
    values.sort()
    starts, stops = [0, *(stop for _, stop, _ in values)], [*(start for start, _, _ in values), len(message)]
    pieces = [message[start:stop] for start, stop in zip(starts, stops, strict=True)]
    ends = np.cumsum([0, *(len(piece) for piece in pieces)])
    fields = np.array([field for _, _, field in values])
    return Form(np.frombuffer(bytearray().join(pieces), np.uint8), ends, fields)


@kernel
def _differs(data: NDArray[np.uint8], at: int, pieces: NDArray[np.uint8], start: int, end: int) -> bool:
    mine, other = data[at : at + end - start], pieces[start:end]
    difference = np.uint8(0)
    for i in range(len(other)):  # to the end in any case, since that takes many bytes at once
        difference |= mine[i] ^ other[i]
    return bool(difference != 0)


@kernel
def _message(
    data: NDArray[np.uint8],
    at: int,
    stop: int,
    pieces: NDArray[np.uint8],
    ends: NDArray[np.int64],
    fields: NDArray[np.int64],
    row: int,
    values: NDArray[np.float64],
    texts: NDArray[np.int64],
    times: NDArray[np.int64],
) -> bool:
    for k in range(len(fields) + 1):
        length = ends[k + 1] - ends[k]
        if at + length > stop or _differs(data, at, pieces, ends[k], ends[k + 1]):
            return False
        at += length
        if k == len(fields):
            return bool(at == stop)
        field, first = fields[k], at
        if field == _TIME:
            time = 0
            while at < stop and _ZERO <= data[at] <= _NINE:
                time = time * 10 + (int(data[at]) - _ZERO)
                at += 1
            # a bare number has no zero in front; a string may, which the scan can tell
            if at == first or at - first > 15 or (data[first] == _ZERO and at - first > 1):
                return False
            times[row] = time
            continue
        at = string_end(data, at, stop) if data[at - 1] == QUOTE else number_end(data, at, stop)
        if at < 0:
            return False
        if 0 <= field < len(values):
            value, sure = read_decimal(data, first, at)
            if not sure:
                return False
            values[field, row] = value
        elif field >= 0:
            texts[field - len(values), row, 0] = first
            texts[field - len(values), row, 1] = at
    return False


@kernel
def read_form(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int32],
    pieces: NDArray[np.uint8],
    ends: NDArray[np.int64],
    fields: NDArray[np.int64],
    values: NDArray[np.float64],
    texts: NDArray[np.int64],
    times: NDArray[np.int64],
    sure: NDArray[np.bool_],
) -> int:
    """Read what the scan reads from the messages that have a form; return how many have not, `sure` tells which."""
    missed = 0
    for row in range(len(sure)):
        start, stop = int(offsets[row]), int(offsets[row + 1])
        sure[row] = _message(data, start, stop, pieces, ends, fields, row, values, texts, times)
        if not sure[row]:
            missed += 1
    return missed


@uncompiled(read_form)
def _leave_all(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int32],
    pieces: NDArray[np.uint8],
    ends: NDArray[np.int64],
    fields: NDArray[np.int64],
    values: NDArray[np.float64],
    texts: NDArray[np.int64],
    times: NDArray[np.int64],
    sure: NDArray[np.bool_],
) -> int:
    # The scan, or a JSON library, finds the same, and faster than the loops above when they are not compiled.
    return len(sure)
