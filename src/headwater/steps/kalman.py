"""A Kalman filter of one dimension for each key."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from headwater.data.batch import Batch
from headwater.data.column import Array
from headwater.data.jit import kernel
from headwater.flow.state import Cell, Rows


class Kalman:
    """Smooths a column of each key by a Kalman filter of one dimension.

    `process_noise` is how much the true value wanders from one record to the next, `sensor_noise` how much a reading is
    off, both as variances; `error` is the variance of the first guess, which is 0.
    """

    def __init__(
        self, column: str = "value", *, process_noise: float = 0.125, sensor_noise: float = 0.32, error: float = 30
    ) -> None:
        self.column, self.process_noise, self.sensor_noise = column, process_noise, sensor_noise
        self.makes: tuple[str, ...] = (column,)
        self.reads: tuple[str, ...] = (self.column,)
        self.state: Mapping[str, Cell] = {"estimate": Cell("float32"), "variance": Cell("float32", error)}

    def run(self, batch: Batch, slots: Array, state: dict[str, Array]) -> Rows:
        """Return the estimates in place of the readings."""
        out = np.empty(batch.length, np.float32)
        values = batch[self.column].astype(np.float32, copy=False)
        kalman(slots, values, state["estimate"], state["variance"], self.process_noise, self.sensor_noise, out)
        return {self.column: out}


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
