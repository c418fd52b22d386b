"""The mean of each block of values of a key, and the error of a prediction measured by it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwater.kernels.jit import kernel


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


@kernel
def relative_error(
    is_average: NDArray[np.bool_],
    values: NDArray[np.float32],
    measured: NDArray[np.float32],
    latest: NDArray[np.float32],
    rows: NDArray[np.int64],
    out: NDArray[np.float32],
) -> int:
    """Measure each prediction's error in units of the latest average.

    `values` holds averages, which set `latest[0]`, and predictions, whose error is (measured - value) /
    latest; by IEEE rules, so infinite (or not a number) before the first average. Returns how many
    predictions there were, `out[i]` being the error of record `rows[i]`.
    """
    made = 0
    for i in range(len(values)):
        if is_average[i]:
            latest[0] = values[i]
        else:
            error = measured[i] - values[i]
            if latest[0] == 0:
                out[made] = np.nan if error == 0 or np.isnan(error) else np.inf * np.sign(error)
            else:
                out[made] = error / latest[0]
            rows[made] = i
            made += 1
    return made
