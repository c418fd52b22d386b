"""Classes for training: where a value stands among those of its batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CLASSES = ("BAD", "GOOD", "VERYGOOD", "EXCELLENT")


def percentile(values: NDArray[np.float64], percent: float, counts: NDArray[np.int64] | None = None) -> float:
    """Return a percentile by the benchmark's rule: at place percent × (n + 1) / 100 of the sorted values.

    With `counts`, the values are sorted already and each stands for so many.

    >>> percentile(np.array([10.0, 20, 30, 40]), 50)
    25.0
    >>> percentile(np.array([10.0, 30]), 50, np.array([2, 1]))
    10.0
    """
    if counts is None:
        values, counts = np.unique(values, return_counts=True)
    ends = np.cumsum(counts)
    place = min(max(percent * (ends[-1] + 1) / 100, 1.0), float(ends[-1]))
    below = int(place)
    low, high = values[np.searchsorted(ends, [below, min(below + 1, ends[-1])])]
    return float(low + (place - below) * (high - low))


def class_borders(values: NDArray[np.float64], counts: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
    """Return the values from which on a class is GOOD, VERYGOOD and EXCELLENT."""
    return np.array([percentile(values, percent, counts) for percent in (50, 75, 100)])


def quartile_classes(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the number of each value's class: that of the highest quartile which the value reaches.

    Below the median that is BAD, the maximum alone is EXCELLENT; where quartiles are equal, the better class
    wins.

    >>> quartile_classes(np.array([1.0, 2, 3, 4, 5, 6, 7]))
    array([0, 0, 0, 1, 1, 2, 3])
    """
    return np.searchsorted(class_borders(values), values, side="right")
