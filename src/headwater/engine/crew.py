"""How many workers are worth having at once: learned, because Python's own lock makes some work slower with company.

Steps that compute in long kernels or wait for the network run side by side. Steps made of many short calls do not: workers
then hand the interpreter's lock to and fro, thousands of times a second and each time on a core with cold caches, and two
of them get less done than one. Which it is depends on the flow, the batch sizes and the machine, and it shows in the
processor time that a crew uses while there is more than enough to do: workers that hinder each other use little more than
one fewer would. So the pool looks from time to time, sends one worker to rest if it is no use, and tries later again.
"""

from __future__ import annotations

_TRIAL_NS = 60_000_000  #: how long a crew is watched
_FIRST_REST_NS = 1_000_000_000  #: how long a smaller crew stands before one more is tried; doubled after each failure
_LONGEST_REST_NS = 16_000_000_000
_GAIN = 0.35  #: of a core, that a worker must add to be worth keeping
_BUSY = 0.8  #: below this share of a core workers wait for something else, and are no hindrance to each other


class Crew:
    """Decides the number of workers from the processor time used; told of time, it has no clock of its own."""

    def __init__(self, most: int) -> None:
        self.size = most
        self.due_ns = 0  #: when `look` wants to be called next
        self._most = most
        self._watching = self._shrinking = False
        self._began_ns = self._cpu_ns = 0
        self._rest_ns = _FIRST_REST_NS

    def look(self, now_ns: int, cpu_ns: int, saturated: bool) -> None:
        """Take stock; `cpu_ns` is the processor time of the whole process so far. Only time with much to do counts."""
        if self._most == 1:
            self.due_ns = now_ns + _LONGEST_REST_NS
        elif not saturated:
            self._watching = False
            self.due_ns = now_ns + _TRIAL_NS
        elif not self._watching:
            if self.size < self._most:
                self.size += 1
            self._watch(now_ns, cpu_ns)
        else:
            self._judge((cpu_ns - self._cpu_ns) / (now_ns - self._began_ns), now_ns, cpu_ns)

    def _judge(self, cores: float, now_ns: int, cpu_ns: int) -> None:
        if self.size > 1 and _BUSY < cores < self.size - 1 + _GAIN:
            self.size -= 1
            self._shrinking = True
        elif not self._shrinking:
            self._rest_ns = _FIRST_REST_NS
            self.size = min(self.size + 1, self._most)
        if self._shrinking and (self.size == 1 or cores >= self.size - 1 + _GAIN):
            self._watching = self._shrinking = False
            self.due_ns = now_ns + self._rest_ns
            self._rest_ns = min(2 * self._rest_ns, _LONGEST_REST_NS)
        else:
            self._watch(now_ns, cpu_ns)

    def _watch(self, now_ns: int, cpu_ns: int) -> None:
        self._watching = True
        self._began_ns, self._cpu_ns, self.due_ns = now_ns, cpu_ns, now_ns + _TRIAL_NS
