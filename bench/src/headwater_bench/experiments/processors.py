"""How much processor time a run on Spark has taken so far, and which kind of its processes took it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from headwater.processes import children, family
from headwater.rate.process import used_s

#: the driver's Java plans and, on a local master, runs tasks too, as do its Python processes; on a cluster these only plan,
#: and count as the driver; those who keep a cluster are its master and workers
KINDS = ("driver", "driver's Java", "executors' Java", "Python of tasks", "master and workers")


class Processors:
    """The processes of a driver and of a cluster; what one that has ended had used, as far as it was seen, counts on."""

    def __init__(self, driver: int, keepers: Iterable[int] = ()) -> None:
        self._driver, self._keepers = driver, tuple(keepers)
        self._used: dict[int, tuple[str, float]] = {}

    def look(self) -> dict[str, float]:
        """Return the seconds of each kind so far."""
        self._see("driver", [self._driver])
        beside = "driver" if self._keepers else "Python of tasks"
        for each in children(self._driver):
            self._see("driver's Java" if is_java(each) else beside, [each])
            self._see(beside, family(each)[1:])
        for keeper in self._keepers:
            self._see("master and workers", [keeper])
            for executor in children(keeper):
                self._see("executors' Java", [executor])
                self._see("Python of tasks", family(executor)[1:])
        found = dict.fromkeys(KINDS, 0.0)
        for kind, seconds in self._used.values():
            found[kind] += seconds
        return found

    def _see(self, kind: str, pids: Iterable[int]) -> None:
        for pid in pids:
            seconds = used_s(pid)
            if seconds:  # one that has ended meanwhile has none any more
                self._used[pid] = kind, seconds


def is_java(pid: int) -> bool:
    """Say whether a process is one of Java."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip() == "java"
    return False
