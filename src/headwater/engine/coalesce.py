"""Putting together what a reader hands out in small batches.

To hand a batch over costs about the same for fifty records as for thousands. So that a reader need not know how many are
worth it, those that it has at once are put together, for a moment so short that nobody waits for it.
"""

from __future__ import annotations

from typing import Any

from headwater.clock import now_ns
from headwater.data.batch import NO_WATERMARK, Batch, concat_batches
from headwater.flow.endpoints import Reader, position_of

_GATHER_NS = 1_000_000  #: from the call of the first read


class CoalescingReader:
    """A reader, and what it said when it was read on: its end, or its trouble, comes after the records before it."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._is_over = False
        self._error: Exception | None = None
        self.position: Any = position_of(reader)  #: behind the last records that it handed out

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        """Return the next records, or None at the end."""
        if self._error is not None:
            raise self._error
        if self._is_over:
            return None
        batch = self._reader.read(limit, timeout_s)
        self.position = position_of(self._reader)
        return batch

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()

    def gather(self, first: Batch, most: int, called_ns: int) -> Batch:
        """Return a batch that was just read, and those after it that are there at once and are no smaller."""
        batches, room, until_ns = [first], most - first.length, called_ns + _GATHER_NS
        while 0 < first.length <= min(room, batches[-1].length) and now_ns() < until_ns:
            if batches[-1].watermark > NO_WATERMARK:  # what follows may be late by it
                break
            try:
                batch = self.read(room, 0.0)
            except Exception as error:
                self._error = error
                break
            if batch is None:
                self._is_over = True
                break
            batches.append(batch)
            room -= batch.length
        return concat_batches(batches)
