"""What others take of the machine that a site is on: all its processes but those of the site itself.

A policy that took the flow's own work for a load would flee from it, wherever it went.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_SPAN_S = 30.0  #: over which it is taken: what is over sooner is nothing to move for
_AT_WORK = (
    0,
    1,
    2,
    5,
    6,
    7,
)  #: of a processor's times: user, nice, system, interrupts, and what the host has given to others


class Others:
    """Counts processor time; what a process has started, and what these have, is the site's own."""

    def __init__(self, pid: int, processors: Collection[int], proc: Path = Path("/proc")) -> None:
        self._pid, self._processors, self._proc = pid, {f"cpu{each}" for each in processors}, proc
        self._own: dict[int, float] | None = None  #: processor time of each process at the last look
        self._own_s = 0.0
        self._seen: deque[tuple[float, float, float]] = deque()

    def cores(self, now_s: float) -> float:
        """Return how many cores others have used of late; to be asked every now and then, by any clock that goes on."""
        try:
            busy_s, own = self._busy_s(), self._own_used_s()
        except (OSError, ValueError, IndexError):  # this system does not tell
            return 0.0
        before = own if self._own is None else self._own
        for pid, used_s in own.items():
            last_s = before.get(pid, 0.0)
            self._own_s += used_s - last_s if used_s >= last_s else used_s  # less: another process has the number
        self._own = own
        self._seen.append((now_s, busy_s, self._own_s))
        while len(self._seen) > 2 and self._seen[1][0] <= now_s - _SPAN_S:
            self._seen.popleft()
        (from_s, busy_before_s, own_before_s), (to_s, *_) = self._seen[0], self._seen[-1]
        if not to_s > from_s:
            return 0.0
        return max(0.0, (busy_s - busy_before_s) - (self._own_s - own_before_s)) / (to_s - from_s)

    def _busy_s(self) -> float:
        rows = (line.split() for line in (self._proc / "stat").read_text().splitlines())
        return sum(int(row[1 + each]) * _TICK_S for row in rows if row[0] in self._processors for each in _AT_WORK)

    def _own_used_s(self) -> dict[int, float]:
        """Return the processor time that each of the site's own processes has used."""
        parents: dict[int, int] = {}
        used_s: dict[int, float] = {}
        for folder in self._proc.iterdir():
            if folder.name.isdecimal():
                with suppress(OSError, ValueError, IndexError):  # it has ended
                    fields = (folder / "stat").read_text().rpartition(")")[2].split()
                    parents[int(folder.name)] = int(fields[1])
                    used_s[int(folder.name)] = (int(fields[11]) + int(fields[12])) * _TICK_S
        own = {self._pid}
        while more := {pid for pid, parent in parents.items() if parent in own} - own:
            own |= more
        return {pid: used_s[pid] for pid in own if pid in used_s}
