"""Whether what has died may start again, and after which pause; there is no clock in here."""

from __future__ import annotations

WITHIN_S = 60.0
_FIRST_S = 0.1


class Restarts:
    """So many times within a minute, each time after twice the pause; what dies over and over has a reason.

    >>> restarts = Restarts()
    >>> [restarts.pause_s(now_s) for now_s in (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 61.5)]
    [0.1, 0.2, 0.4, 0.8, 1.6, None, 0.8]
    """

    def __init__(self, most: int = 5) -> None:
        self.most = most  #: how often it may within that time
        self.count = 0  #: how often it was started again
        self._recent: list[float] = []

    def pause_s(self, now_s: float) -> float | None:
        """Return how long to wait before it starts again, which then counts; None where it may not."""
        self._recent = [at_s for at_s in self._recent if at_s > now_s - WITHIN_S]
        if len(self._recent) >= self.most:
            return None
        self._recent.append(now_s)
        self.count += 1
        return _FIRST_S * 2.0 ** (len(self._recent) - 1)
