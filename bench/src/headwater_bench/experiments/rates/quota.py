"""Containers: groups of the processor with no more than so many cores, of which who adapts asks for more."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable

from headwater.rate import cgroups

_PERIOD_US = 10_000  #: so short that waiting for the next one does not show in latencies of 50 ms
_SIZED_S = (1.5, 0.25, 1.5)  #: after which time, how often, and for how long it is seen what a container must have
_SPARE = 1.2  #: how much more one has


class Containers:
    """Containers of this process and of those that it starts, each with a fifth more than the first rate needs.

    Until that was seen there is no bound.
    """

    def __init__(self) -> None:
        self._quota = Quota()
        self.cores = 0.0  #: of one

    def size(self, used_s: Callable[[], float], done: threading.Event) -> None:
        """See what the first rate needs, and be content with a container for that."""
        after_s, every_s, for_s = _SIZED_S
        done.wait(after_s)
        used: list[float] = []
        while len(used) * every_s < for_s:
            began_s, before_s = time.monotonic(), used_s()
            if done.wait(every_s):
                return
            used.append((used_s() - before_s) / (time.monotonic() - began_s))
        # what starting and catching up took is in some of them: nobody sizes a container by that
        self.cores = _SPARE * statistics.median(used)
        self.allow(1)

    def allow(self, count: float) -> None:
        """Have as many as this, once it is known what one is."""
        if self.cores:
            self._quota.allow(self.cores * count)


class Quota:
    """The group of this process, which is unbounded until it is told otherwise; whoever ends it removes that."""

    def __init__(self) -> None:
        groups = cgroups.find()
        if groups is None:
            raise OSError("no group of the processor can be made here")
        self._version = groups.version
        groups.put(_name(os.getpid()), os.getpid())
        self._group = groups.group(_name(os.getpid()))

    def allow(self, cores: float) -> None:
        """Let the process have so many cores, and no more."""
        quota_us = max(1000, round(cores * _PERIOD_US))
        if self._version == 1:
            (self._group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (self._group / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (self._group / "cpu.max").write_text(f"{quota_us} {_PERIOD_US}")


def remove(pid: int) -> None:
    """Remove the group of a process that is gone; one that is not goes back to where groups are."""
    groups = cgroups.find()
    if groups is not None:
        groups.remove(_name(pid))


def _name(pid: int) -> str:
    return f"quota-{pid}"
