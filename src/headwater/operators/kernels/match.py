"""Finding the partners of records: chains of rows by key."""

# Numba infers the types of kernels
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
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


@kernel
def pair(
    sides, slots, places, times, limits, spans, active, head, before, place, time, count, new_rows, out_row, out_other
):
    """Let records enter in order; write each pair (number of the record, row of the other side), oldest partner first.

    Rows of side s with equal key hang in a chain from the newest back: `head[s, key]`, then `before[s, row]`. `place`
    counts the records of a window. Pairs beyond the room in `out_row` are counted but not written.
    """
    n = 0
    for i in range(len(sides)):
        side = sides[i]
        other = 1 - side
        w = places[i]
        if active[side]:
            start = n
            row = head[other, slots[i]]
            while row >= 0:
                if limits[other] > 0 and place[other, row] < count[other, w] - limits[other]:
                    break
                if spans[other] > 0 and time[other, row] <= times[i] - spans[other]:
                    break
                if limits[other] == 0 and spans[other] == 0:
                    break  # a stream without a window holds nothing
                if n < len(out_row):
                    out_row[n], out_other[n] = i, row
                n += 1
                row = before[other, row]
            stop = min(n, len(out_row)) - 1
            while start < stop:
                out_other[start], out_other[stop] = out_other[stop], out_other[start]
                start += 1
                stop -= 1
        row = new_rows[i]
        before[side, row] = head[side, slots[i]]
        head[side, slots[i]] = row
        place[side, row] = count[side, w]
        time[side, row] = times[i]
        count[side, w] += 1
    return n
