"""A process that only prepares runs at a lower priority than those at work, and at the usual one when its flow starts."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress

from headwater.processes import family

_NICER = 5  #: about a third of what others get of a processor that is wanted by more


def lower_priority(pid: int) -> None:
    """Have a process that was just started give way, with all threads that it will begin, until it comes back.

    Nothing is done where it may not come back, as the system often has it for who is not root.
    """
    if _may_restore():
        with suppress(OSError):  # it has ended already
            os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, 0) + _NICER)


def restore_priority() -> None:
    """Have the priority of the process that has started this one, with all threads, and all that was started meanwhile."""
    with suppress(OSError):
        usual = os.getpriority(os.PRIO_PROCESS, os.getppid())
        for process in family(os.getpid()):
            for thread in _threads(process):
                with suppress(ProcessLookupError):  # one that has ended since
                    if os.getpriority(os.PRIO_PROCESS, thread) > usual:
                        os.setpriority(os.PRIO_PROCESS, thread, usual)


def _threads(process: int) -> list[int]:
    try:
        return list(map(int, os.listdir(f"/proc/{process}/task")))
    except FileNotFoundError:  # it has ended since
        return []


def _may_restore() -> bool:
    """Try it with a thread that does nothing else: where it may not, that is the only one that stays behind."""
    successes: list[bool] = []

    def attempt() -> None:
        here = threading.get_native_id()
        usual = os.getpriority(os.PRIO_PROCESS, here)
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, here, usual + _NICER)
            os.setpriority(os.PRIO_PROCESS, here, usual)
            successes.append(True)

    if sys.platform == "linux":  # elsewhere a priority is that of the whole process
        thread = threading.Thread(target=attempt, name="aside")
        thread.start()
        thread.join()
    return bool(successes)
