"""A bound on the cores that the processes of a site take together: a control group for each, version 1 or 2.

Groups outlive a process that was killed, so each has the name of who made it: the next one to come removes those of who is
gone.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from headwater.rate.cgroups import Groups
from headwater.rate.process import began

_PREFIX = "headwater-up"
_PERIOD_US = 10_000  #: in which a site has its share: short, so that it is slow rather than still
_LEAST_US = 1_000  #: that the kernel takes for a share


class Quotas:
    """The groups of one process; `close` removes them once nothing is in them."""

    def __init__(self, groups: Groups) -> None:
        self._groups, self._created = groups, list[Path]()
        sweep(groups)

    def bound(self, pid: int, number: int, cores: float) -> None:
        """Have the process of a site, and all that it will start, take no more than so many cores; OSError where not."""
        group = self._group(number)
        group.mkdir(exist_ok=True)
        self._created = [*(each for each in self._created if each != group), group]
        share_us = max(_LEAST_US, round(cores * _PERIOD_US))
        if self._groups.version == 1:
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(share_us))
        else:
            (group / "cpu.max").write_text(f"{share_us} {_PERIOD_US}")
        (group / "cgroup.procs").write_text(str(pid))

    def close(self) -> None:
        """Remove the groups; one that still has processes is left to whoever comes next."""
        for group in self._created:
            with suppress(OSError):
                group.rmdir()

    def _group(self, number: int) -> Path:
        own = os.getpid()
        return self._groups.base / f"{_PREFIX}.{own}.{began(own) or 0}.{number}"


def sweep(groups: Groups) -> None:
    """Remove the groups of processes that are gone."""
    for group in groups.base.glob(f"{_PREFIX}.*"):
        _, pid, since, _ = group.name.split(".")
        if str(began(int(pid)) or 0) != since:
            with suppress(OSError):
                group.rmdir()
