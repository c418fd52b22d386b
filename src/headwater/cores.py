"""How many cores this process may use: those that it may run on, and no more than its control groups let it have.

In a container with `--cpus 0.5`, or a unit with `CPUQuota=50%`, a process may run on every processor, and is stopped for the
rest of each period once it had its share. That is not seen by who counts processors.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

_PROC = Path("/proc")


def usable_cores(group: Path | None = None, proc: Path = _PROC) -> float:
    """Return how many cores this process may use, or would if it were in the control group that has this folder."""
    return min(float(len(os.sched_getaffinity(0))), _own_bound(proc) if group is None else _bound(group))


def whole_cores(proc: Path = _PROC) -> int:
    """Return how many threads or processes can be at work at once: one for each core, and for what is left of one."""
    return math.ceil(usable_cores(proc=proc))


class Mount(NamedTuple):
    """A file system of control groups."""

    point: Path
    options: list[str]
    root: PurePosixPath  #: the group that is seen at the point; in a container it may be one of the machine's

    @property
    def is_whole(self) -> bool:
        """Whether it shows all groups of the machine, not only those of a container."""
        return str(self.root) == "/"


def mounts(proc: Path, kind: str) -> list[Mount]:
    """Return the file systems of a kind, `cgroup` or `cgroup2`."""
    file_systems = []
    for line in _lines(proc / "self" / "mountinfo"):
        before, _, after = line.partition(" - ")
        fields = after.split(" ")  # the kind, what is mounted, which may be called nothing, and options
        if fields[0] == kind:
            root, point = before.split(" ")[3:5]
            file_systems.append(Mount(Path(point), fields[2].split(","), PurePosixPath(root)))
    return file_systems


def own_group(proc: Path, version: int) -> str:
    """Return the group of the processor that this process is in."""
    for line in _lines(proc / "self" / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if (version == 2 and not controllers) or (version == 1 and "cpu" in controllers.split(",")):
            return path.lstrip("/")
    return ""


def _lines(path: Path) -> list[str]:
    """Return the lines of a file in which names of folders are as they are on disk, in whatever encoding."""
    return [line for line in os.fsdecode(path.read_bytes()).split("\n") if line]


def _own_bound(proc: Path) -> float:
    try:
        return min(map(_bound, _own_folders(proc)), default=math.inf)
    except OSError:  # no Linux, or a /proc that is hidden
        return math.inf


def _own_folders(proc: Path) -> Iterator[Path]:
    """Return where the groups are seen that this process is in."""
    for version, kind in ((1, "cgroup"), (2, "cgroup2")):
        for mount in mounts(proc, kind):
            if version == 2 or "cpu" in mount.options:
                own = PurePosixPath("/", own_group(proc, version))
                within = own.is_relative_to(mount.root) and ".." not in own.parts
                # what a container cannot see of the way to its group is all above the point
                yield mount.point / own.relative_to(mount.root) if within else mount.point


def _bound(group: Path) -> float:
    """Return how many cores a group lets its processes have: it, and all that it lies in."""
    return min(map(_quota, (group, *group.parents)))


def _quota(group: Path) -> float:
    with suppress(OSError, ValueError):
        share, period = (group / "cpu.max").read_text().split()
        return math.inf if share == "max" else int(share) / int(period)
    with suppress(OSError, ValueError):
        share_us = int((group / "cpu.cfs_quota_us").read_text())
        return math.inf if share_us < 0 else share_us / int((group / "cpu.cfs_period_us").read_text())
    return math.inf
