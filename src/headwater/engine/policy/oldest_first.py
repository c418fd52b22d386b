"""Oldest first: the record that has been on its way longest goes next, and a bottleneck never waits for long."""

from __future__ import annotations

from collections.abc import Collection

from headwater.engine.scheduler import Scheduler

#: Shares of work follow the measured costs; they are worked out anew after this many decisions.
_AFTER = 1024
#: How much older than it is a record counts at a step that does all of the flow's work.
_HEAD_START_NS = 5_000_000


class OldestFirst:
    """Serves the queue whose head was created earliest; heavy steps get a head start by their share of the work.

    Age alone keeps the slowest records from falling further behind, on whatever branch they are, and so lowers the high
    percentiles. But at most one worker runs an instance, so a heavy one that stands idle while lighter ones are served
    cannot catch up later; the head start keeps it busy.
    """

    def __init__(self) -> None:
        self._head_start_ns: list[int] = []
        self._until = 0

    def pick(self, ready: Collection[int], scheduler: Scheduler) -> int:
        """Return the instance with the oldest head, head starts counted in."""
        if scheduler.decisions >= self._until:
            self._until = scheduler.decisions + _AFTER
            self._head_start_ns = [int(_HEAD_START_NS * share) for share in shares(scheduler)]
        created_ns, head_start_ns = scheduler.created_ns, self._head_start_ns
        return min(ready, key=lambda i: created_ns[i] - head_start_ns[i])


def shares(scheduler: Scheduler) -> list[float]:
    """Return each instance's share of the work that one record causes, by measured costs and selectivities."""
    reach = [0.0 if senders else 1.0 for senders in scheduler.upstream]
    work = []
    for instance, targets in enumerate(scheduler.downstream):  # senders come before receivers
        work.append(reach[instance] * scheduler.cost_ns[instance])
        for target in targets:
            reach[target] += reach[instance] * scheduler.out_ratio[instance]
    total = sum(work)
    return [each / total for each in work] if total else work
