"""Control groups of the processor, version 1 and 2: one group per lane, weighed by what it has reserved.

Groups lie side by side with whatever else the machine runs, so that a weight counts against all of it. A lane within its
promise outweighs hundreds of busy processes; one above it weighs what any of them does. A group outlives whoever made it:
those that nobody is in are swept away by whoever makes some next.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from headwater.cores import mounts, own_group

_PREFIX = "headwater."
_REST = "rest"  #: the group of what was in a group of version 2 before it had others
_SWEPT = (errno.ENOENT, errno.ENODEV)  #: how a group answers that was removed while it was still empty
_TRIES = 3
#: by version: the file, the weight of anybody, the weight of a reserved core, the largest there is
_WEIGHTS = {1: ("cpu.shares", 1024, 262_144, 262_144), 2: ("cpu.weight", 100, 10_000, 10_000)}


@dataclass(frozen=True, slots=True)
class Groups:
    """Where groups can be made."""

    base: Path
    version: int
    nested: bool = False  #: whether the base has others beside it, against which only its own weight counts

    @property
    def is_light(self) -> bool:
        """Whether all groups here together weigh no more than any other beside their base, as where nobody gave it more."""
        file, usual, _, _ = _WEIGHTS[self.version]
        with suppress(OSError):
            return self.nested and int((self.base / file).read_text()) <= usual
        return self.nested

    def put(self, name: str, pid: int, cores: float | None = None) -> None:
        """Put a process, with all its threads, into a group of its own, which may have so many cores reserved."""

        def act(group: Path) -> None:
            if cores is not None:
                self.weigh(name, cores, above=False)
            (group / "cgroup.procs").write_text(str(pid))

        self._in(name, act)

    def leave(self, pid: int) -> None:
        """Take a process out of whatever group it is in, to where those are that have none."""
        (self.base / "cgroup.procs").write_text(str(pid))

    def weigh(self, name: str, cores: float, *, above: bool) -> None:
        """Set a group's weight: by its cores, or that of anybody, a core's or more, while it is above its promise."""
        file, usual, per_core, most = _WEIGHTS[self.version]
        weight = round(usual * max(1.0, cores) if above else per_core * cores)
        self._in(name, lambda group: (group / file).write_text(str(min(max(weight, 2), most))))

    def _in(self, name: str, act: Callable[[Path], object]) -> None:
        """Act on a group, made anew where somebody else swept it away: nobody is in one whose lanes are of real time."""
        group = self.group(name)
        for tries in range(1, _TRIES + 1):
            try:
                group.mkdir(exist_ok=True)
                act(group)
                return
            except OSError as error:
                if error.errno not in _SWEPT or tries == _TRIES:
                    raise

    def remove(self, name: str) -> None:
        """Remove a group whose processes are gone; one that still has some gives them back."""
        group = self.group(name)
        with suppress(OSError):
            for pid in (group / "cgroup.procs").read_text().split():
                (self.base / "cgroup.procs").write_text(pid)
        with suppress(OSError):
            group.rmdir()

    def sweep(self) -> None:
        """Remove all groups that nobody is in: they are of processes that were killed, with whoever would have done it."""
        for name in self.names():
            with suppress(OSError):  # which the system answers for one that has processes
                self.group(name).rmdir()

    def names(self) -> list[str]:
        """Return the names of all groups that were made here."""
        names = (each.name.removeprefix(_PREFIX) for each in self.base.glob(f"{_PREFIX}*") if each.is_dir())
        return [name for name in names if name != _REST]

    def group(self, name: str) -> Path:
        """Return the folder of a group."""
        return self.base / f"{_PREFIX}{name}"


def find(proc: Path = Path("/proc")) -> Groups | None:
    """Return where this process may make groups of the processor; None where it may not."""
    with suppress(OSError):
        return _version_1(proc) or _version_2(proc)
    return None


def allow_real_time(cores: float, proc: Path = Path("/proc")) -> None:
    """Give this process's group of version 1 a share of real time, without which none of it may run so; raises OSError."""
    for mount in mounts(proc, "cgroup"):
        if "cpu" in mount.options:
            group = mount.point / own_group(proc, 1)
            period_us = int((group / "cpu.rt_period_us").read_text())
            (group / "cpu.rt_runtime_us").write_text(str(round(cores * period_us)))


def sessions_count(proc: Path = Path("/proc")) -> bool:
    """Say whether the scheduler heeds sessions here: it groups by them only what is in no other group of the processor."""
    with suppress(OSError):
        for mount in mounts(proc, "cgroup"):
            if "cpu" in mount.options:
                return mount.is_whole and not own_group(proc, 1)
        for mount in mounts(proc, "cgroup2"):
            own = mount.point / own_group(proc, 2)
            return not any((each / "cpu.weight").exists() for each in (own, *own.parents))
    return True


def _version_1(proc: Path) -> Groups | None:
    for mount in mounts(proc, "cgroup"):
        if "cpu" in mount.options:
            own = mount.point / own_group(proc, 1)
            candidates = (Groups(each, 1, not mount.is_whole or each != mount.point) for each in (mount.point, own))
            return next((groups for groups in candidates if _usable(groups)), None)
    return None


def _version_2(proc: Path) -> Groups | None:
    for mount in mounts(proc, "cgroup2"):
        for place in (mount.point, mount.point / own_group(proc, 2)):
            groups = Groups(place, 2, (place / "cgroup.type").exists())  # which the root of the machine has not
            if _hands_down(groups) and _usable(groups):
                return groups
    return None


def _hands_down(groups: Groups) -> bool:
    """Have a group of version 2 hand the processor down to its own groups; only the root may hold processes then too."""
    place = groups.base
    try:
        if "cpu" not in (place / "cgroup.controllers").read_text().split():
            return False
        if "cpu" in (place / "cgroup.subtree_control").read_text().split():
            return True
        if not os.access(place / "cgroup.subtree_control", os.W_OK):
            return False
        if groups.nested:
            rest = place / f"{_PREFIX}{_REST}"
            rest.mkdir(exist_ok=True)
            for pid in (place / "cgroup.procs").read_text().split():
                (rest / "cgroup.procs").write_text(pid)
        (place / "cgroup.subtree_control").write_text("+cpu")
    except OSError:
        return False
    return True


def _usable(groups: Groups) -> bool:
    """Say whether groups can be made here, by making one."""
    probe = groups.base / f"{_PREFIX}probe-{os.getpid()}"
    try:
        probe.mkdir()
        with suppress(FileNotFoundError):  # somebody swept it away, being empty
            probe.rmdir()
    except OSError:
        return False
    return True
