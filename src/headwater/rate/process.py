"""What the system knows of a process: whether it lives or is stopped, whose it is, what it used, how long it waited."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

_TICKS_HZ = os.sysconf("SC_CLK_TCK")


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


def foreign_real_time() -> list[str]:
    """Return programs of others that run in real time, which no weight holds against."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            name, _, rest = (each / "stat").read_text().rpartition(")")
            fields = rest.split()
            is_program = bool((each / "cmdline").read_bytes())  # the kernel's own threads have none
            if is_program and int(fields[38]) in (1, 2, 6) and "headwater" not in (each / "cmdline").read_text():
                found.append(f"{name.partition('(')[2]} ({each.name})")
    return found


def _stat(pid: int) -> list[str] | None:
    """Return what /proc says of a process, behind its name: its state comes first."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return None
