"""The warm parent of lanes: a process that has imported and loaded what lanes need, runs no threads, and only forks.

A lane that is forked from it shares that memory and is at work in a fraction of the time that a new process takes. It is its
user's alone, and of one way to run Python: `forks` asks for one with the same settings as whoever asks. A lane gets the
descriptors, folder, environment and limits of who asked for it, a session of its own, and is no child of theirs; how it
ended its parent tells them. Lanes outlive a parent that is killed. Without any for a minute it goes home.
"""

from __future__ import annotations

import gc
import importlib
import os
import random
import resource
import selectors
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np

from headwater.data.jit.usage import load_recent
from headwater.errors import RateError
from headwater.rate import fork_context
from headwater.rate.exclusive import exclusive
from headwater.rate.fork_context import FDS, Order

IDLE_S = 60.0
"""After so many seconds without a lane a warm parent goes home."""


_LOOK_S = 1.0
_TOLD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  #: what a keeper passes on
_ORDER_S = 5.0  #: how long an order may take to be said
_LONGEST = 16 * 2**20
#: what a promised flow of the command line uses, but for modules that look at the terminal when they are imported
_NEEDED = (
    "headwater.cep",
    "headwater.engine.checkpoint",
    "headwater.engine.dead",
    "headwater.engine.lanes.checkpoint",
    "headwater.io",
    "headwater.io.move_marker",
    "headwater.rate.starting",
    "rich.console",
    "rich.live",
    "rich.table",
    "typer",
)


def main() -> None:
    """Serve at the socket that the first argument names, until nobody has needed a lane for a while."""
    at = Path(sys.argv[1])
    os.chdir("/")  # lest whoever started it cannot remove the folder that it was in
    try:
        with exclusive(at.with_suffix(".lock"), f"a warm parent serves {at} already"):
            _load()
            order = _Parent(at).serve()
    except RateError:
        return  # whoever started this one finds the other
    if order is not None:  # from here on this process is a lane
        module, _, function = order.program.partition(":")
        status = 1
        try:
            getattr(importlib.import_module(module), function)()
            status = 0
        except SystemExit as over:
            status = over.code if isinstance(over.code, int) else int(over.code is not None)
            raise
        finally:
            fork_context.last_word(status)


def _load() -> None:
    """Import what lanes need, and load the kernels that flows have used of late."""
    for name in _NEEDED:
        importlib.import_module(name)
    load_recent()
    gc.collect()
    gc.freeze()  # shared by all lanes, as long as nobody touches it


class _Parent:
    """The loop: orders come, lanes end."""

    def __init__(self, at: Path) -> None:
        self._at = at
        self._lanes: dict[int, socket.socket] = {}  #: by process, who asked for it
        at.unlink(missing_ok=True)
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o177)
        try:
            self._listening.bind(str(at))
        finally:
            os.umask(before)
        self._listening.listen()
        self._ended, wakeup_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakeup_fd)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # a byte in the pipe is all that is wanted of it
        self._selector = selectors.DefaultSelector()
        for each in (self._listening, self._ended):
            self._selector.register(each, selectors.EVENT_READ)

    def serve(self) -> Order | None:
        """Fork what is asked for; return the order in a process that was forked for it, None when all is over."""
        busy_s = time.monotonic()
        while self._at.exists() and time.monotonic() - busy_s < IDLE_S:
            for key, _ in self._selector.select(_LOOK_S):
                if key.fileobj is self._listening:
                    connection, _ = self._listening.accept()
                    order = self._forked(connection)
                    if order is not None:
                        return order
                else:
                    os.read(self._ended, 4096)
            self._reap()
            if self._lanes:
                busy_s = time.monotonic()
        self._at.unlink(missing_ok=True)
        return None

    def _forked(self, connection: socket.socket) -> Order | None:
        """Fork a lane; return its order in that, and nothing here."""
        try:
            order, fds = _receive(connection)
        except (OSError, ValueError, msgspec.DecodeError) as error:
            print(f"an order that cannot be understood: {error}", file=sys.stderr, flush=True)
            connection.close()
            return None
        signal.pthread_sigmask(signal.SIG_BLOCK, _TOLD)  # what it is told at once waits until it can hear it
        pid = os.fork()
        if pid:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _TOLD)
        else:
            os.close(signal.set_wakeup_fd(-1))
            for number in (signal.SIGCHLD, signal.SIGTERM):  # its keeper tells it to end by SIGTERM
                signal.signal(number, signal.SIG_DFL)
            self._selector.close()
            for each in (*self._lanes.values(), connection, self._listening):
                each.close()
            os.close(self._ended)
            _become(order, fds)
            return order
        for fd in fds:
            os.close(fd)
        self._lanes[pid] = connection
        _say(connection, pid)
        return None

    def _reap(self) -> None:
        for pid in list(self._lanes):
            ended_pid, status = os.waitpid(pid, os.WNOHANG)
            if ended_pid:
                with self._lanes.pop(pid) as connection:
                    _say(connection, os.waitstatus_to_exitcode(status))


def _receive(connection: socket.socket) -> tuple[Order, list[int]]:
    connection.settimeout(_ORDER_S)
    text, fds, _, _ = socket.recv_fds(connection, 65536, FDS)
    try:
        size, _, text = text.partition(b"\n")
        if not 0 < int(size) <= _LONGEST or len(fds) != FDS:
            raise ValueError(f"{size!r} bytes with {len(fds)} descriptors")
        while len(text) < int(size):
            more = connection.recv(65536)
            if not more:
                raise ValueError("it breaks off")
            text += more
        return msgspec.json.decode(text, type=Order), fds
    except BaseException:
        for fd in fds:
            os.close(fd)
        raise


def _say(connection: socket.socket, number: int) -> None:
    with suppress(OSError):  # who asked may be gone
        connection.sendall(f"{number}\n".encode())


def _become(order: Order, fds: list[int]) -> None:
    """Turn a process that was just forked into what was asked for."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # it comes from who asked, or not at all
    for number, fd in enumerate(fds[:3]):
        os.dup2(fd, number)
        os.close(fd)
    # for as long as the process lives; terminals are found out about anew
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # type: ignore[misc]  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", 1, errors="backslashreplace", closefd=False)  # type: ignore[misc]  # noqa: SIM115
    os.environ.clear()
    os.environ.update(order.environment)
    os.umask(order.umask)
    os.chdir(order.folder)
    sys.path[:] = order.path
    sys.argv = ["headwater", *order.arguments]
    with suppress(OSError):  # some may have been taken away since
        os.sched_setaffinity(0, order.processors)
    if order.nice > os.nice(0):
        os.nice(order.nice - os.nice(0))
    for name, limits in order.limits.items():
        with suppress(OSError, ValueError):
            resource.setrlimit(getattr(resource, name), limits)
    random.seed()
    np.random.seed()
    fork_context.become(order.kept, *fds[3:])
    if not order.kept.holds:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _TOLD)


if __name__ == "__main__":
    main()
