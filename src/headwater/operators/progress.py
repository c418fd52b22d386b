"""How far a query's time has come: by the records it has seen, and by the watermark where that speaks of the same time."""

from __future__ import annotations

import numpy as np

from headwater.data.batch import END, NO_WATERMARK, Batch
from headwater.data.column import Array, Nullable
from headwater.operators.kernels.clocks import run_on
from headwater.operators.keyed import combine, split_off_keyless
from headwater.operators.operator import dead_letters


class Progress:
    """Never runs back.

    Where it does not go `by_watermark`, the watermark says nothing of this time.
    """

    def __init__(self, *, by_watermark: bool) -> None:
        self._by_watermark = by_watermark
        self.now = self.watermark_us = NO_WATERMARK  #: by records and watermarks; by watermarks alone

    def pass_(self, watermark: int) -> int:
        """Learn of a watermark and return the time that it lets pass: `NO_WATERMARK` for none, `END` for all."""
        time = self.time_of(watermark)
        if NO_WATERMARK < time < END:
            self.watermark_us = max(self.watermark_us, time)
            self.now = max(self.now, self.watermark_us)
        return time

    def time_of(self, watermark: int) -> int:
        """Return the time that a watermark would let pass."""
        if watermark >= END:
            return END
        return max(self.watermark_us, watermark) if self._by_watermark else NO_WATERMARK

    def at_least_watermark(self, times: Array) -> Array:
        """Return times of records, each not before what watermarks have passed: a late one counts as of that time.

        Only a late record is changed, and a late one always comes after the watermark that makes it so; hence the batches
        in which records come make no difference.
        """
        return np.maximum(times, self.watermark_us)

    def in_order(self, times: Array) -> Array:
        """Return times of records that never run back, and remember the last."""
        out: Array = np.maximum.accumulate(np.maximum(times, self.now))
        self.now = int(out[-1])
        return out

    def in_order_by_key(self, times: Array, slots: Array, clocks: Array) -> Array:
        """Return times of records that never run back within a key, and move the clocks of their keys on."""
        out = np.maximum(times, self.watermark_us)
        run_on(out, slots, clocks)
        return out

    def load(self, now: int, watermark_us: int) -> None:
        """Take over from another clock."""
        self.now, self.watermark_us = max(self.now, now), max(self.watermark_us, watermark_us)


def split_off(batch: Batch, keys: tuple[str, ...], time: str | None, step: str) -> tuple[Batch, Batch | None]:
    """Return the records that have a key and a time, and dead letters for those that do not."""
    batch, letters = split_off_keyless(batch, keys, step)
    column = batch.columns[time] if time is not None else None
    if not isinstance(column, Nullable):
        return batch, letters
    timeless = dead_letters(
        step, [f"the time, {time!r}, is missing"] * int((~column.valid).sum()), batch.filter(~column.valid)
    )
    batch = batch.filter(column.valid)
    return batch, combine(letters, timeless)
