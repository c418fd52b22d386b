"""A Kalman filter of one dimension for each key."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwater.data.jit import kernel


@kernel
def kalman(
    slots: NDArray[np.int64],
    measured: NDArray[np.float32],
    estimate: NDArray[np.float32],
    variance: NDArray[np.float32],
    process_noise: float,
    sensor_noise: float,
    out: NDArray[np.float32],
) -> None:
    """Correct each slot's estimate by each measurement, in 32-bit floats, and put it out."""
    q, r = np.float32(process_noise), np.float32(sensor_noise)
    one = np.float32(1)
    for i in range(len(slots)):
        slot = slots[i]
        before = variance[slot] + q
        gain = before / (before + r)
        estimate[slot] += gain * (measured[i] - estimate[slot])
        variance[slot] = (one - gain) * before
        out[i] = estimate[slot]
