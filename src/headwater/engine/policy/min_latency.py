"""Least latency: records near the end go first (Carney et al., VLDB 2003)."""

from __future__ import annotations

from collections.abc import Collection

from headwater.engine.scheduler import Scheduler

#: Priorities follow the measured costs; they are worked out anew after this many decisions.
_AFTER = 4096


class MinLatency:
    """Serves the instance nearest to a sink; ties go to the cheaper, then to the one that yields more."""

    def __init__(self) -> None:
        self._priority: list[tuple[float, ...]] = []
        self._until = 0

    def pick(self, ready: Collection[int], scheduler: Scheduler) -> int:
        """Return the instance with the least way to go."""
        if scheduler.decisions >= self._until or not self._priority:
            self._until = scheduler.decisions + _AFTER
            depth = depths(scheduler)
            self._priority = [
                (depth[i], scheduler.cost_ns[i], -scheduler.out_ratio[i]) for i in range(len(scheduler.waiting))
            ]
        return min(ready, key=self._priority.__getitem__)


def depths(scheduler: Scheduler) -> list[int]:
    """Return how many instances lie between each one and the farthest sink behind it."""
    depth = [-1] * len(scheduler.downstream)

    def of(i: int) -> int:
        if depth[i] < 0:
            depth[i] = 1 + max((of(target) for target in scheduler.downstream[i]), default=-1)
        return depth[i]

    return [of(i) for i in range(len(depth))]
