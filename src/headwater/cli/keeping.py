"""Runs a command that promises a rate in a lane: a process forked from a warm parent, started again where it dies.

The process that the user started keeps it, and loads nothing that only the lane needs.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Sequence

from headwater.cli.signals import held_signals, hold_signals
from headwater.errors import RateError

log = logging.getLogger(__name__)

_PROGRAM = "headwater.cli:main"
_is_program = False  #: whether this process is the command line's own, and not one that calls it


def main_begins(arguments: Sequence[str]) -> None:
    """Leave with the exit status of a lane, if the arguments of this program ask for a promise.

    A flow that is told to end before it has begun does so as any that runs: by what `stop_on_signals` makes of it.
    """
    global _is_program
    _is_program = True
    runs = next((word for word in arguments if not word.startswith("-")), "") == "run"
    if not _is_lane() and arguments[:1] == ["run"] and _has(arguments, "--promise") and not _has(arguments, "--on"):
        leave_to_lane()
    if runs or _is_lane():
        hold_signals()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


def leave_to_lane() -> None:
    """Have this program's command run in a lane, and leave with its exit status; return where this process is to be it.

    It is where it was forked to be one, where the command is called by another program, which may catch what it says, and
    where no lane can be had.
    """
    is_captured = sys.stdout is not sys.__stdout__ or sys.stderr is not sys.__stderr__
    if not _is_program or is_captured or _is_lane():
        return
    from headwater.rate.keeper import keep

    try:
        status = keep(_PROGRAM, sys.argv[1:], holds=True, told=held_signals())
    except RateError as error:
        log.warning("%s; this process does without", error)
        return
    raise SystemExit(status)


def _is_lane() -> bool:
    """Say whether this process was forked to be a lane; what says so was loaded by who forked it, and not for it."""
    fork_context = sys.modules.get("headwater.rate.fork_context")
    return fork_context is not None and fork_context.keeper is not None


def _has(arguments: Sequence[str], option: str) -> bool:
    return any(each == option or each.startswith(f"{option}=") for each in arguments)
