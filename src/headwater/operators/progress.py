"""How far a query's time has come: by the records it has seen, and by the watermark where that speaks of the same time."""

from __future__ import annotations

import numpy as np

from headwater.data.batch import END, NO_WATERMARK, Batch
from headwater.data.column import Array, Nullable
from headwater.operators.kernels.clocks import run_on
from headwater.operators.keyed import joined, split_off_keyless
from headwater.operators.operator import dead_letters


class Progress:
    """Never runs back.

    `lag_us` is how far a record may lie behind the watermark although it is not late: the result of a batch is as old as
    the batch's last record, but comes when the batch ends. None means that the watermark says nothing of this time.
    """

    def __init__(self, lag_us: int | None) -> None:
        self._lag_us = lag_us
        self.now = self.passed = NO_WATERMARK  #: by records and watermarks; by watermarks alone

    def pass_(self, watermark: int) -> int:
        """Learn of a watermark and return the time that it lets pass: `NO_WATERMARK` for none, `END` for all."""
        reached = self.reached(watermark)
        if NO_WATERMARK < reached < END:
            self.passed = max(self.passed, reached)
            self.now = max(self.now, self.passed)
        return reached

    def reached(self, watermark: int) -> int:
        """Return the time that a watermark would let pass."""
        if watermark >= END:
            return END
        if self._lag_us is None or watermark <= NO_WATERMARK + self._lag_us:
            return NO_WATERMARK
        return max(self.passed, watermark - self._lag_us)

    def since_passed(self, times: Array) -> Array:
        """Return times of records, each not before what watermarks have passed: a late one counts as of that time.

        Only a late record is changed, and a late one always comes after the watermark that makes it so; hence the batches
        in which records come make no difference.
        """
        return np.maximum(times, self.passed)

    def in_order(self, times: Array) -> Array:
        """Return times of records that never run back, and remember the last."""
        found: Array = np.maximum.accumulate(np.maximum(times, self.now))
        self.now = int(found[-1])
        return found

    def in_order_by_key(self, times: Array, slots: Array, clocks: Array) -> Array:
        """Return times of records that never run back within a key, and move the clocks of their keys on."""
        found = np.maximum(times, self.passed)
        run_on(found, slots, clocks)
        return found

    def load(self, now: int, passed: int) -> None:
        """Take over from another clock."""
        self.now, self.passed = max(self.now, now), max(self.passed, passed)


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
    return batch, joined(letters, timeless)
