"""Which values lie outside the range of their kind."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwater.data.jit import kernel


@kernel
def inside(
    kinds: NDArray[np.int64],
    values: NDArray[np.float32],
    low: NDArray[np.float32],
    high: NDArray[np.float32],
    out: NDArray[np.bool_],
) -> None:
    """Tell for each value of kind k whether it is neither below `low[k]` nor above `high[k]`.

    So the borders are inside, and a NaN is too.
    """
    for i in range(len(values)):
        kind = kinds[i]
        out[i] = not (values[i] < low[kind] or values[i] > high[kind])


@kernel
def blank_outside(values: NDArray[np.float32], low: NDArray[np.float32], high: NDArray[np.float32]) -> None:
    """Replace by NaN what lies outside its range, where `values[k]` is a column of values of kind k."""
    for k in range(len(low)):
        for i in range(values.shape[1]):
            if values[k, i] < low[k] or values[k, i] > high[k]:
                values[k, i] = np.nan
