"""Inner loops of count windows."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.data.jit import kernel

Array = npt.NDArray[Any]


@kernel
def positions(slots: Array, counts: Array) -> Array:
    """Return how many records of its key came before each record, and count them in."""
    out = np.empty(len(slots), np.int64)
    for i in range(len(slots)):
        out[i] = counts[slots[i]]
        counts[slots[i]] += 1
    return out


@kernel
def slide(slots: Array, values: Array, ring: Array, seen: Array, rows: Array, out: Array) -> Array:
    """Put values into their key's ring, and copy the ring, oldest first, at each of `rows`.

    `seen[i]` is the number of records of its key up to and with record i, which so lies at (seen[i] - 1) % size.
    """
    size = ring.shape[1]
    n = 0
    for i in range(len(slots)):
        at = (seen[i] - 1) % size
        ring[slots[i], at] = values[i]
        if n < len(rows) and rows[n] == i:
            for j in range(size):
                out[n, j] = ring[slots[i], (at + 1 + j) % size]
            n += 1
    return out
