"""Pairs of records from two windows: each record meets the other side's records that are still in their window."""

# Numba infers the types of kernels
# mypy: disable-error-code="no-untyped-def,no-untyped-call"
from __future__ import annotations

from headwater.data.jit import kernel


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
