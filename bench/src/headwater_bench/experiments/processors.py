"""How much processor time a run on Spark has taken so far, and which kind of its processes took it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from headwater.processes import children, family
from headwater.rate.process import used_s

#: the driver's Java plans and, on a local master, runs tasks too, as do its Python processes; on a cluster these only plan,
#: and count as the driver; those who keep a cluster are its master and workers. Java compiles what it runs often, in
#: threads of its own, for minutes: that is told apart from what it runs
KINDS = (
    "driver",
    "driver's Java",
    "its compilers",
    "executors' Java",
    "their compilers",
    "Python of tasks",
    "master and workers",
)
_COMPILERS = ("C1 Compiler", "C2 Compiler")  #: how the names of those threads begin


class Processors:
    """The processes of a driver and of a cluster; what one that has ended had used, as far as it was seen, counts on."""

    def __init__(self, driver: int, keepers: Iterable[int] = ()) -> None:
        self._driver, self._keepers = driver, tuple(keepers)
        self._used: dict[int, tuple[str, float]] = {}
        self._compiled: dict[int, tuple[str, str, float]] = {}  #: by thread: Java ends those that have nothing to do

    def look(self) -> dict[str, float]:
        """Return the seconds of each kind so far."""
        self._see("driver", [self._driver])
        beside = "driver" if self._keepers else "Python of tasks"
        for each in children(self._driver):
            if is_java(each):
                self._see_java("driver's Java", "its compilers", each)
            else:
                self._see(beside, [each])
            self._see(beside, family(each)[1:])
        for keeper in self._keepers:
            self._see("master and workers", [keeper])
            for executor in children(keeper):
                self._see_java("executors' Java", "their compilers", executor)
                self._see("Python of tasks", family(executor)[1:])
        found = dict.fromkeys(KINDS, 0.0)
        for kind, seconds in self._used.values():
            found[kind] += seconds
        for kind, of, seconds in self._compiled.values():
            found[kind] += seconds
            found[of] -= seconds
        return found

    def _see(self, kind: str, pids: Iterable[int]) -> None:
        for pid in pids:
            seconds = used_s(pid)
            if seconds:  # one that has ended meanwhile has none any more
                self._used[pid] = kind, seconds

    def _see_java(self, kind: str, compilers: str, pid: int) -> None:
        self._see(kind, [pid])
        with suppress(OSError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                with suppress(OSError):
                    if (thread / "comm").read_text().startswith(_COMPILERS):
                        self._compiled[int(thread.name)] = compilers, kind, _ran_s(thread)


def _ran_s(thread: Path) -> float:
    """Return the processor seconds of a thread, which the system counts in nanoseconds here."""
    return int((thread / "schedstat").read_text().split()[0]) / 1e9


def is_java(pid: int) -> bool:
    """Say whether a process is one of Java."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip() == "java"
    return False
