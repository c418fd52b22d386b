"""From a batch's key columns to slots, with records that have no key set apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from headwater.data.batch import Batch
from headwater.data.column import Array, Column, Text, parts
from headwater.data.schema import Schema
from headwater.operators.operator import Select

IDLE_KEYS = 1 << 14  #: keys known beyond twice those in use before the idle ones are forgotten

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
        slots: Array = self._index.slots(columns)
        return slots

    def reserve(self, count: int) -> None:
        """Make room for so many keys, which are about to come."""
        if self.names:
            self._index.reserve(count)

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
        columns = self._index.keys(slots)
        return {
            name: Text(column.data, column.offsets) if kind == "text" else _as(column, kind)
            for name, kind, column in zip(self.names, self._types, columns, strict=True)
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


class IdleKeys:
    """Says when to look for keys that nothing is kept of: the more are in use, the more may be known."""

    def __init__(self) -> None:
        self._limit = IDLE_KEYS
        self.forgotten = 0  #: how many keys were forgotten so far

    def may_be_many(self, count: int) -> bool:
        """Say whether idle keys may be the greater part of those known."""
        return count > self._limit

    def worth(self, idle: int) -> bool:
        """Say whether forgetting so many is worth starting over without them."""
        return idle > IDLE_KEYS // 2

    def note(self, count: int, remaining: int) -> None:
        """Learn that of the known keys these many are left."""
        self.forgotten += count - remaining
        self._limit = IDLE_KEYS + 2 * remaining


def _as(column: Any, kind: str) -> Array:
    dtype = {"bool": np.bool_, "float32": np.float32, "float": np.float64}.get(kind, np.int64)
    return np.asarray(column).astype(dtype, copy=False)


def without_key(batch: Batch, names: tuple[str, ...]) -> Array | None:
    """Return which records have a missing or NaN key, or None when all have one."""
    bad = None
    for name in names:
        values, valid = parts(batch.columns[name])
        missing = None if valid is None else ~valid
        if isinstance(values, np.ndarray) and values.dtype.kind == "f":
            nan = np.isnan(values)
            missing = nan if missing is None else missing | nan
        if missing is not None and missing.any():
            bad = missing if bad is None else bad | missing
    return bad


def select_slots(keys: KeySlots, select: Select | None) -> Array:
    """Return the slots of the keys that `select` chooses, or of all."""
    slots = np.arange(len(keys))
    if select is None or not len(slots) or not keys.names:
        return slots
    return slots[select.rows(list(keys.columns(slots).values()))]  # type: ignore[arg-type]


def keys_batch(columns: dict[str, Column], length: int) -> Batch:
    """Return a batch of key columns alone."""
    return Batch(columns, length, np.zeros((length, 2), np.int64))
