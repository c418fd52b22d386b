"""A process's line to the supervisor: starts one where there is none, and finds the next one when it was killed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec

from headwater.errors import RateError
from headwater.rate.home import LOG, SOCKET, folder
from headwater.rate.messages import Board, Reply, Request, Status, line, reply

IDLE_S = 60
"""After so many seconds without a promise a supervisor that was started for one goes home."""

_START_S = 20.0
_ANSWER_S = 10.0
_children: list[subprocess.Popen[bytes]] = []  #: kept, lest Python complain of processes that it forgot


class Client:
    """Asks and tells; whatever thread does."""

    def __init__(self, home: Path | None = None) -> None:
        self.home = home or folder()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._rest = b""

    def say(self, message: Request) -> Reply:
        """Say something and return the answer; once more, to the next supervisor, if the line is cut."""
        with self._lock:
            try:
                return self._said(message)
            except (OSError, EOFError):
                self._hang_up()
            try:
                return self._said(message)
            except (OSError, EOFError, msgspec.DecodeError) as error:
                self._hang_up()
                raise RateError(f"the supervisor in {self.home} does not answer: {error or 'it hung up'}") from None

    def close(self) -> None:
        """Hang up."""
        with self._lock:
            self._hang_up()

    def _said(self, message: Request) -> Reply:
        if self._socket is None:
            self._socket = connected(self.home) or _started(self.home)
        self._socket.sendall(line(message))
        while b"\n" not in self._rest:
            more = self._socket.recv(65536)
            if not more:
                raise EOFError
            self._rest += more
        text, _, self._rest = self._rest.partition(b"\n")
        return reply(text)

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._rest = None, b""


def connected(home: Path) -> socket.socket | None:
    """Return a line to the supervisor of a folder; None if there is none."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made.settimeout(_ANSWER_S)
    try:
        made.connect(str(home / SOCKET))
    except OSError:
        made.close()
        return None
    return made


def _started(home: Path) -> socket.socket:
    """Start a supervisor that outlives this process, and return a line to it."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    code = "from headwater.rate.supervisor import main; main()"
    with (home / LOG).open("ab") as log_file:
        started = subprocess.Popen(
            [sys.executable, "-P", "-c", code, str(IDLE_S)],
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=log_file,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "HEADWATER_RUNTIME": str(home)},
        )
    _children.append(started)
    until_s = time.monotonic() + _START_S
    while time.monotonic() < until_s:
        line_to = connected(home)
        if line_to is not None:
            return line_to
        time.sleep(0.05)
    raise RateError(f"no supervisor could be started in {home}; what it said is in {home / LOG}")


def board(home: Path | None = None) -> Board | None:
    """Return what is promised here; None where nothing is, since no supervisor runs."""
    at = home or folder()
    line_to = connected(at)
    if line_to is None:
        return None
    line_to.close()
    client = Client(at)
    try:
        found = client.say(Status())
    finally:
        client.close()
    assert isinstance(found, Board)
    return found
