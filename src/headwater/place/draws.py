"""Random numbers for searches, from a state that is one number: the same seed gives the same search on every machine.

NumPy's generators could be handed to compiled loops too, but only by Numba itself, which then compiles anew in every
process.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwater.data.hashing import mix
from headwater.data.jit import kernel

Draws = NDArray[np.uint64]  #: the state, in an array of one so that it can be moved on

_STEP = np.uint64(0x9E3779B97F4A7C15)  # SplitMix64: the golden ratio, odd
_DOWN = np.uint64(11)
_UNIT = 2.0**-53


def draws(seed: int) -> Draws:
    """Return the state for a seed."""
    return np.array([seed & (2**64 - 1)], np.uint64)


@kernel
def draw(state: Draws) -> float:
    """Return the next number from 0 up to 1, and move the state on."""
    state[0] += _STEP
    return float(mix(state[0]) >> _DOWN) * _UNIT
