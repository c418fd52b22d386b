"""Busy work of a set size: stands for a step's computation in experiments."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.data.jit import kernel


@kernel
def spin(values: npt.NDArray[Any], rounds: int) -> np.uint64:
    """Return a number that takes `rounds` steps per value to work out, so that no compiler can leave them away."""
    total = np.uint64(0)
    for i in range(len(values)):
        x = np.uint64(values[i]) | np.uint64(1)
        for _ in range(rounds):
            x ^= x << np.uint64(13)
            x ^= x >> np.uint64(7)
            x ^= x << np.uint64(17)
        total ^= x
    return total
