"""What the system knows of a process: whether it lives or is stopped, whose it is, what it used, how long it waited."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

_TICKS_HZ = os.sysconf("SC_CLK_TCK")
_REAL_TIME = (os.SCHED_FIFO, os.SCHED_RR, 6)  #: the last is SCHED_DEADLINE, which Python has no name for
_BUSY = 0.05  #: the share of a core from which on a program is in the way


def began(pid: int) -> int | None:
    """Return when a process began, in ticks since boot; None if there is none, or only its remains."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in "ZX" else int(fields[19])


def is_stopped(pid: int) -> bool:
    """Say whether a process was stopped, by SIGSTOP, Ctrl-Z or a debugger, and does nothing until it is let go on."""
    fields = _stat(pid)
    return fields is not None and fields[0] in "Tt"


def user(pid: int) -> int | None:
    """Return whose a process is; None if there is none."""
    with suppress(OSError):
        return Path(f"/proc/{pid}").stat().st_uid
    return None


def used_s(pid: int) -> float:
    """Return the processor time that a process has used, by all its threads; of another one, in hundredths."""
    if pid == os.getpid():
        return time.process_time()
    fields = _stat(pid)
    return 0.0 if fields is None else (int(fields[11]) + int(fields[12])) / _TICKS_HZ


def waited_ns(pid: int) -> int:
    """Return how long the threads of a process could have run and had no processor, all in all."""
    total = 0
    with suppress(OSError):  # it may have ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/schedstat") as file:
                total += int(file.read().split()[1])
    return total


def foreign_real_time(own: Collection[int], seconds: float = 0.05) -> list[str]:
    """Return programs, but for our own, of which threads run in real time now: no weight holds against those.

    It is looked for so many seconds who has the processor: many a machine has programs that could run so, and wait.
    """
    before = {thread: _ran_ns(thread) for thread in _real_time_threads() if int(thread.parts[2]) not in own}
    time.sleep(seconds)
    busy = (thread.parts[2] for thread, ran_ns in before.items() if _ran_ns(thread) - ran_ns > _BUSY * seconds * 1e9)
    return [f"{_name(pid)} ({pid})" for pid in dict.fromkeys(busy)]


def _real_time_threads() -> Iterator[Path]:
    for thread in Path("/proc").glob("[0-9]*/task/[0-9]*"):
        with suppress(OSError):
            fields = (thread / "stat").read_text().rpartition(")")[2].split()
            if (
                int(fields[38]) in _REAL_TIME and (thread / "cmdline").read_bytes()
            ):  # the kernel's own threads have none
                yield thread


def _ran_ns(thread: Path) -> int:
    with suppress(OSError):  # it may have ended
        return int((thread / "schedstat").read_text().split()[0])
    return 0


def _name(pid: str) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return "a program that has ended"


def _stat(pid: int) -> list[str] | None:
    """Return what /proc says of a process, behind its name: its state comes first."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return None
