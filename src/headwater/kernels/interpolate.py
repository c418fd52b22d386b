"""Fill a missing value with the mean of the last valid ones of the same key."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwater.kernels.jit import kernel


@kernel
def interpolate(
    slots: NDArray[np.int64],
    values: NDArray[np.float32],
    valid: NDArray[np.bool_],
    history: NDArray[np.float32],
    counts: NDArray[np.int64],
    out: NDArray[np.float32],
) -> None:
    """Pass valid values on and remember them; replace missing ones by the mean of `history[slot]`, or 0.

    `history` is a ring of the last valid values of each slot, and `counts` says how many there ever were. A
    negative slot means a record that keeps no history: it becomes 0.
    """
    window = history.shape[1]
    for i in range(len(slots)):
        slot = slots[i]
        if slot < 0:
            out[i] = 0
        elif valid[i]:
            history[slot, counts[slot] % window] = values[i]
            counts[slot] += 1
            out[i] = values[i]
        else:
            stored = min(counts[slot], window)
            total = np.float32(0)
            for back in range(stored, 0, -1):
                total += history[slot, (counts[slot] - back) % window]
            out[i] = total / np.float32(stored) if stored > 0 else np.float32(0)
