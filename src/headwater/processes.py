"""Which processes a process has started, as the system knows them, how to kill them, and what killed one."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def children(pid: int) -> list[int]:
    """Return those that a process has started, by whatever thread, as far as they are not gone."""
    pids: list[int] = []
    with suppress(OSError):  # it is gone itself, or this system does not tell
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                pids += map(int, (thread / "children").read_text().split())
    return pids


def family(pid: int) -> list[int]:
    """Return a process, those that it has started, those that these have, and so on."""
    pids = [pid]
    for each in pids:  # grows while we walk along it
        pids += children(each)
    return pids


def kill(pids: Iterable[int]) -> None:
    """Kill processes, as far as they are not gone."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def wait_or_kill(process: subprocess.Popen[bytes], within_s: float) -> None:
    """Wait for a process that was asked to end; kill it where that takes longer."""
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def signal_name(number: int) -> str:
    """Return what a signal is called; those of real time have no names.

    >>> signal_name(9), signal_name(35)
    ('SIGKILL', 'signal 35')
    """
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def ending(status: int) -> str:
    """Say how a process ended, by its exit status: below 0 the signal that killed it.

    >>> ending(-9), ending(3)
    ('was killed by SIGKILL', 'ended with status 3')
    """
    return f"was killed by {signal_name(-status)}" if status < 0 else f"ended with status {status}"
