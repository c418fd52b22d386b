"""Finding the partners of records: chains of rows by key."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from headwater.data.jit import kernel

Array = npt.NDArray[Any]


@kernel
def chain(slots: Array, first_row: int, head: Array, following: Array) -> None:
    """Put rows first_row, first_row + 1, ... at the front of their keys' chains."""
    for i in range(len(slots)):
        following[first_row + i] = head[slots[i]]
        head[slots[i]] = first_row + i


@kernel
def pairs(
    slots: Array,
    times: Array,
    head: Array,
    following: Array,
    other_times: Array,
    within: int,
    left: Array,
    right: Array,
) -> int:
    """Write the pairs (record, row of the other side) that lie within a time of each other; return how many there are.

    Pairs beyond the room in `left` and `right` are counted but not written.
    """
    n = 0
    for i in range(len(slots)):
        row = head[slots[i]]
        while row >= 0:
            apart = other_times[row] - times[i]
            if -within <= apart <= within:
                if n < len(left):
                    left[n] = i
                    right[n] = row
                n += 1
            row = following[row]
    return n
