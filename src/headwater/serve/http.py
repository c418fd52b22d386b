"""HTTP by the standard library: who may ask, how much, and for how long. What is answered is in `routes`.

A page of another origin cannot act: there is no CORS, and a request with another Origin or for another Host is refused (see
`headwater.origin`). The token is compared in constant time.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import socket
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

from headwater import __version__
from headwater.errors import RunError, one_line
from headwater.io.http.deadline import TimelyHandler
from headwater.origin import is_ours, is_same
from headwater.serve.routes import JSON, ROUTES, RefusalError, Request, Response, Route, answer_request, document

log = logging.getLogger(__name__)

_LARGEST_BODY = 2**20
_LONGEST_NUMBER = 18  #: digits of a length
_CONNECTIONS, _STREAMS = 64, 32
_SILENCE_S = 30.0  #: a connection on which no request comes for so long is closed


class Server(ThreadingHTTPServer):
    """Answers for a service at an address, a thread for each connection, and only so many of them."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self,
        service: Any,
        host: str,
        port: int,
        token: str,
        names: Iterable[str] = (),
        routes: Sequence[Route] = ROUTES,
    ) -> None:
        """Listen; RunError says why that is not possible. `names` are hosts that clients may know us by.

        The service is what `routes` ask: a `Backend` for those of flows.
        """
        self.service, self.token, self.routes = service, token.encode(), routes
        self.names = {"localhost", *(name.lower() for name in names)}
        self.connections = threading.BoundedSemaphore(_CONNECTIONS)
        self.streams = threading.BoundedSemaphore(_STREAMS)
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            self.address_family = family
            super().__init__(address[:2], _Handler)  # type: ignore[arg-type]
        except (OSError, OverflowError, UnicodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise RunError(
                f"cannot listen on {host}:{port}: {why}; is the port taken? Choose another with --listen"
            ) from None

    @property
    def url(self) -> str:
        """Where it listens, as a client of this machine reaches it."""
        host, port = self.server_address[:2]
        address = ipaddress.ip_address(str(host))
        if address.is_unspecified:
            address = ipaddress.ip_address("::1" if address.version == 6 else "127.0.0.1")
        return f"http://[{address}]:{port}" if address.version == 6 else f"http://{address}:{port}"

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, unless there are too many already."""
        if not self.connections.acquire(blocking=False):
            with suppress(OSError):
                request.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self.connections.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and let another connection be."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that hang up in the middle; the error goes to the debug log."""
        log.debug("a connection broke", exc_info=True)


class _Handler(TimelyHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = f"headwater/{__version__}", ""
    timeout = _SILENCE_S

    def do_GET(self) -> None:  # noqa: N802  # the library's name
        self._answer()

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_GET  # noqa: N815  # the library's names

    def _answer(self) -> None:
        path, _, query = self.path.partition("?")
        try:
            self._check_host()
            is_public = any(route.public and route.path == path for route in self.server.routes)
            if not is_public:
                self._check_token()
            body = self._body(in_time=is_public)
        except RefusalError as refusal:
            self.close_connection = self.leaves_unread = True  # what was sent may not have been read
            self._send(refusal.response)
            return

        def request(names: Mapping[str, str]) -> Request:
            return Request(self.server.service, names, dict(parse_qsl(query, max_num_fields=20)), body)

        try:
            response = answer_request(self.command, path, request, self.server.routes)
        except ValueError:
            response = document({"error": "the path or what follows it cannot be read"}, 400)
        except OSError as error:
            response = document({"error": f"{error.strerror or error}: {error.filename}"}, 500)
        except Exception as error:
            log.exception("%s %s broke", self.command, one_line(path))
            response = document({"error": f"a bug of the server: {type(error).__name__}"}, 500)
        if response.events is None:
            self._send(response)
        else:
            self._stream(response)

    def _body(self, *, in_time: bool) -> bytes:
        """Read what is sent, which may take longer by how large it is, unless it has to come `in_time`."""
        if self.headers.get("Transfer-Encoding"):
            raise RefusalError(411, "what is sent needs a Content-Length")
        text = self.headers.get("Content-Length", "0")
        if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER):
            raise RefusalError(400, "Content-Length is no number")
        length = int(text)
        if length > _LARGEST_BODY:
            raise RefusalError(413, f"more than {_LARGEST_BODY} bytes cannot be sent")
        if length and self.headers.get_content_type() != JSON:
            raise RefusalError(415, f"what is sent should be {JSON}")
        self.timely.allow(0 if in_time else length)
        return self.rfile.read(length)

    def _check_host(self) -> None:
        host = self.headers.get("Host", "")
        if not is_ours(host, self.server.names):
            raise RefusalError(
                421, "this server is not known by that name; use its address, or start it with --host-name NAME"
            )
        if not is_same(self.headers.get("Origin"), host, self.headers.get("Sec-Fetch-Site", "none")):
            raise RefusalError(403, "a page of another origin cannot act here")

    def _check_token(self) -> None:
        scheme, _, credentials = self.headers.get("Authorization", "").partition(" ")
        token = credentials.strip().encode("utf-8", "replace")
        if not hmac.compare_digest(token, self.server.token) or scheme.lower() != "bearer":
            raise RefusalError(401, "a token is needed: Authorization: Bearer, and what is in the server's token file")

    def _send(self, response: Response) -> None:
        self.send_response(response.status)
        if response.status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Type", response.kind)
        self.send_header("Content-Length", str(len(response.body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self._end_head()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    def _stream(self, response: Response) -> None:
        self.close_connection = True
        if not self.server.streams.acquire(blocking=False):
            self._send(RefusalError(503, f"more than {_STREAMS} streams are not served at a time").response)
            return
        try:
            self.send_response(response.status)
            self.send_header("Content-Type", response.kind)
            self.send_header("Connection", "close")
            self._end_head()
            if self.command != "HEAD":
                assert response.events is not None
                for event in response.events:
                    self.wfile.write(event)
        finally:
            self.server.streams.release()

    def _end_head(self) -> None:
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what the library itself refuses in the form of all others."""
        self.close_connection = True
        self.requestline = getattr(self, "requestline", "")
        self.command = getattr(self, "command", None) or "GET"
        self._send(document({"error": one_line(message or "this cannot be read as HTTP")}, int(code)))

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing of each request."""
