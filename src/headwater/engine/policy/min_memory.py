"""Least memory: Chain (Babcock et al., VLDB Journal 2004), which favours what shrinks queues fastest."""

from __future__ import annotations

from collections.abc import Collection

from headwater.engine.scheduler import Scheduler

#: Priorities follow the measured costs; they are worked out anew after this many decisions.
_AFTER = 4096


class MinMemory:
    """Serves the instance whose stretch of the flow loses most data per time; ties go to the oldest record.

    A record that passes step after step shrinks by each step's selectivity and takes each step's cost. From an instance
    on, the steepest average fall to any later point is its priority: the lower envelope of Chain's progress chart.
    """

    def __init__(self) -> None:
        self._slope: list[float] = []
        self._until = 0

    def pick(self, ready: Collection[int], scheduler: Scheduler) -> int:
        """Return the instance on the steepest stretch."""
        if scheduler.decisions >= self._until or not self._slope:
            self._until = scheduler.decisions + _AFTER
            self._slope = [self._steepest(i, scheduler) for i in range(len(scheduler.waiting))]
        return min(ready, key=lambda i: (-self._slope[i], scheduler.created_ns[i]))

    def _steepest(self, start: int, scheduler: Scheduler) -> float:
        best = -float("inf")
        # the share of a record that is left, and the time it took, along the way with the greatest cost
        size, time_ns, at = 1.0, 0.0, start
        while True:
            time_ns += size * max(scheduler.cost_ns[at], 1.0)
            targets = scheduler.downstream[at]
            size = size * scheduler.out_ratio[at] if targets else 0.0
            best = max(best, (1.0 - size) / time_ns)
            if not targets:
                return best
            at = max(targets, key=scheduler.cost_ns.__getitem__)
