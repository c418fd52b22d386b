"""The HTTP server of a webhook: a thread for each connection, and few enough of them."""

from __future__ import annotations

import hmac
import logging
import socket
import ssl
from contextlib import suppress
from http import HTTPStatus
from socketserver import TCPServer, ThreadingMixIn
from threading import Lock, Thread
from typing import Any

import msgspec

from headwater.errors import InputError
from headwater.io.http.body import Bodies, Body
from headwater.io.http.deadline import TimelyHandler
from headwater.io.http.inbox import Inbox, Outcome
from headwater.io.http.webhook import Webhook
from headwater.origin import is_ours, is_same

log = logging.getLogger(__name__)

_IDLE_S = 60.0  #: for which a connection may say nothing, or no whole request but for its body
_MOST_SHOWN = 10  #: of the records that do not fit, in an answer
_LONGEST_KEY = 255
_LONGEST_NUMBER = 18  #: digits of a length
_NAMES = ("localhost",)  #: by which this server is known, beside addresses
_LONGEST_LINE = 256  #: of what says how long a chunk is
_AGAIN = {"Retry-After": "1"}
_ANSWERS: dict[Outcome, tuple[int, str]] = {
    "taken": (200, ""),
    "taken before": (200, ""),
    "not taken": (503, "not taken in time, and none of it is kept; send it again"),
    "in doubt": (503, "not known to be safe in time; send it again, with the same Idempotency-Key if you have one"),
    "closed": (503, "the flow is ending; send it again"),
}


class Server:
    """Listens, and answers each request when the inbox knows what became of it."""

    def __init__(self, source: Webhook, bodies: Bodies, inbox: Inbox) -> None:
        try:
            self._server = _Listener(source, bodies, inbox)
        except OSError as error:
            message = error.strerror or str(error)
            raise InputError(
                f"cannot listen on {source}: {message}; is another server on that port, or the host not this one's?"
            ) from error
        self.port: int = self._server.server_address[1]
        if not source.is_local and source.token is None:
            log.warning("%s takes records from everybody who can reach it; give a token to change that", source)
        log.info("listening on %s", source)
        self._thread = Thread(target=self._server.serve_forever, args=(0.1,), name="headwater-webhook", daemon=True)
        self._thread.start()

    def close(self, answer: Any) -> None:
        """Listen no more, have those answered who wait by calling `answer`, and end all connections."""
        self._server.shutdown()
        self._thread.join()
        answer()
        self._server.server_close()
        self._server.end_connections()


class _Listener(ThreadingMixIn, TCPServer):
    daemon_threads, block_on_close = True, False
    allow_reuse_address, request_queue_size = True, 128

    def __init__(self, source: Webhook, bodies: Bodies, inbox: Inbox) -> None:
        self.source, self.bodies, self.inbox = source, bodies, inbox
        self.address_family = socket.AF_INET6 if ":" in source.host else socket.AF_INET
        self._tls: ssl.SSLContext | None = None
        if source.certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            try:
                self._tls.load_cert_chain(source.certificate, source.key)
            except (OSError, ssl.SSLError) as error:
                raise InputError(f"cannot use certificate {source.certificate} for {source}: {error}") from error
        self._lock = Lock()
        self._open: set[socket.socket] = set()
        self._nbytes = 0  # of bodies that are being read, or wait
        super().__init__((source.host, source.port), _Handler)

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection; its thread, which may wait, does what TLS needs."""
        connection, address = super().get_request()
        if self._tls is not None:
            connection.settimeout(_IDLE_S)
            connection = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection, unless there are as many as may be."""
        with self._lock:
            full = len(self._open) >= self.source.connections
            if not full:
                self._open.add(request)
        if not full:
            super().process_request(request, client_address)
            return
        if self._tls is None:
            with suppress(OSError):
                request.settimeout(1.0)
                body = b'{"error":"too many connections; try again"}'
                head = f"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: {len(body)}\r\n"
                request.sendall(head.encode() + b"Connection: close\r\n\r\n" + body)
        self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """End a connection."""
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        """End those on which nobody waits for an answer, and the others when they have it."""
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            with suppress(OSError):
                # a handler that waits for the next request sees an end; a shutdown of TLS's own has others answer in clear
                socket.socket.shutdown(connection, socket.SHUT_RD)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say what broke; a connection that was cut is the sender's business."""
        log.debug("a connection to %s broke", self.source, exc_info=True)

    def reserve(self, nbytes: int) -> bool:
        """Have room for a body; False where there is none now."""
        with self._lock:
            if self._nbytes + nbytes > self.source.buffer:
                return False
            self._nbytes += nbytes
            return True

    def release(self, nbytes: int) -> None:
        """Have room for others again."""
        with self._lock:
            self._nbytes -= nbytes


