"""Lines of comma-separated values, a batch at a time, into columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headwater.data.decimal import read_decimal
from headwater.data.hashing import TextArrays, TextColumn
from headwater.data.jit import kernel
from headwater.errors import FlowError
from headwater.io.senml.columns import ValueType
from headwater.io.senml.scan import gather_spans

_COMMA, _RETURN = 44, 13
_SPAN, _TOO_FEW, _TOO_MANY, _NOT_A_NUMBER = 0, 1, 2, 3


class Split(NamedTuple):
    """What a batch of lines said; where `status` is not 0, values are 0 and texts empty."""

    columns: dict[str, NDArray[np.float64] | TextArrays]
    status: NDArray[np.int64]


class CsvSplitter:
    """Splits lines at their commas and reads those of the named columns that `kinds` has.

    There is no quoting: the benchmark's files have none. A line with another number of columns than `names`,
    and a float column that Python's `float` would not read or that is not finite, give a status.

    >>> from headwater.data.column import Text
    >>> splitter = CsvSplitter(["id", "x", "y"], {"y": "float", "id": "text"})
    >>> split = splitter.split(Text.of(["a,1,2.5", "b,1"]))
    >>> split.columns["y"], [splitter.explain(status) for status in split.status]
    (array([2.5, 0. ]), ['', 'expected 3 columns; got fewer'])
    """

    def __init__(self, names: Sequence[str], kinds: Mapping[str, ValueType]) -> None:
        unknown = [name for name in kinds if name not in names]
        if unknown or len(set(names)) != len(names):
            raise FlowError(f"CSV columns are {list(names)}, each once; wanted {list(kinds)}")
        self.names = list(names)
        self._kinds = dict(kinds)
        self._floats = [name for name, kind in kinds.items() if kind == "float"]
        self._texts = [name for name, kind in kinds.items() if kind == "text"]
        # For each column of a line: the float row, or -1 - text row, that takes it; no entry takes a large
        # number.
        self._target = np.full(len(names), len(names), np.int64)
        for row, name in enumerate(self._floats):
            self._target[self.names.index(name)] = row
        for row, name in enumerate(self._texts):
            self._target[self.names.index(name)] = -1 - row

    def split(self, lines: TextColumn) -> Split:
        """Read a text column of lines; a carriage return at the end of one is not part of it."""
        count = len(lines.offsets) - 1
        values = np.empty((len(self._floats), count))
        spans = np.empty((len(self._texts), count, 2), np.int64)
        status = np.empty(count, np.int64)
        if _split(lines.data, lines.offsets, self._target, values, spans, status):
            self._read_with_care(lines, values, spans, status)
        columns: dict[str, NDArray[np.float64] | TextArrays] = dict(zip(self._floats, values, strict=True))
        for row, name in enumerate(self._texts):
            columns[name] = TextArrays(*gather_spans(lines.data, spans[row]))
        return Split({name: columns[name] for name in self._kinds}, status)

    def explain(self, status: int) -> str:
        """Say in words what a status means; nothing for 0."""
        reason, column = int(status) & 0xFF, self.names[int(status) >> 8]
        return {
            _SPAN: "",
            _TOO_FEW: f"expected {len(self.names)} columns; got fewer",
            _TOO_MANY: f"expected {len(self.names)} columns; got more",
            _NOT_A_NUMBER: f"column {column!r} is not a finite number",
        }[reason]

    def _read_with_care(
        self,
        lines: TextColumn,
        values: NDArray[np.float64],
        spans: NDArray[np.int64],
        status: NDArray[np.int64],
    ) -> None:
        # What the compiled split would not round, `float` reads; what neither reads keeps its status.
        for row in np.flatnonzero(status):
            raw = lines.data[lines.offsets[row] : lines.offsets[row + 1]].tobytes()
            fields = raw.removesuffix(b"\r").split(b",")
            if len(fields) == len(self.names):
                status[row] = self._read_floats(fields, values[:, row])
            if status[row]:
                values[:, row] = 0
                spans[:, row] = 0

    def _read_floats(self, fields: list[bytes], out: NDArray[np.float64]) -> int:
        for k, name in enumerate(self._floats):
            column = self.names.index(name)
            try:
                out[k] = float(fields[column].decode())
            except ValueError:
                return _NOT_A_NUMBER | column << 8
            if not np.isfinite(out[k]):
                return _NOT_A_NUMBER | column << 8
        return 0


@kernel
def _split(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int32],
    target: NDArray[np.int64],
    values: NDArray[np.float64],
    spans: NDArray[np.int64],
    status: NDArray[np.int64],
) -> int:
    columns, odd = len(target), 0
    for i in range(len(status)):
        start, stop = int(offsets[i]), int(offsets[i + 1])
        if stop > start and data[stop - 1] == _RETURN:
            stop -= 1
        status[i] = _SPAN
        column, at = 0, start
        while True:
            while at < stop and data[at] != _COMMA:
                at += 1
            if column >= columns:
                status[i] = _TOO_MANY
                break
            row = target[column]
            if row < 0:
                spans[-1 - row, i, 0], spans[-1 - row, i, 1] = start, at
            elif row < columns:
                values[row, i], sure = read_decimal(data, start, at)
                if not sure and status[i] == _SPAN:
                    status[i] = _NOT_A_NUMBER | column << 8
            column += 1
            at += 1
            start = at
            if at > stop:
                break
        if column < columns:
            status[i] = _TOO_FEW
        if status[i] != _SPAN:
            odd += 1
    return odd
