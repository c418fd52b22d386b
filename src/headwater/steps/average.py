"""The mean of each block of values of a key."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from headwater.data.batch import Batch
from headwater.data.column import Array
from headwater.data.jit import kernel
from headwater.flow.state import Cell, Rows


class BlockAverage:
    """The mean of every `size` values of a column of a key, with the last of them: in column `into`, or in its place."""

    def __init__(self, size: int, column: str = "value", *, into: str | None = None) -> None:
        self.size, self.column, self.into = size, column, into or column
        self.makes: tuple[str, ...] = (self.into,)
        self.reads: tuple[str, ...] = (self.column,)
        self.state: Mapping[str, Cell] = {"total": Cell("float32"), "count": Cell("int64")}

    def run(self, batch: Batch, slots: Array, state: dict[str, Array]) -> Rows:
        """Return the means that became complete."""
        rows, means = self.means(batch, slots, state)
        return rows, {self.into: means}

    def means(self, batch: Batch, slots: Array, state: dict[str, Array]) -> tuple[Array, Array]:
        """Return which records completed a mean, and the means."""
        rows, out = np.empty(batch.length, np.int64), np.empty(batch.length, np.float32)
        values = batch[self.column].astype(np.float32, copy=False)
        count = block_average(slots, values, state["total"], state["count"], self.size, rows, out)
        return rows[:count], out[:count]


@kernel
def block_average(
    slots: NDArray[np.int64],
    values: NDArray[np.float32],
    totals: NDArray[np.float32],
    counts: NDArray[np.int64],
    size: int,
    rows: NDArray[np.int64],
    out: NDArray[np.float32],
) -> int:
    """Put out the mean of every `size` values of a slot with the last of them.

    `out[i]` belongs to record `rows[i]`; what is left of a block waits in `totals` and `counts`. Returns how
    many means there are.
    """
    count = 0
    for i in range(len(slots)):
        slot = slots[i]
        totals[slot] += values[i]
        counts[slot] += 1
        if counts[slot] == size:
            rows[count] = i
            out[count] = totals[slot] / np.float32(size)
            count += 1
            totals[slot], counts[slot] = 0, 0
    return count
