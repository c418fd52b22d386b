"""The best place to cut a numeric attribute in two, as C4.5 finds it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwater.data.jit import kernel

_APART = 1e-5  # values closer than this are not told apart
_BETTER = 1e-6  # a gain must be larger by this to count as larger


@kernel
def _n_log_n(n: float) -> float:
    return n * np.log2(n) if n > 0 else 0.0


@kernel
def best_split(
    values: NDArray[np.float64], classes: NDArray[np.int64], class_count: int, least: float
) -> tuple[int, float, float]:
    """Return how many of the sorted `values` go to the lower side, the information gain and the gain ratio.

    Each side keeps at least `least` records. The gain is corrected for the number of cuts that were tried,
    which is what keeps an attribute with many values from winning by luck. A gain of 0 means that no cut is
    worth it.
    """
    total = len(values)
    low, high = np.zeros(class_count), np.zeros(class_count)
    for i in range(total):
        high[classes[i]] += 1
    undivided = _n_log_n(total)
    for k in range(class_count):
        undivided -= _n_log_n(high[k])
    tried, best, best_gain = 0, 0, 0.0
    for i in range(1, total):
        low[classes[i - 1]] += 1
        high[classes[i - 1]] -= 1
        if values[i - 1] + _APART >= values[i] or i < least or total - i < least:
            continue
        tried += 1
        divided = _n_log_n(i) + _n_log_n(total - i)
        for k in range(class_count):
            divided -= _n_log_n(low[k]) + _n_log_n(high[k])
        gain = (undivided - divided) / total
        if gain > best_gain + _BETTER:
            best, best_gain = i, gain
    if best == 0:
        return 0, 0.0, 0.0
    best_gain -= np.log2(tried) / total
    if best_gain <= _BETTER:
        return 0, 0.0, 0.0
    split_information = (_n_log_n(total) - _n_log_n(best) - _n_log_n(total - best)) / total
    return best, best_gain, best_gain / split_information
