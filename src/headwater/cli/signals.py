"""What Ctrl-C and SIGTERM mean to a command that runs a flow."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any

from headwater.cli.force_quit import exit_at_third_signal

_STOPPING = (signal.SIGINT, signal.SIGTERM)
_pending: list[int] = []  #: signals that came before there was anything to be stopped by them


def hold_signals() -> None:
    """Keep what comes before `stop_on_signals`, which acts on it; a second one leaves."""
    for number in _STOPPING:
        signal.signal(number, _hold)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPPING)


def held_signals() -> list[int]:
    """Return what has come so far and is to be acted on; it grows."""
    return _pending


def let_go_of_signals() -> None:
    """Have signals do what they do to any program, for what does not look at `stop_on_signals`; those held, at once."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for number in _pending:
        signal.raise_signal(number)


def _hold(signum: int, frame: Any) -> None:
    _pending.append(signum)
    if len(_pending) > 1:
        raise KeyboardInterrupt
    # written at once, by no thread: lanes that are being started are forked, which is safe only without any
    with suppress(OSError):
        os.write(2, b"stopping as soon as it has started; once more to leave now\n")


@contextmanager
def stop_on_signals() -> Iterator[Callable[[Any], None]]:
    """Let the first signal drain the run, the second stop it, and the third leave whatever it is doing.

    Yields what is to be called with the run once it is there. Its sources read while it is still being started, so a
    signal that comes then must not tear it down half made: it is kept, and drains the run as soon as there is one.
    """
    running: Any = None
    times = 0

    def on_signal(signum: int, frame: Any) -> None:
        nonlocal times
        if running is None:
            _hold(signum, frame)
            return
        times = max(times, running.stopping.is_set()) + 1
        if times == 1:
            _in_thread(running.stop, "stopping: draining what was read; once more to stop now")
        elif times == 2:
            _in_thread(running.abort, "stopping now; once more to leave without waiting")
        else:
            os._exit(128 + signum)

    def attach(run: Any) -> None:
        nonlocal running, times
        running = run
        times = len(_pending)
        if times:
            run.stop()

    before = {number: signal.signal(number, on_signal) for number in _STOPPING}
    try:
        with exit_at_third_signal():
            yield attach
    finally:
        _pending.clear()
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_thread(act: Callable[[], None], message: str) -> None:
    """Say and do something in a thread: what was interrupted may hold the very lock that is needed."""

    from headwater.cli.screen import err  # not for whoever only wants help

    def do() -> None:
        err.print(message)
        act()

    Thread(target=do, daemon=True).start()