class _RefusedError(Exception):
    """Why a request is refused, as a status and words; `ends` where what follows on the connection cannot be told."""

    def __init__(self, status: int, why: str, *, ends: bool = False, **headers: str) -> None:
        super().__init__(why)
        self.status, self.why, self.ends = status, why, ends
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.unfit: list[dict[str, Any]] = []


class _Handler(TimelyHandler):
    protocol_version, server_version, sys_version = "HTTP/1.1", "headwater", ""
    timeout, disable_nagle_algorithm = _IDLE_S, True
    server: _Listener

    def do_POST(self) -> None:  # noqa: N802  # the library's name
        """Take records, and answer when that is done."""
        reserved = 0
        try:
            self._check_sender()
            size = self._size()
            reserved = self.server.source.largest if size is None else size
            if not self.server.reserve(reserved):
                reserved = 0
                raise _RefusedError(429, "too much waits for the flow; send it again later", ends=True, Retry_After="1")
            self.timely.allow(reserved)
            body = self._chunks() if size is None else self._read(size)
            self._take(body)
        except _RefusedError as refusal:
            self.leaves_unread = refusal.ends
            self.close_connection = self.close_connection or refusal.ends
            document: dict[str, Any] = {"error": refusal.why}
            if refusal.unfit:
                document["records"] = refusal.unfit
            self._respond(refusal.status, document, refusal.headers)
        finally:
            self.server.release(reserved)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Say what is wrong with a request that is none, or no POST."""
        self.close_connection = self.leaves_unread = True  # it may have a body
        if code == HTTPStatus.NOT_IMPLEMENTED:
            self._respond(405, {"error": "records are sent here by POST"}, {"Allow": "POST"})
        else:
            self._respond(code, {"error": message or HTTPStatus(code).phrase})

    def log_message(self, format: str, *args: Any) -> None:
        """Log what the server says in our own log."""
        log.debug(format, *args)

    def _check_sender(self) -> None:
        source = self.server.source
        if self.path.partition("?")[0] != source.path:
            raise _RefusedError(404, f"nothing is taken at this path; records go to {source.path}", ends=True)
        if source.token is not None:
            header = self.headers.get("Authorization", "")
            if not hmac.compare_digest(header.encode(), f"Bearer {source.token}".encode()):
                why = "expected the header 'Authorization: Bearer …' with the token of this server"
                raise _RefusedError(401, why, ends=True, WWW_Authenticate="Bearer")
        elif self._is_of_a_foreign_page():
            why = "a web page that was not loaded from here cannot send records without a token, which it would have to know"
            raise _RefusedError(403, why, ends=True)
        coding = self.headers.get("Content-Encoding", "identity")
        if coding != "identity":
            raise _RefusedError(415, f"the body is packed as {coding!r}; send it as it is", ends=True)
        if source.keyed and not 0 < len(self.headers.get("Idempotency-Key", "")) <= _LONGEST_KEY:
            raise _RefusedError(
                400,
                f"expected a header Idempotency-Key of 1 to {_LONGEST_KEY} signs, the same when a request is sent again",
                ends=True,
            )

    def _is_of_a_foreign_page(self) -> bool:
        """Say whether a browser sends this for a page of somebody else, as any page can have it do.

        A browser says which page it is, and no other sender does; a page whose name was made to point here is one of those.
        """
        origin, host = self.headers.get("Origin"), self.headers.get("Host", "")
        site = self.headers.get("Sec-Fetch-Site", "none")
        of_a_page = origin is not None or site != "none"
        return of_a_page and not (is_ours(host, _NAMES) and is_same(origin, host, site))

    def _size(self) -> int | None:
        """Return how many bytes the body has; None where it comes in chunks."""
        coding, length = self.headers.get("Transfer-Encoding"), self.headers.get("Content-Length")
        if coding is not None:
            if coding.lower() != "chunked" or length is not None:
                raise _RefusedError(400, "expected either Content-Length or 'Transfer-Encoding: chunked'", ends=True)
            return None
        if length is None:
            raise _RefusedError(411, "expected the header Content-Length", ends=True)
        if not (length.isascii() and length.isdigit() and len(length) <= _LONGEST_NUMBER):
            raise _RefusedError(400, f"Content-Length is a number; got {length[:20]!r}", ends=True)
        self._check_size(int(length))
        return int(length)

    def _check_size(self, size: int) -> None:
        if size > self.server.source.largest:
            raise _RefusedError(
                413, f"a body may have {self.server.source.largest:,} bytes; send fewer records", ends=True
            )

    def _read(self, size: int) -> bytes:
        body = self.rfile.read(size)
        if len(body) < size:
            raise _RefusedError(400, f"the body ended after {len(body):,} of {size:,} bytes", ends=True)
        return body

    def _chunks(self) -> bytes:
        body = bytearray()
        while True:
            line = self.rfile.readline(_LONGEST_LINE)
            digits = line.partition(b";")[0].strip()
            try:
                size = int(digits, 16) if digits.isalnum() else -1
            except ValueError:
                size = -1
            if size < 0 or not line.endswith(b"\n"):
                raise _RefusedError(400, "a chunk does not begin with its size", ends=True)
            if size == 0:
                while self.rfile.readline(_LONGEST_LINE).strip():  # trailers, which say nothing here
                    pass
                return bytes(body)
            self._check_size(len(body) + size)
            body += self._read(size)
            if self.rfile.readline(3).strip():
                raise _RefusedError(400, "a chunk is longer than it said", ends=True)

    def _take(self, body: bytes) -> None:
        source = self.server.source
        try:
            content = self.server.bodies.read(body, self.headers.get("Content-Type", "").lower())
        except InputError as error:
            raise _RefusedError(400, str(error)) from None
        if content.unfit and source.bad == "refuse":
            raise _unfit(content)
        if not content.batch.length and not content.unfit:
            self._respond(200, {"taken": 0})
            return
        key = self.headers["Idempotency-Key"] if source.keyed else None
        outcome = self.server.inbox.take_in(content, key, source.patience_s)
        status, why = _ANSWERS[outcome]
        if why:
            self._respond(status, {"error": why}, _AGAIN)
        else:
            again = {"before": True} if outcome == "taken before" else {}
            unfit = {"dead_letters": len(content.unfit)} if content.unfit else {}
            self._respond(status, {"taken": content.batch.length, **unfit, **again})

    def _respond(self, status: int, document: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        body = msgspec.json.encode(document) + b"\n"
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"Content-Length: {len(body)}"]
        lines += ["Content-Type: application/json", *(f"{name}: {value}" for name, value in (headers or {}).items())]
        if self.close_connection:
            lines.append("Connection: close")
        without = self.command == "HEAD"
        self.wfile.write("\r\n".join([*lines, "", ""]).encode() + (b"" if without else body))


def _unfit(content: Body) -> _RefusedError:
    count, all_of_it = len(content.unfit), content.batch.length + len(content.unfit)
    number, _, why = content.unfit[0]
    some = f"record {number}: {why}" if count == 1 else f"{count:,} records, the first is record {number}: {why}"
    refusal = _RefusedError(400, f"nothing of the request is taken, since not all {all_of_it:,} records fit: {some}")
    refusal.unfit = [{"record": at, "error": reason} for at, _, reason in content.unfit[:_MOST_SHOWN]]
    return refusal
