"""Texts built row by row from fixed pieces and columns: JSON lines, CSV lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from headwater.data.decimal import write_digits, write_float32, write_int
from headwater.data.hashing import TextArrays, TextColumn
from headwater.data.jit import kernel, uncompiled

_LONGEST_FLOAT32, _LONGEST_INT = 24, 20  # bytes
_MINUS, _DOT = 45, 46
_QUOTE, _BACKSLASH, _SPACE, _ZERO, _LOWER_A = 34, 92, 32, 48, 97
_UNSAFE = re.compile(rb'[\x00-\x1f"\\]')
_ESCAPED_CONTROL = np.frombuffer(b"\\u00", np.uint8)


def float32_texts(values: NDArray[np.float32]) -> TextArrays:
    """Write numbers as the shortest decimals that bring the 32-bit floats back.

    >>> bytes(float32_texts(np.array([8, 53.7], np.float32)).data)
    b'8.053.7'
    """
    return TextArrays(*_float32_texts(values))


def float32_rows(values: NDArray[np.float32], after: str) -> TextArrays:
    """Write each row of numbers as one text, every number followed by the sign `after`.

    >>> bytes(float32_rows(np.array([[8, 53.7]], np.float32), "#").data)
    b'8.0#53.7#'
    """
    return TextArrays(*_float32_rows(values, ord(after)))


def decimal_texts(values: NDArray[np.float64], places: int) -> TextArrays:
    """Write numbers below 10^15 with at most so many decimals, and no more than they need.

    >>> bytes(decimal_texts(np.array([8, 53.70, -0.06]), 1).data)
    b'853.7-0.1'
    """
    return TextArrays(*_decimal_texts(values, places))


class TextFormat:
    """Builds one text for each row: a piece, the first column's text, the next piece, and so on.

    With `escape`, the columns' texts are written so that they may stand between the quotes of a JSON string.

    >>> from headwater.data.column import Text
    >>> line = TextFormat([b'{"name":"', b'","at":', b"}"], escape=True)
    >>> Text(*line.format([Text.of(['a"b', "c"]), Text.of(["1", "2"])])).tolist()
    ['{"name":"a\\\\"b","at":1}', '{"name":"c","at":2}']
    """

    def __init__(self, pieces: Sequence[bytes], *, escape: bool) -> None:
        self._escape = escape
        self._pieces = np.frombuffer(b"".join(pieces), np.uint8)
        self._ends = np.cumsum([0] + [len(piece) for piece in pieces])

    def format(self, columns: Sequence[TextColumn]) -> TextArrays:
        """Return the text of each row; as many columns as there are pieces, less one."""
        if len(columns) != len(self._ends) - 2:
            raise ValueError(f"{len(self._ends) - 1} pieces hold {len(self._ends) - 2} columns; got {len(columns)}")
        # All columns become one, so that the kernel needs few arguments: their bytes end to end, their
        # offsets moved.
        edges = np.concatenate([column.offsets for column in columns]).reshape(len(columns), -1).astype(np.int64)
        first, last = edges[:, 0].tolist(), edges[:, -1].tolist()
        data = np.concatenate([c.data[a:b] for c, a, b in zip(columns, first, last, strict=True)])
        sizes = edges[:, -1] - edges[:, 0]
        edges += (np.cumsum(sizes) - sizes - edges[:, 0])[:, None]
        return TextArrays(*_format(self._pieces, self._ends, data, edges, self._escape))


@kernel
def _float32_texts(values: NDArray[np.float32]) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    out = np.empty(len(values) * _LONGEST_FLOAT32, np.uint8)
    offsets = np.empty(len(values) + 1, np.int32)
    at = 0
    for i in range(len(values)):
        offsets[i] = at
        at = write_float32(values[i], out, at)
    offsets[len(values)] = at
    return out[:at], offsets


@kernel
def _float32_rows(values: NDArray[np.float32], after: int) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    out = np.empty(values.size * (_LONGEST_FLOAT32 + 1), np.uint8)
    offsets = np.empty(len(values) + 1, np.int32)
    at = 0
    for i in range(len(values)):
        offsets[i] = at
        for k in range(values.shape[1]):
            at = write_float32(values[i, k], out, at)
            out[at] = after
            at += 1
    offsets[len(values)] = at
    return out[:at], offsets


@kernel
def _decimal_texts(values: NDArray[np.float64], places: int) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    out = np.empty(len(values) * (_LONGEST_INT + 1 + places), np.uint8)
    offsets = np.empty(len(values) + 1, np.int32)
    scale = 10**places
    at = 0
    for i in range(len(values)):
        offsets[i] = at
        scaled = int(np.rint(values[i] * scale))
        if scaled < 0:
            out[at] = _MINUS
            at, scaled = at + 1, -scaled
        at = write_int(scaled // scale, out, at)
        rest, digits = scaled % scale, places
        while digits > 0 and rest % 10 == 0:
            rest, digits = rest // 10, digits - 1
        if digits > 0:
            out[at] = _DOT
            at = write_digits(rest, digits, out, at + 1)
    offsets[len(values)] = at
    return out[:at], offsets


@kernel
def _escaped_size(data: NDArray[np.uint8]) -> int:
    size = len(data)
    for i in range(len(data)):  # without branches, so that many are counted at once
        size += 5 * (data[i] < _SPACE) + (data[i] == _QUOTE) + (data[i] == _BACKSLASH)
    return size


@uncompiled(_escaped_size)
def _escaped_size_at_once(data: NDArray[np.uint8]) -> int:
    escaped = np.count_nonzero(data == _QUOTE) + np.count_nonzero(data == _BACKSLASH)
    return len(data) + int(escaped) + 5 * int(np.count_nonzero(data < _SPACE))


@kernel
def _copy(data: NDArray[np.uint8], start: int, stop: int, out: NDArray[np.uint8], at: int) -> int:
    target, source = out[at : at + stop - start], data[start:stop]
    for i in range(len(source)):  # in machine code faster than to assign the slice, by far
        target[i] = source[i]
    return at + stop - start


@uncompiled(_copy)
def _copy_at_once(data: NDArray[np.uint8], start: int, stop: int, out: NDArray[np.uint8], at: int) -> int:
    out[at : at + stop - start] = data[start:stop]
    return at + stop - start


@kernel
def _copy_escaped(data: NDArray[np.uint8], start: int, stop: int, out: NDArray[np.uint8], at: int) -> int:
    for i in range(start, stop):
        letter = data[i]
        if letter < _SPACE:
            at = _copy(_ESCAPED_CONTROL, 0, 4, out, at)
            low = letter & 15
            out[at] = _ZERO + (letter >> 4)
            out[at + 1] = _ZERO + low if low < 10 else _LOWER_A + low - 10
            at += 2
            continue
        if letter in (_QUOTE, _BACKSLASH):
            out[at] = _BACKSLASH
            at += 1
        out[at] = letter
        at += 1
    return at


@kernel
def _format(
    pieces: NDArray[np.uint8],
    ends: NDArray[np.int64],
    data: NDArray[np.uint8],
    edges: NDArray[np.int64],
    escape: bool,
) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    columns, rows = edges.shape[0], edges.shape[1] - 1
    size = _escaped_size(data) if escape else len(data)
    escape = size > len(data)  # mostly there is nothing to escape
    out = np.empty(rows * len(pieces) + size, np.uint8)
    offsets = np.empty(rows + 1, np.int32)
    at = 0
    for i in range(rows):
        offsets[i] = at
        for k in range(columns):
            at = _copy(pieces, int(ends[k]), int(ends[k + 1]), out, at)
            start, stop = int(edges[k, i]), int(edges[k, i + 1])
            at = _copy_escaped(data, start, stop, out, at) if escape else _copy(data, start, stop, out, at)
        at = _copy(pieces, int(ends[columns]), int(ends[columns + 1]), out, at)
    offsets[rows] = at
    return out, offsets


@uncompiled(_format)
def _format_at_once(
    pieces: NDArray[np.uint8], ends: NDArray[np.int64], data: NDArray[np.uint8], edges: NDArray[np.int64], escape: bool
) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    content, literals = data.tobytes(), pieces.tobytes()
    row = b"%b".join(literals[a:b].replace(b"%", b"%%") for a, b in pairwise(ends.tolist()))
    columns = [[content[a:b] for a, b in pairwise(cuts)] for cuts in edges.tolist()]
    if escape and _UNSAFE.search(content):
        columns = [[_UNSAFE.sub(_escaped, value) for value in column] for column in columns]
    texts = [row % values for values in zip(*columns, strict=True)]
    offsets = np.zeros(len(texts) + 1, np.int32)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    return np.frombuffer(bytearray(b"".join(texts)), np.uint8), offsets


def _escaped(match: re.Match[bytes]) -> bytes:
    letter = match[0]
    return b"\\" + letter if letter >= b" " else b"\\u%04x" % letter[0]
