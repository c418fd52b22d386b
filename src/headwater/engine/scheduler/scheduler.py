"""The scheduler: all that decides when a step runs, and nothing that does it.

Events go in (`arrived`, `admit`, `finished`), decisions come out: which step instance a free worker runs next, on how many
records, through which cheap steps these run on inline, which source is held, and how many workers are at it. There is no
thread, clock or lock in here: workers drive it in production, the simulator drives the same object in virtual time, a test
drives it in three lines.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol

from headwater.engine.scheduler.batch_size import Take, batch_size
from headwater.engine.scheduler.throttle import Throttle

#: An activation that takes longer than this runs beside any other. Shorter ones run one at a time: two workers that make
#: short calls hand the interpreter's lock to and fro, and get less done than one. So steps run on inline as long as all of
#: it stays short: what could run beside it is the same, and fewer decisions, queues and threads are in the way.
LONG_NS = 300_000
#: An activation that should have been short and is not back after this waits for something: others go ahead.
PATIENCE_NS = 20_000_000
#: Where no worker has come back for this long, all are at steps that wait for something.
STUCK_NS = 1_000_000_000
#: How fast measured costs and selectivities follow new measurements.
_LEARNING = 0.1


class Policy(Protocol):
    """Chooses the instance that a free worker runs next."""

    def pick(self, ready: Collection[int], scheduler: Scheduler) -> int:
        """Return one of the ready instances; there is at least one."""


class Activation(NamedTuple):
    """What a worker is to do, or a source that hands over records: run them, then carry the results on inline."""

    instance: int
    records: int
    #: instances that are reserved for this activation: what is sent to them does not pass their queues
    inline: tuple[int, ...]
    long: bool  #: whether it runs beside others
    by_source: bool = False


class Scheduler:
    """Turns events into activations of instances numbered from 0, senders before receivers.

    An instance is ready when records wait for it, nobody runs it, it does not rest, and no queue that it feeds is full. So
    every queue is bounded by its limit plus what one activation may add, and since the graph runs one way something is
    always ready, or rests.

    `single` tells which instances get all their records from one sender by one channel: only these can run inline, since
    nobody else can come in between. By default the graph tells, and every instance that nobody feeds is a source.
    """

    def __init__(
        self,
        downstream: Sequence[Sequence[int]],
        policy: Policy,
        *,
        take: Take = "all",
        workers: int = 1,
        limits: Sequence[int] | None = None,
        single: Sequence[bool] | None = None,
        throttle: Throttle | None = None,
        uncompiled: bool = False,
    ) -> None:
        n = len(downstream)
        self.policy, self.take, self.workers = policy, take, workers
        self.waiting = [0] * n  #: records in each queue; a watermark without records counts as one
        self.running = [False] * n  #: by a worker or a source, or reserved to be run inline
        self.limits = list(limits) if limits is not None else [2**62] * n
        self.cost_ns = [0.0] * n  #: measured compute time per record, a moving average; 0 while nothing is known
        self.out_ratio = [1.0] * n  #: measured records out per record in, a moving average
        #: whose kernels were not compiled when it last ran, or may not be before it runs: it takes few records
        self.uncompiled = [uncompiled] * n
        self.created_ns = [0] * n  #: when the record at the head of each queue was created
        self.downstream = [sorted(set(targets)) for targets in downstream]
        self.upstream: list[list[int]] = [[] for _ in range(n)]
        for source, targets in enumerate(self.downstream):
            for target in targets:
                self.upstream[target].append(source)
        if single is None:
            single = [sum(targets.count(i) for targets in downstream) == 1 for i in range(n)]
        self._inline_after = [[target for target in targets if single[target]] for targets in self.downstream]
        self._blocked = [0] * n  #: how many of the queues that an instance feeds are full
        self._full = [False] * n
        self.resting: dict[int, int] = {}  #: who is not served before a moment: what it failed at is tried again then
        self.ready: dict[int, None] = {}  #: used as a set that remembers the order of entering
        sources = [i for i, senders in enumerate(self.upstream) if not senders]
        self.throttle = throttle or Throttle(self.downstream, sources)
        self.at_work = 0  #: workers with an activation
        #: who is at a short activation, sources counted in; not one that should be back by now and is not
        self._short: set[int] = set()
        self._short_ns = 0  #: when the last of them began
        self.decisions = 0
        #: how many decisions there were at the last look, and when a look first saw so many
        self._last_decisions, self._last_decisions_ns = -1, 0

    # -- events -------------------------------------------------------------------------------------------------------

    def arrived(self, instance: int, count: int, created_ns: int = 0) -> None:
        """Take note that records, the oldest created at `created_ns`, were put into an instance's queue."""
        waiting = self.waiting[instance]
        if waiting == 0:
            self.created_ns[instance] = created_ns
            if not self.running[instance] and not self._blocked[instance] and instance not in self.resting:
                self.ready[instance] = None
        self.waiting[instance] = waiting = waiting + count
        limit = self.limits[instance]
        if waiting >= limit and not self._full[instance]:
            self._full[instance] = True
            for source in self.upstream[instance]:
                self._blocked[source] += 1
                self.ready.pop(source, None)
        self.throttle.grew(instance, waiting, limit)

    def finished(
        self,
        activation: Activation,
        elapsed_ns: int = 0,
        out: int = 0,
        head_created_ns: int = 0,
        uncompiled: bool = False,
    ) -> None:
        """Take note that an activation is over: how long the instance itself took, and who is at the head of its queue.

        Where kernels have answered `uncompiled`, or no longer do, what the instance cost before says nothing any more.
        """
        instance, records, inline, long, by_source = activation
        if not long:
            self._short.discard(instance)
        self.running[instance] = False
        for each in inline:
            self.running[each] = False
            self._make_ready(each)
        if by_source:
            return
        self.at_work -= 1
        self.created_ns[instance] = head_created_ns
        self.out_ratio[instance] += _LEARNING * (out / records - self.out_ratio[instance])
        if uncompiled != self.uncompiled[instance]:
            self.uncompiled[instance], self.cost_ns[instance] = uncompiled, 0.0
        self.learn(instance, records, elapsed_ns)
        self._make_ready(instance)

    def rest(self, instance: int, until_ns: int) -> None:
        """Serve an instance no more before a moment."""
        self.resting[instance] = until_ns
        self.ready.pop(instance, None)

    def wake(self, instance: int) -> None:
        """Serve an instance that rests again."""
        if self.resting.pop(instance, None) is not None:
            self._make_ready(instance)

    def _wake_rested(self, now_ns: int) -> None:
        for instance in [i for i, until_ns in self.resting.items() if until_ns <= now_ns]:
            self.wake(instance)

    def learn(self, instance: int, count: int, elapsed_ns: int) -> None:
        """Take note of what some records cost."""
        cost, now = self.cost_ns[instance], elapsed_ns / count
        self.cost_ns[instance] = cost + _LEARNING * (now - cost) if cost else now

    # -- decisions ----------------------------------------------------------------------------------------------------

    def next(self, now_ns: int = 0) -> Activation | None:
        """Return what a free worker is to do, or None to let it rest."""
        ready = self._servable(now_ns)
        if not ready:
            return None
        self.decisions += 1
        instance = next(iter(ready)) if len(ready) == 1 else self.policy.pick(ready, self)
        del self.ready[instance]
        waiting = self.waiting[instance]
        count = self._batch_size(instance)
        self.waiting[instance] = waiting = waiting - count
        limit = self.limits[instance]
        if self._full[instance] and waiting < limit:
            self._full[instance] = False
            for source in self.upstream[instance]:
                self._blocked[source] -= 1
                self._make_ready(source)
        self.throttle.shrank(instance, waiting, limit)
        self.at_work += 1
        return self._begin(instance, count, now_ns)

    def wants_worker(self, now_ns: int = 0) -> bool:
        """Say whether one more worker would be given something to do."""
        return bool(self._servable(now_ns))

    def _servable(self, now_ns: int) -> Collection[int]:
        """Return who of the ready may be served now: while something short is under way, only what is long."""
        if self.resting:
            self._wake_rested(now_ns)
        if not self.ready or self.at_work >= self.workers:
            return ()
        if now_ns - self._short_ns > PATIENCE_NS:
            self._short.clear()
        if not self._short:
            return self.ready
        return [i for i in self.ready if self._is_long(i, self._batch_size(i))]

    def add_worker(self, now_ns: int) -> bool:
        """Give one worker more where none has come back for long, though something is ready; say whether it was.

        So steps that wait for something, all workers being at them, hold up nobody else. Workers are never more than there
        are instances, since nobody is ready then. Whoever drives the scheduler asks now and then.
        """
        if self.resting:
            self._wake_rested(now_ns)
        if self.decisions != self._last_decisions:
            self._last_decisions, self._last_decisions_ns = self.decisions, now_ns
        stuck = bool(self.ready) and self.at_work >= self.workers and now_ns - self._last_decisions_ns >= STUCK_NS
        if stuck:
            self.workers += 1
            self._last_decisions_ns = now_ns
        return stuck

    def _batch_size(self, instance: int) -> int:
        return batch_size(self.take, self.waiting[instance], uncompiled=self.uncompiled[instance])

    def _is_long(self, instance: int, records: int) -> bool:
        return self.cost_ns[instance] * records > LONG_NS

    def rest_ns(self, now_ns: int = 0) -> int | None:
        """Return how long a worker that has nothing to do may sleep before it asks again; None until it is woken."""
        patience_ns = PATIENCE_NS if self._short else None
        if not self.resting:
            return patience_ns
        rested_ns = max(0, min(self.resting.values()) - now_ns)
        return rested_ns if patience_ns is None else min(patience_ns, rested_ns)

    def admit(self, source: int, count: int, now_ns: int = 0) -> Activation | None:
        """Let a source hand over records and run them on inline; None holds it, as long as `throttle` does.

        Beside something short nothing runs inline: then the source only fills queues.
        """
        if source in self.throttle.held:
            return None
        if self._short or self.at_work >= self.workers:
            return Activation(source, count, (), long=True, by_source=True)
        return self._begin(source, count, now_ns, by_source=True)

    def _begin(self, instance: int, count: int, now_ns: int, *, by_source: bool = False) -> Activation:
        self.running[instance] = True
        long = self._is_long(instance, count)
        if not long:
            self._short.add(instance)
            self._short_ns = now_ns
        inline: list[int] = []
        if self._inline_after[instance]:
            budget_ns = LONG_NS - self.cost_ns[instance] * count
            self._reserve(instance, count * self.out_ratio[instance], budget_ns, inline)
        return Activation(instance, count, tuple(inline), long, by_source)

    def _reserve(self, sender: int, records: float, budget_ns: float, inline: list[int]) -> float:
        """Set those apart behind a sender that are idle and take no longer than is left, and those behind them."""
        for each in self._inline_after[sender]:
            idle = not (self.waiting[each] or self.running[each] or self._blocked[each] or each in self.resting)
            if idle and 0 < self.cost_ns[each] * records < budget_ns:
                self.running[each] = True
                inline.append(each)
                budget_ns -= self.cost_ns[each] * records
                budget_ns = self._reserve(each, records * self.out_ratio[each], budget_ns, inline)
        return budget_ns

    def _make_ready(self, instance: int) -> None:
        free = not self.running[instance] and not self._blocked[instance] and instance not in self.resting
        if self.waiting[instance] and free:
            self.ready[instance] = None

    def idle(self) -> bool:
        """Say whether nothing waits and nothing runs."""
        return not any(self.waiting) and not any(self.running)
