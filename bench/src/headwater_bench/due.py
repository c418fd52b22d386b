"""Records that fall due by the clock, whatever happens to who reads them: what sources of flows at sites have in common."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


class DueNumbers:
    """Number n is due n / `rate_hz` seconds after the beginning; a file says how many there are, once it is there."""

    def __init__(self, position: int, rate_hz: float, end: Path) -> None:
        self.position, self._rate_hz, self._file = position, rate_hz, end
        self._end: int | None = None

    def take(self, began_s: float, limit: int) -> NDArray[np.int64] | None:
        """Return up to `limit` numbers that are due and were not taken; None behind the last one."""
        if self._end is None and self._file.exists():
            text = self._file.read_text()  # empty for a moment, while it is written
            self._end = int(text) if text else None
        if self._end is not None and self.position >= self._end:
            return None
        due = int((time.time() - began_s) * self._rate_hz)
        stop = min(due, self.position + limit, due if self._end is None else self._end)
        numbers = np.arange(self.position, stop)
        self.position += len(numbers)
        return numbers
