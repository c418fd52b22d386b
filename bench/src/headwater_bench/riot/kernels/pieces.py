"""Messages put together again from their pieces, by message id."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwater.data.hashing import hash_int, place_of
from headwater.data.jit import kernel

_SEED = np.uint64(0)


class Pieces:
    """Collects `field_count` values for each message id and hands a message out when its last field arrives.

    A field that comes again before that replaces its value. A finished message is forgotten, so memory is
    bounded by how many are open at once.
    """

    def __init__(self, field_count: int) -> None:
        self.field_count = field_count
        self._make_room(64)

    def __len__(self) -> int:
        """Return how many messages are open."""
        return len(self._ids) - int(self._free_count[0])

    def add(
        self, ids: NDArray[np.int64], fields: NDArray[np.int64], values: NDArray[np.float32]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Enter piece i, the value of field `fields[i]` of message `ids[i]`.

        Returns the rows of the pieces that finished a message, and all values of those messages.
        """
        rows = np.empty(len(ids), np.int64)
        out = np.empty((len(ids), self.field_count), np.float32)
        entered = finished = 0
        while True:
            state = self._table, self._ids, self._seen, self._values, self._free, self._free_count
            entered, finished = _put_together(ids, fields, values, *state, rows, out, entered, finished)
            if entered == len(ids):
                return rows[:finished], out[:finished]
            waiting = self.open()
            self._make_room(2 * len(self))  # for those that are open: all that come would be a table beyond the caches
            self.restore(*waiting)

    def open(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
        """Return what is waiting: message ids, which fields are there (as bits), and the values."""
        slots = np.sort(self._table[self._table >= 0])
        return self._ids[slots].copy(), self._seen[slots].copy(), self._values[slots].copy()

    def restore(self, ids: NDArray[np.int64], seen: NDArray[np.int64], values: NDArray[np.float32]) -> None:
        """Take back what `open()` gave, beside what is here."""
        for field in range(self.field_count):
            there = np.flatnonzero(seen >> field & 1)
            self.add(ids[there], np.full(len(there), field), values[there, field])

    def _make_room(self, slots: int) -> None:
        size = 1 << (2 * slots - 1).bit_length()
        self._table = np.full(size, -1, np.int64)
        self._ids = np.zeros(size // 2, np.int64)
        self._seen = np.zeros(size // 2, np.int64)
        self._values = np.zeros((size // 2, self.field_count), np.float32)
        self._free = np.arange(size // 2)[::-1].copy()
        self._free_count = np.array([size // 2])


@kernel
def _home(message: int, mask: int) -> int:
    return place_of(hash_int(message, _SEED), mask + 1)


@kernel
def _remove(table: NDArray[np.int64], ids: NDArray[np.int64], at: int) -> None:
    # Closes the gap: whatever was pushed past it by earlier entries moves back toward its home.
    mask = len(table) - 1
    hole = at
    while True:
        at = (at + 1) & mask
        if table[at] < 0:
            break
        if (at - _home(ids[table[at]], mask)) & mask >= (at - hole) & mask:
            table[hole] = table[at]
            hole = at
    table[hole] = -1


@kernel
def _put_together(
    ids: NDArray[np.int64],
    fields: NDArray[np.int64],
    values: NDArray[np.float32],
    table: NDArray[np.int64],
    message_ids: NDArray[np.int64],
    seen: NDArray[np.int64],
    partial: NDArray[np.float32],
    free: NDArray[np.int64],
    free_count: NDArray[np.int64],
    rows: NDArray[np.int64],
    out: NDArray[np.float32],
    entered: int,
    finished: int,
) -> tuple[int, int]:
    """Go on where pieces were entered; return how many are now, all unless the room is full, and how many messages made."""
    mask, every = len(table) - 1, (1 << partial.shape[1]) - 1
    for i in range(entered, len(ids)):
        at = _home(ids[i], mask)
        while table[at] >= 0 and message_ids[table[at]] != ids[i]:
            at = (at + 1) & mask
        slot = table[at]
        if slot < 0:
            if free_count[0] == 0:
                return i, finished
            free_count[0] -= 1
            slot = free[free_count[0]]
            table[at], message_ids[slot], seen[slot] = slot, ids[i], 0
        seen[slot] |= 1 << fields[i]
        partial[slot, fields[i]] = values[i]
        if seen[slot] == every:
            out[finished], rows[finished] = partial[slot], i
            finished += 1
            _remove(table, message_ids, at)
            free[free_count[0]] = slot
            free_count[0] += 1
    return len(ids), finished
