"""Longest queue first: EdgeWise's congestion-aware scheduler, which needs no profile."""

from __future__ import annotations

from headwater.engine.machine import Machine


class LongestQueue:
    """Serves the instance with the most pending records; on a tie, the one that has been ready longest."""

    def pick(self, ready: dict[int, None], machine: Machine) -> int:
        """Return the instance with the longest queue."""
        return max(ready, key=machine.waiting.__getitem__)
