"""The records that partial matches hold on to: their columns, and the values by which they are compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from headwater.data.column import Array, Column, Nullable, Text, parts
from headwater.data.keys import KeyIndex
from headwater.data.schema import DTYPES, Type

_ROOM = 1024


class EventStore:
    """Columns that grow at the end, addressed by row number; texts are kept once each and as their number."""

    def __init__(self, kinds: Mapping[str, Type], values: int) -> None:
        self._kinds = dict(kinds)
        self.length = 0
        self.values = np.zeros((values, _ROOM), np.int64)  #: what the kernels compare
        self._stamps = np.zeros((_ROOM, 2), np.int64)
        self._columns: dict[str, Array] = {name: np.zeros(_ROOM, _dtype(kind)) for name, kind in kinds.items()}
        self._valid: dict[str, Array] = {}  #: only for columns in which something was missing
        self._texts = KeyIndex("text")

    def codes_of(self, column: Text) -> Array:
        """Return the number of each text, the same for equal texts."""
        codes: Array = self._texts.slots([column])
        return codes

    def append(self, columns: Mapping[str, Column], values: Array, stamps: Array) -> int:
        """Add records and return the row of the first."""
        base, stop = self.length, self.length + len(stamps)
        self._reserve(stop)
        for name, column in columns.items():
            data, valid = parts(column)
            self._columns[name][base:stop] = self.codes_of(data) if isinstance(data, Text) else data
            if valid is not None or name in self._valid:
                mask = self._valid.setdefault(name, np.ones(len(self._stamps), np.bool_))
                mask[base:stop] = True if valid is None else valid
        self.values[:, base:stop] = values
        self._stamps[base:stop] = stamps
        self.length = stop
        return base

    def column(self, name: str, rows: Array) -> Column:
        """Return a column of these rows; where a row is -1, there is no value."""
        is_valid = rows >= 0
        valid = None if is_valid.all() else is_valid
        rows = rows if valid is None else np.maximum(rows, 0)
        if name in self._valid:
            not_null = self._valid[name][rows]
            valid = not_null if valid is None else valid & not_null
        values: Any = self._columns[name][rows]
        if self._kinds[name] == "text":
            if valid is not None:
                values = np.where(valid, values, 0)
            texts: Any = self._texts.keys(values)[0] if self.texts else Text.of([""] * len(rows))
            values = Text(texts.data, texts.offsets)
        return values if valid is None or valid.all() else Nullable(values, valid)

    def stamps(self, rows: Array) -> Array:
        """Return the stamps of these rows."""
        return self._stamps[rows]

    def keep(self, rows: Array) -> None:
        """Forget all rows but these; `rows[i]` becomes row i."""
        n = self.length = len(rows)
        for array in (*self._columns.values(), *self._valid.values(), self._stamps):
            array[:n] = array[rows]
        self.values[:, :n] = self.values[:, rows]

    @property
    def texts(self) -> int:
        """How many different texts are known."""
        return len(self._texts)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays, room to grow included."""
        arrays = [self.values, self._stamps, *self._columns.values(), *self._valid.values()]
        return int(sum(array.nbytes for array in arrays)) + self._texts.nbytes

    def _reserve(self, rows: int) -> None:
        if rows <= len(self._stamps):
            return
        room = max(rows, 2 * len(self._stamps))
        self.values = np.concatenate(
            [self.values, np.zeros((len(self.values), room - self.values.shape[1]), np.int64)], axis=1
        )
        for arrays in (self._columns, self._valid):
            for name, array in arrays.items():
                fill = np.ones if array.dtype == np.bool_ else np.zeros
                arrays[name] = np.concatenate([array, fill(room - len(array), array.dtype)])
        self._stamps = np.concatenate([self._stamps, np.zeros((room - len(self._stamps), 2), np.int64)])


def _dtype(kind: Type) -> Any:
    return np.int64 if kind == "text" else DTYPES[kind]
