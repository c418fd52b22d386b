"""Whether a source is silent, as every lane can tell: how many blocks it has handed out, and until when it had something."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import numpy as np

Activity = Callable[
    [], tuple[int, float]
]  #: the blocks that a source has handed out, and until when it was busy, at least


class SourceActivity:
    """What lane 0 tells the others of a source that it reads; made before the processes part."""

    def __init__(self) -> None:
        self._cells = np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE), np.int64, 2)
        self.idle_s = inf  #: the shortest silence that somebody asks for

    def __call__(self) -> tuple[int, float]:
        """Return how many blocks there are, and the moment, by a clock that all processes share, until which it was busy."""
        return int(self._cells[0]), int(self._cells[1]) / 1e6

    def blocks(self, count: int) -> None:
        """Say how many blocks are on their way, or there; before the last of them is."""
        self._cells[0] = count

    def busy(self, now_s: float) -> None:
        """Say that the source has records which are in no block yet."""
        self._cells[1] = int(now_s * 1e6)

    def reset(self) -> None:
        """Begin anew, once no lane is at work."""
        self._cells[:] = 0


@dataclass(slots=True)
class Idleness:
    """Tells whether nothing has come by a stream for so long, and nothing of its source is on its way."""

    activity: Activity
    idle_s: float
    since_s: float = 0.0  #: when something last came, or was on its way

    def broken(self) -> None:
        """Take note that something has come."""
        self.since_s = time.monotonic()

    def lasts(self, blocks: int) -> bool:
        """Tell whether nobody needs to wait for the stream, by which so many blocks have come."""
        now_s = time.monotonic()
        count, busy_s = self.activity()
        self.since_s = now_s if count > blocks else max(self.since_s, busy_s)
        return now_s - self.since_s >= self.idle_s
