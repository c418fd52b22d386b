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
def exit_at_third_signal() -> Iterator[None]:
    """Have another process kill this one at the third signal, should it not have left by itself.

    What Python does about a signal waits for the interpreter. The byte that it writes for each one first does not.
    """
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    before = signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    watcher = _watcher(read_end)
    os.close(read_end)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(write_end)
        if watcher is not None:
            os.waitpid(watcher, 0)


def _watcher(read_end: int) -> int | None:
    """Start the process that counts; None where there is no shell to do so."""
    words = ["sh", "-c", _COUNT, "sh", str(os.getpid())]
    try:
        return os.posix_spawn("/bin/sh", words, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, read_end, 0)])
    except OSError:
        return None
