"""Fill a missing value with the mean of the last valid ones of the same key."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from headwater.data.batch import Batch
from headwater.data.column import Array, parts
from headwater.data.jit import kernel
from headwater.flow.state import Cell, Rows


class Interpolate:
    """Fills the gaps of a column with the mean of the key's last `window` valid values, or 0 before the first."""

    def __init__(self, window: int, column: str = "value") -> None:
        self.column = column
        self.makes: tuple[str, ...] = (column,)
        self.reads: tuple[str, ...] = (self.column,)
        self.state: Mapping[str, Cell] = {"last": Cell("float32", shape=(window,)), "count": Cell("int64")}

    def run(self, batch: Batch, slots: Array, state: dict[str, Array]) -> Rows:
        """Return the values with the gaps filled."""
        values, valid = parts(batch[self.column])
        assert isinstance(values, np.ndarray)
        is_valid = np.ones(batch.length, np.bool_) if valid is None else valid
        out = np.empty(batch.length, np.float32)
        values = values.astype(np.float32, copy=False)
        interpolate(slots, values, is_valid, state["last"], state["count"], out)
        return {self.column: out}


@kernel
def interpolate(
    slots: NDArray[np.int64],
    values: NDArray[np.float32],
    valid: NDArray[np.bool_],
    history: NDArray[np.float32],
    counts: NDArray[np.int64],
    out: NDArray[np.float32],
) -> None:
    """Pass valid values on and remember them; replace missing ones by the mean of `history[slot]`, or 0.

    `history` is a ring of the last valid values of each slot, and `counts` says how many there ever were. A
    negative slot means a record that keeps no history: it becomes 0.
    """
    for i in range(len(slots)):
        slot = slots[i]
        if slot < 0:
            out[i] = 0
        elif valid[i]:
            history[slot, counts[slot] % history.shape[1]] = values[i]
            counts[slot] += 1
            out[i] = values[i]
        else:
            out[i] = _mean(history[slot], counts[slot])


@kernel
def _mean(ring: NDArray[np.float32], count: int) -> np.float32:
    stored = min(count, len(ring))
    total = np.float32(0)
    for back in range(stored, 0, -1):
        total += ring[(count - back) % len(ring)]
    return total / np.float32(stored) if stored > 0 else np.float32(0)


@kernel
def fill_rows(
    slots: NDArray[np.int64],
    values: NDArray[np.float32],
    history: NDArray[np.float32],
    counts: NDArray[np.int64],
) -> None:
    """Do the same for whole rows at once: `values[k, i]` is kind k of record i, and a NaN is missing."""
    for i in range(len(slots)):
        slot = slots[i]
        for k in range(len(values)):
            if np.isnan(values[k, i]):
                values[k, i] = _mean(history[slot, k], counts[slot, k])
            else:
                history[slot, k, counts[slot, k] % history.shape[2]] = values[k, i]
                counts[slot, k] += 1
