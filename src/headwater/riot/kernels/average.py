"""The mean of each block of values of a key."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwater.data.jit import kernel


@kernel
def block_average(
    slots: NDArray[np.int64],
    values: NDArray[np.float32],
    totals: NDArray[np.float32],
    counts: NDArray[np.int64],
    size: int,
    rows: NDArray[np.int64],
    out: NDArray[np.float32],
) -> int:
    """Put out the mean of every `size` values of a slot with the last of them.

    `out[i]` belongs to record `rows[i]`; what is left of a block waits in `totals` and `counts`. Returns how
    many means there are.
    """
    made = 0
    for i in range(len(slots)):
        slot = slots[i]
        totals[slot] += values[i]
        counts[slot] += 1
        if counts[slot] == size:
            rows[made] = i
            out[made] = totals[slot] / np.float32(size)
            made += 1
            totals[slot], counts[slot] = 0, 0
    return made
