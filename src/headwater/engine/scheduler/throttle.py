"""The throttle: which sources are held back, given how full the queues are that they feed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

#: A queue holds its sources back from this share of its bound on, until it is down to that share.
HIGH, LOW = 0.9, 0.4


class Throttle:
    """Holds a source while a queue is full that its records may come to; others are let through.

    Dead letters are a stream of the whole flow, but hold back only those from whom some have come.

    >>> throttle = Throttle([[2], [3], [], []], sources=[0, 1])
    >>> throttle.grew(2, waiting=95, limit=100), sorted(throttle.held)
    (True, [0])
    >>> throttle.shrank(2, waiting=30, limit=100), sorted(throttle.held)
    (True, [])
    """

    def __init__(
        self, downstream: Sequence[Sequence[int]], sources: Iterable[int], dead_letters: Iterable[int] = ()
    ) -> None:
        """Take the instances that each instance feeds, those that are sources, and those that dead letters are sent to."""
        self._reach = {source: _downstream_of(downstream, [source]) for source in sources}
        self._of_dead_letters = _downstream_of(downstream, dead_letters)
        self._broken: set[int] = set()  #: instances that dead letters have come from
        self.full: set[int] = set()  #: instances whose queues are near their bound
        self.held: frozenset[int] = frozenset()  #: the sources that must wait; replaced and never changed

    def grew(self, instance: int, waiting: int, limit: int) -> bool:
        """Take note of a queue that has become longer; return whether other sources are held now."""
        if waiting < HIGH * limit or instance in self.full:
            return False
        self.full.add(instance)
        return self._decide()

    def shrank(self, instance: int, waiting: int, limit: int) -> bool:
        """Take note of a queue that has become shorter; return whether other sources are held now."""
        if instance not in self.full or waiting >= LOW * limit:
            return False
        self.full.remove(instance)
        return self._decide()

    def broke(self, instance: int) -> bool:
        """Take note of dead letters from an instance; return whether other sources are held now."""
        if instance in self._broken:
            return False
        self._broken.add(instance)
        for reach in self._reach.values():
            if instance in reach:
                reach |= self._of_dead_letters
        return self._decide()

    def extend(self, instance: int, beyond: int) -> None:
        """Add a queue outside of the flow that an instance feeds, under a number of its own."""
        for reach in self._reach.values():
            if instance in reach:
                reach.add(beyond)

    def reason(self, source: int) -> int | None:
        """Return the first of the full queues that hold a source, None when it is not held."""
        return min(self._reach[source] & self.full, default=None)

    def _decide(self) -> bool:
        before = self.held
        self.held = frozenset(source for source, reach in self._reach.items() if not reach.isdisjoint(self.full))
        return self.held != before


def _downstream_of(downstream: Sequence[Sequence[int]], starts: Iterable[int]) -> set[int]:
    """Return what can be reached from some instances, themselves included."""
    instances: set[int] = set()
    waiting = list(starts)
    while waiting:
        at = waiting.pop()
        if at not in instances:
            instances.add(at)
            waiting += downstream[at]
    return instances
