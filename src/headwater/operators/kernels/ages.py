"""How old records were, tallied for two histograms in one walk over their stamps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwater.data.batch import CREATED, EMITTED
from headwater.data.jit import kernel, uncompiled
from headwater.histogram import FIRST, HALF, LARGEST, LOWER, SHIFT, TALLY, UPPER, tallied

_REST = (1 << HALF) - 1


@kernel
def tallied_ages(stamps: NDArray[np.int64], ends: NDArray[np.int64], arrived: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the tallies, as `histogram.tallied` has them, of how long after creation and emission records arrived.

    Those up to `ends[i]` did at `arrived[i]`.
    """
    tallies = np.zeros((2, TALLY), np.int64)
    start = 0
    for i in range(len(ends)):
        now = arrived[i]
        for stamp in (CREATED, EMITTED):
            tally = tallies[stamp]
            upper = lower = largest = 0
            for at in range(start, ends[i]):
                age = max(now - stamps[at, stamp], 1)
                tally[(np.float64(age).view(np.int64) >> SHIFT) - FIRST] += 1
                upper += age >> HALF
                lower += age & _REST
                largest = max(largest, age)
            tally[UPPER] += upper
            tally[LOWER] += lower
            tally[LARGEST] = max(tally[LARGEST], largest)
        start = ends[i]
    return tallies


@uncompiled(tallied_ages)
def ages_at_once(stamps: NDArray[np.int64], ends: NDArray[np.int64], arrived: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the same by NumPy."""
    return tallied(np.subtract(np.repeat(arrived, np.diff(ends, prepend=0)), stamps.T, order="C"))
