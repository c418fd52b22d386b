"""Control groups of the processor, version 1 and 2: one group per lane, weighed by what it has reserved.

Groups lie side by side with whatever else the machine runs, so that a weight counts against all of it. A lane within its
promise outweighs hundreds of busy processes; one above it weighs what any of them does. A group outlives whoever made it:
those that nobody is in are swept away by whoever makes some next.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

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

    def put(self, name: str, pid: int, cores: float | None = None) -> None:
        """Put a process, with all its threads, into a group of its own, which may have so many cores reserved."""
        group = self.group(name)
        for tries in range(1, _TRIES + 1):
            try:
                group.mkdir(exist_ok=True)
                if cores is not None:
                    self.weigh(name, cores, above=False)
                (group / "cgroup.procs").write_text(str(pid))
                return
            except OSError as error:  # somebody else swept it away before the process was in it
                if error.errno not in _SWEPT or tries == _TRIES:
                    raise

    def weigh(self, name: str, cores: float, *, above: bool) -> None:
        """Set a group's weight: by its cores, or by those of anybody while it is above its promise."""
        file, usual, per_core, most = _WEIGHTS[self.version]
        weight = round((usual if above else per_core) * cores)
        (self.group(name) / file).write_text(str(min(max(weight, 2), most)))

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
        found = (each.name.removeprefix(_PREFIX) for each in self.base.glob(f"{_PREFIX}*") if each.is_dir())
        return [name for name in found if name != _REST]

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
    for mount, options in _mounts(proc, "cgroup"):
        if "cpu" in options.split(","):
            group = mount / _own(proc, 1)
            period_us = int((group / "cpu.rt_period_us").read_text())
            (group / "cpu.rt_runtime_us").write_text(str(round(cores * period_us)))


def _mounts(proc: Path, kind: str) -> list[tuple[Path, str]]:
    """Return where file systems of a kind are mounted, and their options."""
    found = []
    for line in (proc / "self" / "mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if after.split()[0] == kind:
            found.append((Path(before.split()[4]), after.split()[2]))
    return found


def _own(proc: Path, version: int) -> str:
    """Return the group that this process is in."""
    for line in (proc / "self" / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if (version == 2 and not controllers) or (version == 1 and "cpu" in controllers.split(",")):
            return path.lstrip("/")
    return ""


def _version_1(proc: Path) -> Groups | None:
    for mount, options in _mounts(proc, "cgroup"):
        if "cpu" in options.split(","):
            places = (mount, mount / _own(proc, 1))
            return next((Groups(place, 1) for place in places if _usable(Groups(place, 1))), None)
    return None


def _version_2(proc: Path) -> Groups | None:
    for mount, _ in _mounts(proc, "cgroup2"):
        for place in (mount, mount / _own(proc, 2)):
            if _hands_down(place, is_root=place == mount) and _usable(Groups(place, 2)):
                return Groups(place, 2)
    return None


def _hands_down(place: Path, *, is_root: bool) -> bool:
    """Have a group of version 2 hand the processor down to its own groups; only the root may hold processes then too."""
    try:
        if "cpu" not in (place / "cgroup.controllers").read_text().split():
            return False
        if "cpu" in (place / "cgroup.subtree_control").read_text().split():
            return True
        if not os.access(place / "cgroup.subtree_control", os.W_OK):
            return False
        if not is_root:
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
