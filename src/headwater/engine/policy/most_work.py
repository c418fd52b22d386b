"""Most work: like the longest queue, but a queue is as long as the time it takes to empty it."""

from __future__ import annotations

from headwater.engine.machine import Machine


class MostWork:
    """Serves the instance whose pending records take longest to compute, by the measured cost of a record."""

    def pick(self, ready: dict[int, None], machine: Machine) -> int:
        """Return the instance with the most pending work."""
        waiting, cost_ns = machine.waiting, machine.cost_ns
        return max(ready, key=lambda i: waiting[i] * (cost_ns[i] + 1.0))
