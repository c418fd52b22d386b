"""What a command does whose output nobody reads any more, as behind `| head`: it ends as others do, without a word."""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import suppress
from typing import NoReturn

from headwater.errors import UNREAD, HeadwaterError

#: what a shell has for a program that SIGPIPE has ended, which Python does not heed: sockets would send it too
STATUS = 128 + signal.SIGPIPE


def is_unread(error: Exception) -> bool:
    """Say whether an error is that nobody reads standard output any more, be it of a sink's or of what is printed."""
    if isinstance(error, BrokenPipeError):
        return _has_no_reader(sys.stdout.fileno())
    return isinstance(error, HeadwaterError) and str(error).endswith(UNREAD)


def was_unread(end: SystemExit) -> bool:
    """Say whether a command has ended for that: what shows help, and what reads command lines, end it with 1.

    The former has put a hole in the place of standard output by then.
    """
    if not isinstance(end.__context__, BrokenPipeError):
        return False
    fd = sys.stdout.fileno()
    return _has_no_reader(fd) or os.fstat(fd).st_rdev == os.stat(os.devnull).st_rdev


def leave_unread() -> NoReturn:
    """End this command; what Python still has for standard output goes nowhere."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
    raise SystemExit(STATUS)


def _has_no_reader(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))
