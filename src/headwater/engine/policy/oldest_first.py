"""Oldest first: the record that has been on its way longest goes next, wherever it waits."""

from __future__ import annotations

from headwater.engine.machine import Machine


class OldestFirst:
    """Serves the queue whose head was created earliest."""

    def pick(self, ready: dict[int, None], machine: Machine) -> int:
        """Return the instance with the oldest head."""
        return min(ready, key=machine.born_ns.__getitem__)
