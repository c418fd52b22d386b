"""A source in virtual time: it sleeps a tick, hands over what has come, and waits while a queue is near its bound."""

from __future__ import annotations

import math

import numpy as np

from headwater.sim.site import Site, World


class Inlet:
    """Brings one source's records to its device; records keep the moment they were due, so that waiting counts."""

    def __init__(self, world: World, step: int, site: Site) -> None:
        options = world.options
        self._world, self._step, self._site = world, step, site
        rate = float(world.problem.rate_hz[step])
        self._times = options.arrivals.times_s(rate, options.seconds, world.random)
        self._next = 0

    @property
    def records(self) -> int:
        """How many records were read so far."""
        return self._next

    def open(self) -> None:
        """Wait for the first record."""
        if self._next < len(self._times):
            self._world.at(self._when(float(self._times[self._next])), self._look)

    def _when(self, due_s: float) -> float:
        """The moment at which a sleeping source sees a record."""
        tick = self._world.options.tick_s
        return self._site.after(due_s if tick <= 0 else math.ceil(due_s / tick) * tick, 0.0)

    def _look(self) -> None:
        """Hand over what is due, at most a chunk, if there is room."""
        world, site = self._world, self._site
        if world.stopping:
            return
        due = int(np.searchsorted(self._times, world.now, "right"))
        end = min(max(due, self._next + 1), self._next + world.options.chunk)
        busy_s = site.emit(self._step, self._times[self._next : end], self._look)
        if busy_s is None:
            return
        self._next = end
        if end < len(self._times):
            next_s = self._when(float(self._times[end]))
            world.at(max(next_s, world.now + busy_s), self._look)
