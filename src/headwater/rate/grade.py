"""What this machine allows for keeping a promise: the grade, how it is done, and what would give a better one."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headwater.cores import usable_cores
from headwater.rate import cgroups
from headwater.rate.cgroups import Groups
from headwater.rate.ledger import Reservation
from headwater.rate.real_time import may_run_so

#: "reserved": a group per lane outweighs everything else; "session": a session per lane does, where the scheduler groups by
#: session; "shared": a lane gets what everybody gets, and a promise is as good as that share; "none": that is too little
Name = Literal["reserved", "session", "shared", "none"]

_AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")
_HIGHEST = -20
_DELEGATED = "systemd-run --user --scope -p Delegate=cpu -p CPUWeight=10000 headwater run …"
_HANDED_DOWN = f"{_DELEGATED}, or for all: sudo headwater supervisor --group GROUP"
_HEAVIER = f"{_DELEGATED}; in a container: --cpu-shares 262144"
_WRITABLE = "mount the cpu control group writable (in a container: --cgroupns=host --privileged)"


@dataclass(frozen=True, slots=True)
class Grade:
    """How well promises can be kept here."""

    name: Name
    how: str
    better: str = ""  #: the one thing that would give a better grade
    groups: Groups | None = None
    real_time: bool = False  #: whether lanes within their promise may also go before all others

    @property
    def cores(self) -> float:
        """Cores that lanes may use together: where groups are made, what the bounds there leave."""
        return usable_cores(None if self.groups is None else self.groups.base)

    def protect(self, lane: Reservation) -> None:
        """Give a lane what it has reserved, by the means of this grade; one that has reserved nothing is left as it is."""
        if not lane.cores:
            return
        if self.groups is not None:
            self.groups.put(lane.id, lane.pid, lane.cores)
        elif self.name == "session":
            _own_session(lane.pid)
            Path(f"/proc/{lane.pid}/autogroup").write_text(str(_HIGHEST))

    def weigh(self, lane: Reservation, *, above: bool) -> None:
        """Let a lane that is above its promise weigh what anybody does, and one that is within it what it has reserved."""
        if not lane.cores:
            return
        if self.groups is not None:
            self.groups.weigh(lane.id, lane.cores, above=above)
        elif self.name == "session":
            Path(f"/proc/{lane.pid}/autogroup").write_text("0" if above else str(_HIGHEST))

    def release(self, name: str) -> None:
        """Give back what a lane had."""
        if self.groups is not None:
            self.groups.remove(name)

    def sweep(self) -> None:
        """Give back what is held for nobody any more, whoever has left it behind."""
        if self.groups is not None:
            self.groups.sweep()

    def names(self) -> list[str]:
        """Return the lanes that something is held for here, whoever did that."""
        return [] if self.groups is None else self.groups.names()


def grade_here() -> Grade:
    """Find out which grade this machine gives this process, by trying."""
    groups = cgroups.find()
    if groups is not None:
        real_time = may_run_so()
        how = f"a cpu control group per lane (version {groups.version}, {groups.base})"
        if groups.is_light:
            how = f"{how}, where all weigh no more than any group beside that"
        if real_time:
            how = f"{how}, and real time within what is reserved"
        return Grade("reserved", how, _HEAVIER if groups.is_light else "", groups, real_time)
    if os.geteuid() == 0:
        if _autogroups():
            how = "a session per lane with autogroup -20; control groups cannot be written here"
            return Grade("session", how, _WRITABLE)
        how = "control groups cannot be written here, and the scheduler heeds no sessions: a lane gets the usual share"
        return Grade("shared", how, _WRITABLE)
    return Grade(
        "shared", "nothing can be reserved by this user: a lane gets the share that everybody gets", _HANDED_DOWN
    )


def _own_session(pid: int) -> None:
    """Raise OSError unless a process has a session of its own: the weight is that of all that is in it, a shell too."""
    if os.getsid(pid) != pid:
        raise PermissionError(f"process {pid} has no session of its own; start it with setsid")


def _autogroups() -> bool:
    with suppress(OSError):
        return _AUTOGROUP.read_text().strip() == "1" and cgroups.sessions_count()
    return False


def share(cores: float, processes: int = 1) -> float:
    """Return how many cores so many more processes get beside what is running now, if all get the same."""
    running = float(Path("/proc/loadavg").read_text().split()[0])
    return processes * min(1.0, cores / (processes + running))


def run_idle(pids: Iterable[int], *, idle: bool = True) -> bool:
    """Let processes have only what nobody else wants, as work that was promised nothing beside work that was; or no longer.

    Say whether all that was to be changed could be: back from idle only some may go (root, or who may set `nice` so low).
    """
    was, target = (os.SCHED_OTHER, os.SCHED_IDLE) if idle else (os.SCHED_IDLE, os.SCHED_OTHER)
    could = True
    for pid in pids:
        for thread in _threads(pid):
            try:
                if os.sched_getscheduler(thread) == was:
                    os.sched_setscheduler(thread, target, os.sched_param(0))
            except ProcessLookupError:
                continue
            except PermissionError:
                could = False
    return could


def _threads(pid: int) -> list[int]:
    """Return the threads of a process; none where it is gone."""
    with suppress(OSError):
        return [int(each.name) for each in Path(f"/proc/{pid}/task").iterdir()]
    return []


def run_in_real_time(cores: float) -> None:
    """Let what this thread starts go before every thread that is not of real time; needs root or CAP_SYS_NICE.

    Where real time is shared out by groups, this process's group is first given as much as it has reserved.
    """
    param = os.sched_param(1)
    try:
        os.sched_setscheduler(0, os.SCHED_RR, param)
    except PermissionError:
        cgroups.allow_real_time(cores)
        os.sched_setscheduler(0, os.SCHED_RR, param)


def run_as_usual() -> None:
    """Let this thread, and processes that it starts, no longer be of real time; its threads still are."""
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
