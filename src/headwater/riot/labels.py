"""Classes for training: where a value stands among those of its batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CLASSES = ("BAD", "GOOD", "VERYGOOD", "EXCELLENT")


def percentile(values: NDArray[np.float64], percent: float) -> float:
    """Return a percentile by the benchmark's rule: at place percent × (n + 1) / 100 of the sorted values.

    >>> percentile(np.array([10.0, 20, 30, 40]), 50)
    25.0
    """
    ordered = np.sort(values)
    place = percent * (len(ordered) + 1) / 100
    if place < 1:
        return float(ordered[0])
    if place >= len(ordered):
        return float(ordered[-1])
    below = int(place)
    low, high = ordered[below - 1], ordered[below]
    return float(low + (place - below) * (high - low))


def quartile_classes(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the number of each value's class: that of the highest quartile which the value reaches.

    Below the median that is BAD, the maximum alone is EXCELLENT; where quartiles are equal, the better class
    wins.

    >>> quartile_classes(np.array([1.0, 2, 3, 4, 5, 6, 7]))
    array([0, 0, 0, 1, 1, 2, 3])
    """
    borders = np.array([percentile(values, percent) for percent in (50, 75, 100)])
    return np.searchsorted(borders, values, side="right")
