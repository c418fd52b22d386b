"""From keys to slots: dense numbers 0, 1, 2 ... by which keyed state is kept in plain arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headwater.data.hashing import Column, TextArrays, TextColumn, as_bits, hash_bytes, hash_int
from headwater.data.jit import kernel, small_kernel

KeyType = Literal["int", "float", "text"]

_EMPTY = np.int64(-1)
_NO_SEED = np.uint64(0)
_LEAST_TABLE = 64


class KeyIndex:
    """Gives each distinct key a slot, in order of first appearance.

    A key is one value of each of the `kinds` of column that the index was made for. Lookups compare whole
    keys; the hash only says where to look first. A NaN is a key like any other, equal to itself. Two threads
    may not use one index at once.

    >>> index = KeyIndex("int")
    >>> index.slots([np.array([70, 80, 70])])
    array([0, 1, 0])
    >>> index.find([np.array([80, 90])])
    array([ 1, -1])
    >>> index.keys()
    [array([70, 80])]
    """

    def __init__(self, *kinds: KeyType) -> None:
        if not kinds:
            raise ValueError("a key index needs the kind of at least one key column; got none")
        self.kinds = kinds
        self._parts: list[_Ints | _Texts] = [_Texts() if kind == "text" else _Ints() for kind in kinds]
        # Rows of several columns: the slots of the first two form a pair with a slot of its own, and so on.
        self._pairs = [_Ints() for _ in kinds[1:]]

    def __len__(self) -> int:
        """Return how many distinct keys were seen; slots run from 0 to this."""
        return (self._pairs[-1] if self._pairs else self._parts[0]).count

    def slots(self, columns: Sequence[Column]) -> NDArray[np.int64]:
        """Return the slot of each row's key; unseen keys get the next free slots."""
        return self._look_up(columns, add=True)

    def reserve(self, count: int) -> None:
        """Make room for so many keys at once, where they are about to come: growing step by step enters each anew."""
        last: _Ints | _Texts = self._pairs[-1] if self._pairs else self._parts[0]
        last.reserve(count)

    def find(self, columns: Sequence[Column]) -> NDArray[np.int64]:
        """Return the slot of each row's key, or -1 where the key was never seen; nothing is added."""
        return self._look_up(columns, add=False)

    def keys(self, slots: NDArray[np.int64] | None = None) -> list[NDArray[Any] | TextArrays]:
        """Return the key columns of `slots` (of all, when None), in the form that `slots()` takes."""
        at = np.arange(len(self)) if slots is None else np.asarray(slots, np.int64)
        columns: list[NDArray[Any] | TextArrays] = []
        for part, pairs, kind in zip(self._parts[:0:-1], self._pairs[::-1], self.kinds[:0:-1], strict=True):
            both = pairs.values[at]
            columns.append(_key_column(part, both & 0xFFFFFFFF, kind))
            at = both >> 32
        columns.append(_key_column(self._parts[0], at, self.kinds[0]))
        return columns[::-1]

    @property
    def nbytes(self) -> int:
        """Bytes of all tables, room to grow included."""
        return sum(part.nbytes for part in (*self._parts, *self._pairs))

    def subset(self, slots: NDArray[np.int64]) -> KeyIndex:
        """Return an index of the keys of `slots` alone, in which `slots[i]` has become slot i.

        The caller keeps `state[slots]` beside it. So keys are forgotten, and so some of them move elsewhere.
        """
        smaller = KeyIndex(*self.kinds)
        smaller.slots(self.keys(slots))
        if len(smaller) != len(slots):
            raise ValueError(f"a subset names each slot once; got {len(slots)} slots of {len(smaller)} keys")
        return smaller

    def _look_up(self, columns: Sequence[Column], add: bool) -> NDArray[np.int64]:
        if len(columns) != len(self.kinds):
            raise ValueError(f"the key has columns {self.kinds}; got {len(columns)} columns")
        slots = _look_up_column(self._parts[0], columns[0], self.kinds[0], add)
        for i, pairs in enumerate(self._pairs, 1):
            # A row that lacks the slot of one part is negative as a pair, and so no known pair.
            more = _look_up_column(self._parts[i], columns[i], self.kinds[i], add)
            slots = pairs.look_up(slots << 32 | more, add)
        return slots


