"""A group of the processor with no more than so many cores: what a cluster gives a container, and Dhalion asks more of."""

from __future__ import annotations

import os

from headwater.rate import cgroups

_PERIOD_US = 10_000  #: so short that waiting for the next one does not show in latencies of 50 ms


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
