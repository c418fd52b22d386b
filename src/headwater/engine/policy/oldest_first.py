"""Oldest first: the record that has been on its way longest goes next, and a bottleneck never waits for long."""

from __future__ import annotations

from headwater.engine.machine import Machine

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
        self._until = 0

    def pick(self, ready: dict[int, None], machine: Machine) -> int:
        """Return the instance with the oldest head, head starts counted in."""
        if machine.decisions >= self._until:
            self._until = machine.decisions + _AFTER
            machine.head_start_ns = [int(_HEAD_START_NS * share) for share in shares(machine)]
            machine.due_ns = [born - head for born, head in zip(machine.born_ns, machine.head_start_ns, strict=True)]
        return min(ready, key=machine.due_ns.__getitem__)


def shares(machine: Machine) -> list[float]:
    """Return each instance's share of the work that one record causes, by measured costs and selectivities."""
    reach = [0.0 if senders else 1.0 for senders in machine.upstream]
    work = []
    for instance, targets in enumerate(machine.downstream):  # senders come before receivers
        work.append(reach[instance] * machine.cost_ns[instance])
        for target in targets:
            reach[target] += reach[instance] * machine.out_ratio[instance]
    total = sum(work)
    return [each / total for each in work] if total else work