def _look_up_column(part: _Ints | _Texts, column: Column, kind: KeyType, add: bool) -> NDArray[np.int64]:
    if isinstance(part, _Texts):
        if isinstance(column, np.ndarray):
            raise TypeError(f"a key column was announced as text; got an array of {column.dtype}")
        return part.look_up(column, add)
    if not isinstance(column, np.ndarray):
        raise TypeError(f"a key column was announced as {kind}; got text")
    if kind == "float":
        return part.look_up(as_bits(column.astype(np.float64)), add)
    if column.dtype.kind not in "biu":
        raise TypeError(f"a key column was announced as int; got an array of {column.dtype}")
    return part.look_up(column.astype(np.int64, copy=False), add)


def _key_column(part: _Ints | _Texts, slots: NDArray[np.int64], kind: KeyType) -> NDArray[Any] | TextArrays:
    if isinstance(part, _Texts):
        return part.texts(slots)
    values = part.values[slots]
    return values.view(np.float64) if kind == "float" else values


class _Ints:
    """Slots of 64-bit values, by open addressing: `table[hash]` holds a slot, or -1 where it is free."""

    def __init__(self) -> None:
        self.count = 0
        self.values = np.empty(_LEAST_TABLE // 2, np.int64)
        self._table = np.full(_LEAST_TABLE, _EMPTY)

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self._table.nbytes

    def look_up(self, values: NDArray[np.int64], add: bool) -> NDArray[np.int64]:
        out = np.empty(len(values), np.int64)
        done = 0
        while True:
            done, self.count = _find_ints(values, done, add, self._table, self.values, self.count, out)
            if done == len(values):
                return out
            self._grow()

    def reserve(self, count: int) -> None:
        if count > len(self.values):
            self._grow(2 ** (count - 1).bit_length())

    def _grow(self, room: int = 0) -> None:
        room = room or 2 * len(self.values)
        self.values = np.concatenate([self.values, np.empty(room - len(self.values), np.int64)])
        self._table = np.full(2 * room, _EMPTY)
        _enter_ints(self._table, self.values, self.count)


class _Texts:
    """Slots of texts, like `_Ints`; the bytes of text s are `pool[ends[s]:ends[s + 1]]`."""

    def __init__(self) -> None:
        self.count = 0
        self._hashes = np.empty(_LEAST_TABLE // 2, np.uint64)
        self._ends = np.zeros(_LEAST_TABLE // 2 + 1, np.int64)
        self._pool = np.empty(1024, np.uint8)
        self._table = np.full(_LEAST_TABLE, _EMPTY)

    @property
    def nbytes(self) -> int:
        return self._hashes.nbytes + self._ends.nbytes + self._pool.nbytes + self._table.nbytes

    def look_up(self, texts: TextColumn, add: bool) -> NDArray[np.int64]:
        data, offsets = texts.data, texts.offsets
        out = np.empty(len(offsets) - 1, np.int64)
        done = 0
        while True:
            tables = self._table, self._hashes, self._pool, self._ends
            done, self.count = _find_texts(data, offsets, done, add, *tables, self.count, out)
            if done == len(out):
                return out
            self._grow(need_bytes=int(offsets[done + 1] - offsets[done]))

    def texts(self, slots: NDArray[np.int64]) -> TextArrays:
        ends = np.zeros(len(slots) + 1, np.int64)
        np.cumsum(self._ends[slots + 1] - self._ends[slots], out=ends[1:])
        if ends[-1] > np.iinfo(np.int32).max:
            raise OverflowError(f"{len(slots)} keys have {ends[-1]} bytes; one text column holds 2 GiB at most")
        data = np.empty(ends[-1], np.uint8)
        _take_texts(self._pool, self._ends, slots, data, ends)
        return TextArrays(data, ends.astype(np.int32))

    def reserve(self, count: int) -> None:
        if count > len(self._hashes):
            self._grow_table(2 ** (count - 1).bit_length())

    def _grow(self, need_bytes: int) -> None:
        if len(self._pool) - self._ends[self.count] < need_bytes:
            self._pool = np.concatenate([self._pool, np.empty(len(self._pool) + need_bytes, np.uint8)])
        if self.count == len(self._hashes):
            self._grow_table(2 * len(self._hashes))

    def _grow_table(self, room: int) -> None:
        added = room - len(self._hashes)
        self._ends = np.concatenate([self._ends, np.empty(added, np.int64)])
        self._hashes = np.concatenate([self._hashes, np.empty(added, np.uint64)])
        self._table = np.full(2 * room, _EMPTY)
        _enter_hashes(self._table, self._hashes, self.count)


@kernel
def _find_ints(
    values: NDArray[np.int64],
    done: int,
    add: bool,
    table: NDArray[np.int64],
    keys: NDArray[np.int64],
    count: int,
    out: NDArray[np.int64],
) -> tuple[int, int]:
    # Stops at the first unseen key that has no room; the table stays at most half full, so probes are short.
    mask = np.uint64(len(table) - 1)
    for i in range(done, len(values)):
        at = hash_int(values[i], _NO_SEED) & mask
        slot = table[at]
        while slot >= 0 and keys[slot] != values[i]:
            at = (at + np.uint64(1)) & mask
            slot = table[at]
        if slot < 0 and add:
            if count == len(keys):
                return i, count
            slot = count
            keys[slot] = values[i]
            table[at] = slot
            count += 1
        out[i] = slot
    return len(values), count


@small_kernel
def _enter(table: NDArray[np.int64], h: np.uint64, slot: int) -> None:
    mask = np.uint64(len(table) - 1)
    at = h & mask
    while table[at] >= 0:
        at = (at + np.uint64(1)) & mask
    table[at] = slot


@kernel
def _enter_ints(table: NDArray[np.int64], keys: NDArray[np.int64], count: int) -> None:
    for slot in range(count):
        _enter(table, hash_int(keys[slot], _NO_SEED), slot)


@kernel
def _find_texts(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int32],
    done: int,
    add: bool,
    table: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    pool: NDArray[np.uint8],
    ends: NDArray[np.int64],
    count: int,
    out: NDArray[np.int64],
) -> tuple[int, int]:
    mask = np.uint64(len(table) - 1)
    for i in range(done, len(out)):
        start = int(offsets[i])
        length = int(offsets[i + 1]) - start
        h = hash_bytes(data, start, start + length, _NO_SEED)
        at = h & mask
        slot = table[at]
        while slot >= 0:
            if hashes[slot] == h and ends[slot + 1] - ends[slot] == length:
                begin = ends[slot]
                same = 0
                while same < length and data[start + same] == pool[begin + same]:
                    same += 1
                if same == length:
                    break
            at = (at + np.uint64(1)) & mask
            slot = table[at]
        if slot < 0 and add:
            if count == len(hashes) or ends[count] + length > len(pool):
                return i, count
            slot = count
            pool[ends[slot] : ends[slot] + length] = data[start : start + length]
            ends[slot + 1] = ends[slot] + length
            hashes[slot] = h
            table[at] = slot
            count += 1
        out[i] = slot
    return len(out), count


@kernel
def _enter_hashes(table: NDArray[np.int64], hashes: NDArray[np.uint64], count: int) -> None:
    for slot in range(count):
        _enter(table, hashes[slot], slot)


@kernel
def _take_texts(
    pool: NDArray[np.uint8],
    ends: NDArray[np.int64],
    slots: NDArray[np.int64],
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
) -> None:
    for i in range(len(slots)):
        data[offsets[i] : offsets[i + 1]] = pool[ends[slots[i]] : ends[slots[i] + 1]]
