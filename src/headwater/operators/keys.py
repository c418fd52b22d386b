"""From a batch's key columns to slots, with records that have no key set apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from headwater.data.batch import Batch
from headwater.data.column import Array, Column, Text, parts
from headwater.data.schema import Schema

_KINDS = {"text": "text", "float": "float", "float32": "float"}


class KeySlots:
    """Gives each key a slot, in order of first appearance; no key columns means one slot for all.

    Grows by one slot per new key and is emptied by `keep`.
    """

    def __init__(self, schema: Schema, names: tuple[str, ...]) -> None:
        self.names = names
        self._types = [schema[name] for name in names]
        self._index = self._new()
        self._used = 0

    def _new(self) -> Any:
        from headwater.data.keys import KeyIndex

        return KeyIndex(*(_KINDS.get(kind, "int") for kind in self._types)) if self.names else None  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(self._index) if self.names else self._used

    def slots(self, columns: list[Array | Text]) -> Array:
        """Return the slot of each row's key."""
        if not self.names:
            raise AssertionError("without key columns, use slots_of")
        found: Array = self._index.slots(columns)
        return found

    def slots_of(self, batch: Batch) -> Array:
        """Return the slot of each record's key."""
        if not self.names:
            self._used = 1
            return np.zeros(batch.length, np.int64)
        return self.slots([batch.columns[name] for name in self.names])  # type: ignore[misc]

    def columns(self, slots: Array) -> dict[str, Column]:
        """Return the key columns of these slots."""
        if not self.names:
            return {}
        found = self._index.keys(slots)
        return {
            name: Text(column.data, column.offsets) if kind == "text" else _as(column, kind)
            for name, kind, column in zip(self.names, self._types, found, strict=True)
        }

    @property
    def nbytes(self) -> int:
        """Bytes of the index."""
        return self._index.nbytes if self.names else 0

    def keep(self, slots: Array) -> None:
        """Forget all keys but those of `slots`; `slots[i]` becomes slot i."""
        if self.names:
            self._index = self._index.subset(slots)
        else:
            self._used = len(slots)


def _as(column: Any, kind: str) -> Array:
    dtype = {"bool": np.bool_, "float32": np.float32, "float": np.float64}.get(kind, np.int64)
    return np.asarray(column).astype(dtype, copy=False)


def without_key(batch: Batch, names: tuple[str, ...]) -> Array | None:
    """Return which records have a missing or NaN key, or None when all have one."""
    bad = None
    for name in names:
        values, valid = parts(batch.columns[name])
        lacking = None if valid is None else ~valid
        if isinstance(values, np.ndarray) and values.dtype.kind == "f":
            nan = np.isnan(values)
            lacking = nan if lacking is None else lacking | nan
        if lacking is not None and lacking.any():
            bad = lacking if bad is None else bad | lacking
    return bad
