"""Posting a request, and what the answers mean."""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from math import inf
from typing import Any
from urllib.parse import urlsplit

from headwater.errors import InputError, one_line
from headwater.io.http.endpoint import Http

_REFUSED = (400, 413, 422)  #: what the server says of the records, rather than of itself or of us
_ANSWER_BYTES = 2**16  #: bytes of an answer that are read
_MOST_SIGNS = 200  #: signs of it that are told
_HINTS = {
    401: "is the token right?",
    403: "is the token right?",
    404: "is the path right?",
    405: "is the path right?",
}


class UnreachedError(Exception):
    """The server did not take a request, for a reason that may pass; it may say after how many seconds."""

    def __init__(self, why: str, after_s: float = 0.0) -> None:
        super().__init__(why)
        self.after_s = after_s


class _InTime(io.RawIOBase):
    """Reads what a connection brings, all of it within the time that it has for one piece: a server may drip."""

    def __init__(self, connection: socket.socket, raw: io.RawIOBase) -> None:
        self._connection, self._raw, self._seconds = connection, raw, connection.gettimeout()
        self._until_s = inf if self._seconds is None else time.monotonic() + self._seconds

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read what there is; TimeoutError once time is over, however often a little came."""
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._connection.settimeout(None if left_s == inf else left_s)
        try:
            return self._raw.readinto(buffer)
        finally:
            self._connection.settimeout(self._seconds)

    def close(self) -> None:
        """Let the connection go, for what reads it."""
        self._raw.close()
        super().close()


class _Answer(http.client.HTTPResponse):
    """An answer that comes in time, or not."""

    def __init__(self, connection: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(connection, *args, **kwargs)
        self.fp = io.BufferedReader(_InTime(connection, self.fp.detach()))


class _InOnePiece(http.client.HTTPConnection):
    """Sends head and body of a request together: in two packets a small one takes a tenth more time."""

    response_class = _Answer
    _pieces: list[bytes] | None = None  # of a request that is being made

    def send(self, data: Any) -> None:
        """Send bytes, or have them wait for the rest of their request."""
        if self._pieces is None:
            super().send(data)
        else:
            self._pieces.append(data)

    def request(self, *args: Any, **kwargs: Any) -> None:
        """Send a request, whose body is bytes."""
        pieces: list[bytes] = []
        self._pieces = pieces
        try:
            super().request(*args, **kwargs)
        finally:
            self._pieces = None
        self.send(b"".join(pieces))


class _SecureConnection(_InOnePiece, http.client.HTTPSConnection):
    pass


class Poster:
    """A connection to a server, made when it is needed; one thread uses it."""

    def __init__(self, sink: Http) -> None:
        parts = urlsplit(sink.url)
        self._sink = sink
        self._host, self._port = parts.hostname or "", parts.port
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._headers = {"User-Agent": "headwater", **sink.headers}
        if sink.token is not None:
            self._headers["Authorization"] = f"Bearer {sink.token}"
        self._tls: ssl.SSLContext | None = None
        if parts.scheme == "https":
            try:
                self._tls = ssl.create_default_context(cafile=sink.ca)
                if sink.certificate is not None:
                    self._tls.load_cert_chain(sink.certificate, sink.key)
            except (OSError, ssl.SSLError) as error:
                raise InputError(f"cannot use the files for TLS with {sink}: {error}") from error
        self._connection: http.client.HTTPConnection | None = None

    def post(self, body: bytes, content_type: str, key: str) -> None:
        """Have the server take a body; raises InputError if it refuses these records, UnreachedError for all else."""
        headers = {**self._headers, "Content-Type": content_type, "Idempotency-Key": key}
        try:
            answer, content = self._exchange(body, headers)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            why = str(error) or type(error).__name__
            raise UnreachedError(f"cannot post to {self._sink}: {why}; is a server running there?") from None
        if 200 <= answer.status < 300:
            return
        text = one_line(f"{self._sink} answers {answer.status} {answer.reason}: {_short(content)}".rstrip(": "))
        if answer.status in _REFUSED:
            raise InputError(text)
        if answer.status in _HINTS:
            text += f"; {_HINTS[answer.status]}"
        if 300 <= answer.status < 400:
            place = one_line(answer.headers.get("Location", "another place"))
            text += f"; it says that it is at {place}: give that URL"
        raise UnreachedError(text, _seconds(answer.headers.get("Retry-After")))

    def close(self) -> None:
        """Let the connection go."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _exchange(self, body: bytes, headers: dict[str, str]) -> tuple[http.client.HTTPResponse, bytes]:
        """Send a request and read the answer; a connection that was kept may have been ended by the other side."""
        connection = self._connection
        if connection is not None:
            try:
                return self._answer(connection, body, headers)
            except (ConnectionError, http.client.RemoteDisconnected, http.client.CannotSendRequest):
                self.close()
        kind: type[http.client.HTTPConnection] = _InOnePiece
        more: dict[str, Any] = {}
        if self._tls is not None:
            kind, more = _SecureConnection, {"context": self._tls}
        self._connection = kind(self._host, self._port, timeout=self._sink.timeout_s, **more)
        return self._answer(self._connection, body, headers)

    def _answer(
        self, connection: http.client.HTTPConnection, body: bytes, headers: dict[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        if connection.sock is None:
            connection.connect()
        try:
            connection.request("POST", self._target, body, headers)
        except (ConnectionError, ssl.SSLError) as broken:
            answer = _early_answer(connection, broken)
        else:
            answer = connection.getresponse()
        content = answer.read(_ANSWER_BYTES)
        if answer.will_close or not answer.isclosed():
            self.close()
        return answer, content


def _early_answer(connection: http.client.HTTPConnection, broken: OSError) -> http.client.HTTPResponse:
    """Return what a server has answered that then hung up amid the request, as for one that is too large."""
    try:
        return connection.getresponse()
    except (OSError, http.client.HTTPException):
        raise broken from None


def _short(content: bytes) -> str:
    text = " ".join(content.decode(errors="replace").split())
    return text if len(text) <= _MOST_SIGNS else f"{text[:_MOST_SIGNS]}…"


def _seconds(after: str | None) -> float:
    """Return for how long a server asks to be left alone; a date is not worth its trouble."""
    return min(float(after), 3600.0) if after is not None and after.isascii() and after.isdigit() else 0.0
