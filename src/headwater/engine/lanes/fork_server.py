"""The fork server of a run: a process without threads that forks its lanes, at the beginning and to start again.

What other threads hold when a process forks stays held for ever in the new one. Who runs lane 0 has threads as soon as it
does so; so a process is forked before that, which does nothing but fork. Lanes it has forked talk to who runs lane 0, not
to it; and where that dies, it ends.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import NoReturn

from headwater.engine.after_fork import let_go_of_signals
from headwater.engine.lanes.wire import pack, unpack
from headwater.errors import RunError

_MOST = 4096  #: bytes of what is said to it
_UNKNOWN = 255  #: an exit status that no lane has

Live = Callable[
    [int, bool, Connection], None
]  #: what a lane does, from fork to exit: its number, whether again, its end


class ForkServer:
    """The process, as the one that runs lane 0 sees it; made before any thread is."""

    def __init__(self, live: Live, forget: Callable[[], None]) -> None:
        """`live` never returns; `forget` lets go of what the lanes of a beginning have taken along."""
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._asking = threading.Lock()
        self.pid = os.fork()
        if not self.pid:
            self._socket.close()
            _serve(theirs, live, forget)
        theirs.close()

    def fork(self, lane: int, *, again: bool) -> tuple[int, Connection]:
        """Have a lane forked; return its process and the end of the connection to it."""
        ours, theirs = Pipe()
        with theirs:
            pid = self._ask(["fork", lane, again], [theirs.fileno()])
        return pid, ours

    def reap(self, pid: int) -> int:
        """Wait for a lane that is at its end, and return its exit status: below 0 the signal that killed it."""
        try:
            return self._ask(["reap", pid])
        except RunError:  # then the system looks after it, and nobody can tell how it ended
            return _UNKNOWN

    def forget(self) -> None:
        """Have it let go of what lanes needed at the beginning alone."""
        self._ask(["forget", 0])

    def _ask(self, what: list[object], fds: list[int] | None = None) -> int:
        with self._asking:
            try:
                socket.send_fds(self._socket, [pack(what)], fds or [])
                answer = self._socket.recv(_MOST)
            except OSError:
                answer = b""
        if not answer:
            raise RunError(f"the process that forks lanes ({self.pid}) is gone")
        number: int = unpack(answer)
        return number

    def close(self) -> None:
        """End it, once no lane is left."""
        self._socket.close()
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def _serve(connection: socket.socket, live: Live, forget: Callable[[], None]) -> NoReturn:
    """Do what is asked until nobody is there to ask."""
    try:
        let_go_of_signals()
        while True:
            data, fds, _, _ = socket.recv_fds(connection, _MOST, 1)
            if not data:
                break
            connection.send(pack(_do(unpack(data), fds, connection, live, forget)))
    finally:
        os._exit(0)


def _do(
    request: list[object], fds: list[int], connection: socket.socket, live: Live, forget: Callable[[], None]
) -> int:
    match request:
        case ["fork", int(lane), bool(again)]:
            pid = os.fork()
            if not pid:
                connection.close()
                live(lane, again, Connection(fds[0]))
            os.close(fds[0])
            return pid
        case ["reap", int(pid)]:
            _, status = os.waitpid(pid, 0)
            return os.waitstatus_to_exitcode(status)
        case _:
            forget()
            return 0
