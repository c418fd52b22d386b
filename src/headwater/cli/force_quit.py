"""The third Ctrl-C ends a command even while no Python runs in it: a step in C code may keep the interpreter to itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

#: counts signals by the bytes that come, one for each; the process that they meant has a second to leave by itself
_COUNT = """trap '' INT TERM
[ "$(head -c 3 | wc -c)" -ge 3 ] && sleep 1 && kill -KILL "$1" """


@contextmanager
def leaves_at_the_third_signal() -> Iterator[None]:
    """Have another process kill this one at the third signal, should it not have left by itself.

    What Python does about a signal waits for the interpreter. The byte that it writes for each one first does not.
    """
    came, tell = os.pipe()
    os.set_blocking(tell, False)
    before = signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    watcher = _watcher(came)
    os.close(came)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(tell)
        if watcher is not None:
            os.waitpid(watcher, 0)


def _watcher(came: int) -> int | None:
    """Start the process that counts; None where there is no shell to do so."""
    words = ["sh", "-c", _COUNT, "sh", str(os.getpid())]
    try:
        return os.posix_spawn("/bin/sh", words, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, came, 0)])
    except OSError:
        return None
