"""What a client of a server of ours sends, as long as it sends it fast enough: who drips holds a connection of a few."""

from __future__ import annotations

import io
import socket
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar

_LINGER_S = 2.0  #: for which what is still sent is taken, and looked at by nobody, behind an answer
_SLOWEST = 1000  #: bytes a second of a body: a gateway behind a narrow link should get through


class TimelyReader(io.RawIOBase):
    """Reads from a connection; each request has so many seconds to come, and its body longer by how large it is."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection, self._seconds = connection, seconds
        self.begin()

    def begin(self) -> None:
        """Wait for a request from now on."""
        self._until_s = time.monotonic() + self._seconds

    def allow(self, nbytes: int) -> None:
        """Have more time for a body of so many bytes, of whoever may send one."""
        self._until_s += nbytes / _SLOWEST

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what there is; TimeoutError once time is over, however often a little came."""
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("a request did not come in time")
        self._connection.settimeout(left_s)
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(self._seconds)  # for what is answered


class TimelyHandler(BaseHTTPRequestHandler):
    """Answers requests that come within `timeout` seconds each; `timely` gives one more time for its body."""

    timeout: ClassVar[float]
    leaves_unread = False  #: whether it was answered before all of a request was read

    def setup(self) -> None:
        """Read the connection by way of what knows how long that may take."""
        super().setup()
        self.rfile.close()
        self.timely = TimelyReader(self.connection, self.timeout)
        self.rfile = io.BufferedReader(self.timely)

    def handle_one_request(self) -> None:
        """Wait for a request, from now on for so long."""
        self.timely.begin()
        super().handle_one_request()

    def finish(self) -> None:
        """End; who still sends would see a connection break, and never the answer, if it were closed on that at once."""
        super().finish()
        until_s = time.monotonic() + _LINGER_S
        with suppress(OSError):
            if self.leaves_unread:
                socket.socket.shutdown(self.connection, socket.SHUT_WR)  # as it is, also below TLS
            while self.leaves_unread and (left_s := until_s - time.monotonic()) > 0:
                self.connection.settimeout(left_s)
                self.leaves_unread = socket.socket.recv(self.connection, 2**16) != b""
