"""A process that only prepares runs at a lower priority than those at work, and at the usual one when its flow starts.

It does for some seconds: where others want all of the processor for long, it would hardly ever be ready.

Where the scheduler shares a processor out by sessions first, the niceness of a process counts within its session alone, and
it is the session's own that others feel: both are lowered. A session's anybody may restore, who has not raised it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headwater.processes import family

_NICER = 5  #: about a third of what others get of a processor that is wanted by more
_SESSION_NICER = 10  #: about a tenth
_NICEST = 19
_RESTORE_S = 2.0  #: in which a session's priority can be set, which the system lets all users do ten times a second
_PAUSE_S = 0.02
_ASIDE_S = 10.0  #: three times what it takes to make a flow ready on a machine that is busy


def lower_priority(pid: int) -> None:
    """Have a process that was just started give way, with all threads that it will begin, until it comes back.

    Nothing is done where it may not come back, as the system often has it for who is not root.
    """
    with suppress(OSError):  # it has ended already
        if _may_restore():
            os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, 0) + _NICER)
    usual = _of_session(os.getpid())
    with suppress(OSError):
        if usual is not None and usual >= 0 and os.getsid(pid) == pid:  # below 0 it takes root to come back
            _session_file(pid).write_text(str(min(usual + _SESSION_NICER, _NICEST)))


@contextmanager
def no_longer_than(seconds: float = _ASIDE_S) -> Iterator[None]:
    """Have the usual priority back after a while, should this context last so long; no thread is left behind."""
    timer = threading.Timer(seconds, restore_priority)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def gives_way(pid: int) -> bool:
    """Say whether a process that was started here has a lower priority than this one."""
    with suppress(OSError):  # it has ended
        usual, session = os.getpriority(os.PRIO_PROCESS, 0), _of_session(os.getpid())
        return os.getpriority(os.PRIO_PROCESS, pid) > usual or (_of_session(pid) or 0) > (session or 0)
    return False


def restore_priority(pid: int | None = None) -> bool:
    """Have the priority of the process that has started this one, with all threads, and all that was started meanwhile.

    Or have one that was started here get that of this process. Say whether that could be: a process that stays behind others
    is none to run a flow.
    """
    own, parent = (os.getpid(), os.getppid()) if pid is None else (pid, os.getpid())
    with suppress(OSError):
        usual = os.getpriority(os.PRIO_PROCESS, parent)
        for process in family(own):
            for thread in _threads(process):
                with suppress(ProcessLookupError):  # one that has ended since
                    if os.getpriority(os.PRIO_PROCESS, thread) > usual:
                        os.setpriority(os.PRIO_PROCESS, thread, usual)
    return _restore_session(own, parent)


def _restore_session(own: int, parent: int) -> bool:
    """Have a session be worth what that of a process is which has started it; one that is worth more stays so."""
    usual, until_s = _of_session(parent) or 0, time.monotonic() + _RESTORE_S
    while (now := _of_session(own)) is not None and now > usual:
        if time.monotonic() > until_s:
            return False
        try:
            _session_file(own).write_text(str(usual))
        except OSError:  # somebody else has set one a moment ago
            time.sleep(_PAUSE_S)
    return True


def _of_session(pid: int) -> int | None:
    """Return the niceness of the session that a process is in; None where the scheduler knows of none."""
    with suppress(OSError, ValueError):
        return int(_session_file(pid).read_text().rpartition(" nice ")[2])
    return None


def _session_file(pid: int) -> Path:
    return Path(f"/proc/{pid}/autogroup")


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
