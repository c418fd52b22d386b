"""Keeps a promised flow: has its lane forked, passes signals on to it, and has it forked again where it died.

The keeper is the process that a user started, and that has the terminal. Its lane is a process of its own, which the
supervisor holds cores for as long as the keeper lives: what died finds them still held, goes on from its last checkpoint
where there is one, and has the windows that were lost counted as broken by that. A lane that ends by itself, or that was
told to, is not started again.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from headwater.rate.fork_context import KeptBy
from headwater.rate.forks import ForkedProcess, forked
from headwater.restarts import WITHIN_S, Restarts

log = logging.getLogger(__name__)

_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def keep(program: str, arguments: Sequence[str], *, holds: bool = False, told: Sequence[int] = ()) -> int:
    """Run a program in a lane until it ends, and return its exit status, as a shell would have it.

    What we are told meanwhile the lane is told, and before it can be, as soon as it can; it waits there until the program
    sees to it, if that `holds` signals. So it is with what we were `told` before.

    RateError says why no lane can be had.
    """
    restarts = Restarts()
    lane: ForkedProcess | None = None
    signals = list(told)
    to_tell = list(told)

    def hear(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        to_tell.append(number)
        pass_on()

    def pass_on() -> None:
        while lane is not None and to_tell:
            with suppress(ProcessLookupError, IndexError):  # we may be interrupted here by another one
                os.kill(lane.pid, to_tell.pop(0))

    with _handled(hear):
        while True:
            lane = forked(program, arguments, KeptBy(os.getpid(), restarts.count, holds))
            pass_on()
            ended = lane.wait()
            if ended.by_itself and ended.status is not None:
                return ended.status
            if signals:
                return 128 + signals[-1]
            pause_s = restarts.pause_s(time.monotonic())
            if pause_s is None:
                log.error(
                    "its lane (process %d) %s, after it had started again %d times within %g s",
                    lane.pid,
                    ended,
                    restarts.most,
                    WITHIN_S,
                )
                return 1
            log.warning("its lane (process %d) %s, and starts again in %.1f s", lane.pid, ended, pause_s)
            lane = None
            time.sleep(pause_s)


@contextmanager
def _handled(handler: signal._HANDLER) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in _PASSED_ON}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _PASSED_ON)
    try:
        yield
    finally:
        for number, was in before.items():
            signal.signal(number, was)
