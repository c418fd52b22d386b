"""How many kernels lanes wait for, as every lane can tell: a source that is read in one has its records in all of them."""

from __future__ import annotations

import mmap
import time

#: How long a lane's word holds. It is said anew whenever its sources are looked at; one that has died says nothing more.
_HOLDS_S = 1.0


class SharedCompiling:
    """What each lane says that it has asked for and is not compiled yet; made before the processes part."""

    def __init__(self, lanes: int) -> None:
        self._cells = memoryview(mmap.mmap(-1, 16 * lanes)).cast("q")  # of each lane the count, and until when it holds

    def tell(self, lane: int, count: int) -> None:
        """Say how many kernels a lane waits for."""
        if count or self._cells[2 * lane]:
            self._cells[2 * lane] = count
            self._cells[2 * lane + 1] = time.monotonic_ns() + round(_HOLDS_S * 1e9)

    def most(self) -> int:
        """Return the most that any lane waits for: it is the same kernels that most of them want."""
        counts = self._cells[::2].tolist()
        if not any(counts):
            return 0
        now_ns = time.monotonic_ns()
        return max(count if now_ns < self._cells[2 * lane + 1] else 0 for lane, count in enumerate(counts))
