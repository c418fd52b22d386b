"""A process's line to the supervisor: starts one where there is none, and finds the next one when it was killed.

One that is stopped keeps its socket and its lock: nobody can take its place, and whoever asks is told at once.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from pathlib import Path

import msgspec

from headwater.errors import RateError
from headwater.rate import process
from headwater.rate.home import LOG, LONGEST_FOLDER, SOCKET, folder
from headwater.rate.messages import Board, Reply, Request, Status, line, reply
from headwater.rate.peer import peer
from headwater.rate.resident import started

IDLE_S = 60
"""After so many seconds without a promise a supervisor that was started for one goes home."""

_START_S = 20.0
_ANSWER_S = 10.0  #: how long an answer may take: a machine may be very busy
_LOOK_S = 0.5  #: after how long without one it is looked whether any can come


class NobodyError(RateError):
    """No supervisor runs, and none is to be started."""


class Client:
    """Asks and tells; whatever thread does. One that only looks starts no supervisor."""

    def __init__(self, home: Path | None = None, *, only_looks: bool = False) -> None:
        self.home, self._only_looks = home or folder(), only_looks
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._rest = b""

    def say(self, message: Request) -> Reply:
        """Say something and return the answer; once more, to the next supervisor, if the line is cut.

        RateError says why there is none: at once where the supervisor is stopped, else after a while.
        """
        with self._lock:
            try:
                return self._exchange(message)
            except (OSError, EOFError):
                self._hang_up()
            try:
                return self._exchange(message)
            except (OSError, EOFError, msgspec.DecodeError) as error:
                self._hang_up()
                raise RateError(f"the supervisor in {self.home} does not answer: {error or 'it hung up'}") from None

    def close(self) -> None:
        """Hang up."""
        with self._lock:
            self._hang_up()

    def _exchange(self, message: Request) -> Reply:
        if self._socket is None:
            line_to = connected(self.home)
            if line_to is None and self._only_looks:
                raise NobodyError(f"no supervisor runs in {self.home}")
            self._socket = line_to or _started(self.home)
            self._socket.settimeout(_LOOK_S)
        self._socket.sendall(line(message))
        until_s = time.monotonic() + _ANSWER_S
        while b"\n" not in self._rest:
            try:
                more = self._socket.recv(65536)
            except TimeoutError:
                self._check_that_it_may_answer(self._socket, time.monotonic() >= until_s)
                continue
            if not more:
                raise EOFError
            self._rest += more
        text, _, self._rest = self._rest.partition(b"\n")
        return reply(text)

    def _check_that_it_may_answer(self, line_to: socket.socket, late: bool) -> None:
        """Raise RateError if no answer is to be waited for any longer; the next thing said gets a line of its own."""
        pid, _ = peer(line_to)
        if process.is_stopped(pid):
            self._hang_up()
            raise RateError(
                f"the supervisor in {self.home} (process {pid}) is stopped, by SIGSTOP, Ctrl-Z or a debugger, and answers "
                f"nobody; 'kill -CONT {pid}' lets it go on"
            )
        if late:
            self._hang_up()
            raise RateError(f"the supervisor in {self.home} (process {pid}) has not answered within {_ANSWER_S:g} s")

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._rest = None, b""


def connected(home: Path) -> socket.socket | None:
    """Return a line to the supervisor of a folder; None if there is none."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_ANSWER_S)
    try:
        connection.connect(str(home / SOCKET))
    except BlockingIOError:
        connection.close()
        raise RateError(
            f"the supervisor in {home} has taken up none of the last hundred calls: it is stopped, or hangs"
        ) from None
    except OSError:
        connection.close()
        return None
    return connection


def _started(home: Path) -> socket.socket:
    """Start a supervisor that outlives this process, and return a line to it."""
    if (length := len(os.fsencode(home))) > LONGEST_FOLDER:
        raise RateError(
            f"the sockets in {home} would have longer names than systems take: that of the folder has {length} bytes, "
            f"expected at most {LONGEST_FOLDER}; name a shorter one in HEADWATER_RUNTIME"
        )
    # found where we have found it, but behind the system's own modules: a flow beside us may be called as one of those
    code = "import sys; sys.path += sys.argv[2:]; from headwater.rate.supervisor import main; main()"
    arguments = [str(IDLE_S), *filter(None, sys.path)]
    environment = {**os.environ, "HEADWATER_RUNTIME": str(home)}
    line_to = started(code, arguments, home / LOG, environment, lambda: connected(home), _START_S)
    if line_to is None:
        raise RateError(f"no supervisor could be started in {home}; what it said is in {home / LOG}")
    return line_to


def board(home: Path | None = None) -> Board | None:
    """Return what is promised here; None where nothing is, since no supervisor runs."""
    client = Client(home, only_looks=True)
    try:
        answer = client.say(Status())
    except NobodyError:  # there is none, or it went home as we called
        return None
    finally:
        client.close()
    assert isinstance(answer, Board)
    return answer
