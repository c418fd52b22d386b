"""A straight line through the last values of each key, prolonged into the future."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from headwater.data.batch import Batch
from headwater.data.column import Array
from headwater.data.jit import kernel
from headwater.flow.state import Cell, Rows


class SlidingRegression:
    """Forecasts a column from a line through the key's last `window` values: columns `next_1` … `next_horizon`.

    A key's first forecasts come with the record after its window was first full; records before that give none.
    """

    def __init__(self, column: str = "value", *, window: int = 10, horizon: int = 1) -> None:
        self.column, self.horizon = column, horizon
        self.makes: tuple[str, ...] = tuple(f"next_{step}" for step in range(1, horizon + 1))
        self.reads: tuple[str, ...] = (self.column,)
        self.state: Mapping[str, Cell] = {"last": Cell("float32", shape=(window,)), "count": Cell("int64")}

    def run(self, batch: Batch, slots: Array, state: dict[str, Array]) -> Rows:
        """Return the forecasts, each step ahead in a column of its own."""
        rows, ahead = self.forecasts(batch, slots, state)
        return rows, {name: np.ascontiguousarray(ahead[:, step]) for step, name in enumerate(self.makes)}

    def forecasts(self, batch: Batch, slots: Array, state: dict[str, Array]) -> tuple[Array, Array]:
        """Return which records have forecasts, and a row of them for each."""
        rows = np.empty(batch.length, np.int64)
        out = np.empty((batch.length, self.horizon), np.float32)
        values = batch[self.column].astype(np.float32, copy=False)
        count = sliding_regression(slots, values, state["last"], state["count"], rows, out)
        return rows[:count], out[:count]


@kernel
def sliding_regression(
    slots: NDArray[np.int64],
    values: NDArray[np.float32],
    history: NDArray[np.float32],
    counts: NDArray[np.int64],
    rows: NDArray[np.int64],
    out: NDArray[np.float32],
) -> int:
    """Predict the next `out.shape[1]` values of a key from its last `history.shape[1]`, by least squares.

    The first predictions of a key come with the record after its window was first full. `out[i]` belongs to
    record `rows[i]`; returns how many records have predictions.
    """
    window, horizon = history.shape[1], out.shape[1]
    middle = (window - 1) / 2  # positions run from 0 in the window, so that a long stream costs no precision
    spread = window * (window * window - 1) / 12
    count = 0
    for i in range(len(slots)):
        slot = slots[i]
        history[slot, counts[slot] % window] = values[i]
        counts[slot] += 1
        if counts[slot] <= window:
            continue
        total, slope = 0.0, 0.0
        place = counts[slot] % window
        for position in range(window):
            y = float(history[slot, place])
            place = place + 1 if place + 1 < window else 0
            total += y
            slope += (position - middle) * y
        slope /= spread
        for ahead in range(horizon):
            out[count, ahead] = total / window + slope * (window + ahead - middle)
        rows[count] = i
        count += 1
    return count
