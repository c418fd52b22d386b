"""The records that cross in `bench bridge`: of about fifty bytes, and known by their number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from headwater.clock import now_ns
from headwater.data.batch import Batch
from headwater.data.schema import Schema

SCHEMA = Schema.of({"n": int, "sensor": int, "value": float, "flow": float})
BATCH = 50  #: records at once
BRIDGE, SENDER, RECEIVER = "readings", "barn", "cloud"
_BLOCK = 1000  #: batches that are made together, so that making them does not cost as much as sending them


def batches(count: int) -> Iterator[Batch]:
    """Make so many records, in batches; each was created when it is handed out."""
    for start in range(0, count, _BLOCK * BATCH):
        numbers = np.arange(start, min(start + _BLOCK * BATCH, count))
        columns: dict[str, Any] = {
            "n": numbers,
            "sensor": numbers % 97,
            "value": numbers * 0.5,
            "flow": numbers * 0.5 + 1.0,
        }
        for at in range(0, len(numbers), BATCH):
            part: dict[str, Any] = {name: column[at : at + BATCH] for name, column in columns.items()}
            length = len(part["n"])
            yield Batch(part, length, np.full((length, 2), now_ns(), np.int64))


class Checked:
    """What came, held against what was sent: each number once, in order, with its values."""

    def __init__(self) -> None:
        self.records = self._lost = self._twice = self._wrong = self._next = 0

    def take(self, batch: Batch) -> None:
        """Look at a batch."""
        numbers, values = np.asarray(batch["n"]), np.asarray(batch["value"])
        if not np.array_equal(numbers, np.arange(self._next, self._next + len(numbers))):
            fresh = np.unique(numbers[numbers >= self._next])
            end = int(fresh[-1]) + 1 if len(fresh) else self._next
            self._twice += len(numbers) - len(fresh)
            self._lost += end - self._next - len(fresh)
            self._next = end
        else:
            self._next += len(numbers)
        self._wrong += int((values != numbers * 0.5).sum() + (np.asarray(batch["flow"]) != values + 1.0).sum())
        self.records += len(numbers)

    def account(self, sent: int) -> dict[str, int]:
        """Return what is missing, came more than once, or is not what was sent."""
        return {"lost": self._lost + sent - self._next, "twice": self._twice, "wrong": self._wrong}
