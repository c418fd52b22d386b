"""Random: a worker pool without a scheduler, to tell the gain of the one from that of the other."""

from __future__ import annotations

from collections.abc import Collection
from random import Random as Generator

from headwater.engine.scheduler import Scheduler


class Random:
    """Serves any instance that has pending records, all with equal chance."""

    def __init__(self, seed: int = 0) -> None:
        self._generator = Generator(seed)

    def pick(self, ready: Collection[int], scheduler: Scheduler) -> int:
        """Return an instance by lot."""
        return self._generator.choice(list(ready))
