"""Who may look at the pages, and act: stands before everything that the dashboard serves, web sockets included.

Whoever knows the token logs in once and gets a cookie that scripts cannot read and that other sites cannot use. The token is
in no address: a link may carry it behind a `#`, which browsers keep to themselves.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any
from urllib.parse import parse_qs

from headwater.origin import is_ours, is_same
from headwater.web.login import PAGE, REFUSED

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_LARGEST_FORM = 4096
_HOURS = 12  #: that somebody stays logged in
#: the pages load nothing from elsewhere and tell nobody anything; the library compiles its templates in the browser
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'; object-src 'none'"
)
_ALWAYS = [
    (b"content-security-policy", _POLICY.encode()),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),  # without one, browsers would not say where the login form comes from
    (b"cross-origin-opener-policy", b"same-origin"),
]


class Guard:
    """Lets through who is logged in, from a page of ours; everybody else sees the login page or a refusal."""

    def __init__(self, app: App, token: str, names: Iterable[str] = ()) -> None:
        self.app = app
        self._token = token.encode()
        self._names = {"localhost", *(name.lower() for name in names)}
        #: sessions that were logged out of; others hold until their hour, restarts included
        self._logged_out: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, refuse, or hand on what is asked for."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        head = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if why := self._stranger(scope, head):
            await _refuse(scope, send, 403, why)
        elif scope["type"] == "http" and scope["path"] in ("/login", "/logout"):
            await self._enter(scope, head, receive, send)
        elif self._is_logged_in(scope, head):
            await self.app(scope, receive, _with_headers(send))
        elif scope["type"] == "http" and scope["method"] == "GET" and "text/html" in head.get("accept", ""):
            await _answer(send, 303, extra=[(b"location", b"/login")])
        else:
            await _refuse(scope, send, 401, "log in first")

    def _stranger(self, scope: Scope, head: dict[str, str]) -> str:
        """Say why a request is not answered, whoever sends it; nothing if there is no reason."""
        host, origin = head.get("host", ""), head.get("origin")
        if not is_ours(host, self._names):
            return "this dashboard is not known by that name; use its address, or start it with --host-name NAME"
        is_read = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        if is_read and head.get("sec-fetch-mode") == "navigate":
            return ""  # a link from elsewhere may lead here: nothing is done by that
        if (origin is None and not is_read) or not is_same(origin, host, head.get("sec-fetch-site", "none")):
            return "a page of another origin cannot act here"
        return ""

    def _is_logged_in(self, scope: Scope, head: dict[str, str]) -> bool:
        session = _cookies(head.get("cookie", "")).get(_cookie_name(scope), "")
        expires, _, rest = session.partition(".")
        nonce = rest.partition(".")[0]
        if not (expires.isascii() and expires.isdigit()) or int(expires) < time.time() or session in self._logged_out:
            return False
        return hmac.compare_digest(session.encode(), self._session(expires, nonce).encode())

    def _session(self, expires: str, nonce: str) -> str:
        """Return a session as its cookie has it: signed with the token, so that it holds for who knew that."""
        signature = hmac.new(self._token, f"dashboard {expires}.{nonce}".encode(), "sha256").hexdigest()
        return f"{expires}.{nonce}.{signature}"

    async def _enter(self, scope: Scope, head: dict[str, str], receive: Receive, send: Send) -> None:
        if scope["method"] in ("GET", "HEAD"):
            await _answer(send, 200, PAGE.replace("{error}", ""))
            return
        form = parse_qs((await _body(receive)).decode("utf-8", "replace"), max_num_fields=5)
        name = _cookie_name(scope)
        if scope["path"] == "/logout":
            if self._is_logged_in(scope, head):
                self._logged_out.add(_cookies(head["cookie"])[name])
            expired = f"{name}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"
            await _answer(send, 303, extra=[(b"location", b"/login"), (b"set-cookie", expired.encode())])
            return
        token = form.get("token", [""])[0].strip().encode()
        if not hmac.compare_digest(token, self._token):
            await _answer(send, 401, PAGE.replace("{error}", REFUSED))
            return
        session = self._session(str(int(time.time()) + _HOURS * 3600), secrets.token_urlsafe(16))
        secure = "; Secure" if scope.get("scheme") == "https" else ""
        cookie = f"{name}={session}; Path=/; HttpOnly; SameSite=Strict{secure}"
        await _answer(send, 303, extra=[(b"location", b"/"), (b"set-cookie", cookie.encode())])


def _cookie_name(scope: Scope) -> str:
    """Return a name with our port in it: browsers give cookies to all ports of a host."""
    return f"headwater_{scope['server'][1]}"


def _cookies(text: str) -> dict[str, str]:
    pairs = (part.strip().partition("=") for part in text.split(";"))
    return {name: value for name, _, value in pairs}


async def _body(receive: Receive) -> bytes:
    body = b""
    while len(body) <= _LARGEST_FORM:
        message = await receive()
        if message["type"] != "http.request":
            return b""
        body += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(body)
    return b""


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", []))
            if not any(name.lower() == b"cache-control" for name, _ in headers):
                headers.append((b"cache-control", b"no-store"))
            message = {**message, "headers": [*headers, *_ALWAYS]}
        await send(message)

    return send_with_headers


async def _refuse(scope: Scope, send: Send, status: int, why: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": why})
    else:
        await _answer(send, status, why, b"text/plain; charset=utf-8")


async def _answer(
    send: Send,
    status: int,
    text: str = "",
    kind: bytes = b"text/html; charset=utf-8",
    extra: Iterable[tuple[bytes, bytes]] = (),
) -> None:
    body = text.encode()
    length = (b"content-length", str(len(body)).encode())
    headers = [(b"content-type", kind), length, (b"cache-control", b"no-store"), *extra, *_ALWAYS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
