"""Records by the second of their creation, as all lanes of a promise count them.

The numbers are in memory that processes share once they are forked: each lane writes its own, and the first reads all.
"""

from __future__ import annotations

import mmap
import threading

CAME, LATE, CAUGHT_UP, CLOSE = 1, 2, 3, 4
"""Read; left too late; left late, from before work was taken up again (by the second in which they left); nearly so."""

KEPT_S = 512
"""For so many seconds numbers are kept; what is older is no longer counted."""

_WIDTH = 5  #: numbers of a second: which it is, and the four above
_NEVER = -(2**62)


class Counts:
    """Four numbers for each second of late, of each lane."""

    def __init__(self, lanes: int = 1) -> None:
        self._lanes, self._lane = lanes, 0
        self._numbers = memoryview(mmap.mmap(-1, (lanes * KEPT_S * _WIDTH + 1) * 8)).cast("q")
        for at in range(0, len(self._numbers), _WIDTH):  # the last number is `back_ns`
            self._numbers[at] = _NEVER
        self._lock = threading.Lock()

    def be(self, lane: int) -> None:
        """Count for a lane from now on, in its process."""
        self._lane = lane

    @property
    def back_ns(self) -> int:
        """When work was last taken up again, which all lanes know; before any time unless said."""
        return self._numbers[-1]

    @back_ns.setter
    def back_ns(self, now_ns: int) -> None:
        self._numbers[-1] = now_ns

    def add(self, what: int, second: int, count: int) -> None:
        """Count records of a second."""
        numbers, at = self._numbers, self._at(self._lane, second)
        with self._lock:
            if numbers[at] < second:
                numbers[at + CAME] = numbers[at + LATE] = numbers[at + CAUGHT_UP] = numbers[at + CLOSE] = 0
                numbers[at] = second
            if numbers[at] == second:
                numbers[at + what] += count

    def total(self, what: int, second: int) -> int:
        """Return what all lanes have counted of a second."""
        rows = (self._at(lane, second) for lane in range(self._lanes))
        return sum(self._numbers[at + what] for at in rows if self._numbers[at] == second)

    def _at(self, lane: int, second: int) -> int:
        return (lane * KEPT_S + second % KEPT_S) * _WIDTH
