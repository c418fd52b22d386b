"""Longest queue first: EdgeWise's congestion-aware scheduler, which needs no profile."""

from __future__ import annotations

from collections.abc import Collection

from headwater.engine.scheduler import Scheduler


class LongestQueue:
    """Serves the instance with the most pending records; on a tie, the one that has been ready longest."""

    def pick(self, ready: Collection[int], scheduler: Scheduler) -> int:
        """Return the instance with the longest queue."""
        return max(ready, key=scheduler.waiting.__getitem__)
