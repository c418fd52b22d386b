"""A straight line through the last values of each key, prolonged into the future."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwater.data.jit import kernel


@kernel
def sliding_regression(
    slots: NDArray[np.int64],
    values: NDArray[np.float32],
    history: NDArray[np.float32],
    counts: NDArray[np.int64],
    rows: NDArray[np.int64],
    out: NDArray[np.float32],
) -> int:
    """Predict the next `out.shape[1]` values of a key from its last `history.shape[1]`, by least squares.

    The first predictions of a key come with the record after its window was first full. `out[i]` belongs to
    record `rows[i]`; returns how many records have predictions.
    """
    window, horizon = history.shape[1], out.shape[1]
    middle = (window - 1) / 2  # positions run from 0 in the window, so that a long stream costs no precision
    spread = window * (window * window - 1) / 12
    made = 0
    for i in range(len(slots)):
        slot = slots[i]
        history[slot, counts[slot] % window] = values[i]
        counts[slot] += 1
        if counts[slot] <= window:
            continue
        total, slope = 0.0, 0.0
        place = counts[slot] % window
        for position in range(window):
            y = float(history[slot, place])
            place = place + 1 if place + 1 < window else 0
            total += y
            slope += (position - middle) * y
        slope /= spread
        for ahead in range(horizon):
            out[made, ahead] = total / window + slope * (window + ahead - middle)
        rows[made] = i
        made += 1
    return made
