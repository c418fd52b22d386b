"""The decision machine: which step instance a free worker runs next, and on how many records.

Events go in (`arrived`, `finished`), commands come out (`next`). There is no thread, clock or lock in here: worker threads
drive it in production, the simulator drives the same object in virtual time, a test drives it in three lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headwater.engine.appetite import LEARNING, Appetite, Take

#: A turn that takes less than this costs about what deciding about it and queueing for it cost.
RIDE_NS = 25_000


class Policy(Protocol):
    """Chooses the instance that a free worker runs next."""

    def pick(self, ready: dict[int, None], machine: Machine) -> int:
        """Return one of the ready instances; there is at least one."""


class Machine:
    """Turns events into commands for instances numbered from 0.

    An instance is ready when records wait for it, no worker runs it, and no queue that it feeds is full. So every queue is
    bounded by its limit plus what one activation may add, and since the graph runs one way something is always ready.
    """

    def __init__(
        self,
        downstream: Sequence[Sequence[int]],
        policy: Policy,
        take: Take = 50,
        limits: Sequence[int] | None = None,
    ) -> None:
        n = len(downstream)
        self.policy = policy
        self.take = take
        self.appetites = [Appetite(take) for _ in range(n)]  #: what a turn of each instance consumes
        self.waiting = [0] * n  #: records in each queue; a mark without records counts as one
        self.running = [False] * n
        self.limits = list(limits) if limits is not None else [2**62] * n
        self.cost_ns = [0.0] * n  #: measured compute time per record, a moving average
        self.out_ratio = [1.0] * n  #: measured records out per record in, a moving average
        self.born_ns = [0] * n  #: when the record at the head of each queue was created
        self.head_start_ns = [0] * n  #: how much older than it is that record counts, for policies that go by age
        self.due_ns = [0] * n  #: the one less the other
        self.downstream = [sorted(set(targets)) for targets in downstream]
        self.upstream: list[list[int]] = [[] for _ in range(n)]
        for source, targets in enumerate(self.downstream):
            for target in targets:
                self.upstream[target].append(source)
        self._blocked = [0] * n  #: how many of the queues that an instance feeds are full
        self._full = [False] * n
        self.cheap = [False] * n  #: whether a turn of the instance takes less than RIDE_NS
        self.ready: dict[int, None] = {}  #: used as a set that remembers the order of entering
        self._ready_cheap: set[int] = set()  #: those of them that are cheap
        self.decisions = 0

    def arrived(self, instance: int, count: int, born_ns: int = 0) -> None:
        """Take note that records, the oldest created at `born_ns`, were put into an instance's queue."""
        waiting = self.waiting[instance]
        if waiting == 0:
            self.born_ns[instance] = born_ns
            self.due_ns[instance] = born_ns - self.head_start_ns[instance]
            if not self.running[instance] and not self._blocked[instance]:
                self._enter(instance)
        waiting += count
        self.waiting[instance] = waiting
        if waiting >= self.limits[instance] and not self._full[instance]:
            self._full[instance] = True
            for source in self.upstream[instance]:
                self._blocked[source] += 1
                self.ready.pop(source, None)
                self._ready_cheap.discard(source)

    def next(self) -> tuple[int, int] | None:
        """Return which instance to run on how many records, or None to let the worker sleep."""
        ready = self.ready
        if not ready:
            return None
        self.decisions += 1
        if self._ready_cheap:
            # what costs next to nothing goes first, from the far end: then records can ride through it again
            chosen = max(self._ready_cheap)
            self._ready_cheap.remove(chosen)
        else:
            chosen = next(iter(ready)) if len(ready) == 1 else self.policy.pick(ready, self)
        del ready[chosen]
        self.running[chosen] = True
        waiting = self.waiting[chosen]
        count = self.appetites[chosen].of(waiting)
        waiting -= count
        self.waiting[chosen] = waiting
        if self._full[chosen] and waiting < self.limits[chosen]:
            self._full[chosen] = False
            for source in self.upstream[chosen]:
                self._blocked[source] -= 1
                self._make_ready(source)
        return chosen, count

    def finished(self, instance: int, count: int, elapsed_ns: int = 0, out: int = 0, born_ns: int = 0) -> None:
        """Take note that a worker is done with what `next` gave it; `born_ns` is the age of the queue's new head."""
        self.running[instance] = False
        self.born_ns[instance] = born_ns
        self.due_ns[instance] = born_ns - self.head_start_ns[instance]
        if count:
            self.out_ratio[instance] += LEARNING * (out / count - self.out_ratio[instance])
            self.learn(instance, count, elapsed_ns)
        if self.waiting[instance] and not self._blocked[instance]:
            self._enter(instance)

    def learn(self, instance: int, count: int, elapsed_ns: int) -> None:
        """Take note of what some records cost."""
        appetite = self.appetites[instance]
        appetite.learn(count, elapsed_ns)
        self.cost_ns[instance] = cost = appetite.cost_ns
        if type(self.take) is int:
            self.cheap[instance] = cost * self.take < RIDE_NS

    def may_ride(self, instance: int) -> bool:
        """Say whether records may go through an instance without passing its queue: it is cheap, idle and not held up.

        Safe to ask without a lock for the worker that runs the only instance that feeds this one.
        """
        return self.cheap[instance] and not (
            self.waiting[instance] or self.running[instance] or self._blocked[instance]
        )

    def _make_ready(self, instance: int) -> None:
        if self.waiting[instance] and not self.running[instance] and not self._blocked[instance]:
            self._enter(instance)

    def _enter(self, instance: int) -> None:
        self.ready[instance] = None
        if self.cheap[instance]:
            self._ready_cheap.add(instance)

    def idle(self) -> bool:
        """Say whether nothing waits and nothing runs."""
        return not any(self.waiting) and not any(self.running)
