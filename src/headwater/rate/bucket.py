"""A token bucket: which of the records that come are within the promised rate and its burst."""

from __future__ import annotations

import threading


class Bucket:
    """Fills at the rate, holds a burst and what comes in one tick; several sources may share one.

    >>> bucket = Bucket(100, 10)
    >>> bucket.take(15, at_s=0.0), bucket.take(15, at_s=0.1)
    (10, 10)
    """

    def __init__(self, rate_hz: float, size: float) -> None:
        self.rate_hz, self.size = rate_hz, size
        self.exceeded = 0  #: records that came above it, all in all
        self._level, self._filled_s = size, 0.0
        self._lock = threading.Lock()

    def take(self, count: int, at_s: float, since_s: float | None = None) -> int:
        """Take note of records that come at a moment, or evenly since another; return how many are within the promise."""
        with self._lock:
            self._fill(at_s if since_s is None else since_s)
            flows_in = max(0.0, at_s - self._filled_s) * self.rate_hz  # while they come, so that none of it runs over
            within = min(count, int(self._level + flows_in + 1e-9))
            self._level = min(self.size, self._level + flows_in - within)
            self._filled_s = max(self._filled_s, at_s)
            self.exceeded += count - within
            return within

    def room(self, at_s: float) -> int:
        """Return how many records may come at a moment and be within the promise."""
        with self._lock:
            self._fill(at_s)
            return int(self._level + 1e-9)

    def _fill(self, at_s: float) -> None:
        if at_s > self._filled_s:
            self._level = min(self.size, self._level + (at_s - self._filled_s) * self.rate_hz)
            self._filled_s = at_s
