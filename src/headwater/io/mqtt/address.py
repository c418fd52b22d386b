"""Where a broker is, and the URL that says so."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import SplitResult, parse_qsl, urlsplit

from headwater.errors import FlowError, listed, suggestion
from headwater.io.urls import without_password

_ENCODED = "in a user's name or password write / as %2F, ? as %3F, # as %23, @ as %40"
_OPTIONS = ["client_id", "qos", "version"]


@dataclass(frozen=True)
class Address:
    """Where a broker is and how to be let in."""

    host: str
    port: int
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    ca: str | None = None  #: file of the authority that signed the broker's certificate; the system's by default
    certificate: str | None = None  #: file of our own certificate, where the broker asks for one
    key: str | None = None

    def __str__(self) -> str:
        return f"{'mqtts' if self.tls else 'mqtt'}://{self.host}:{self.port}"


def parse_broker(broker: str) -> SplitResult:
    """Take a broker's URL apart; what Python says of one that is none may quote the password, and is not passed on."""
    try:
        url = urlsplit(broker if "://" in broker else f"mqtt://{broker}", allow_fragments=False)
    except ValueError:
        raise FlowError(f"cannot read broker {without_password(broker)!r}: it is no URL; {_ENCODED}") from None
    if "@" not in url.netloc and "@" in url.path + url.query:
        raise FlowError(
            f"cannot read broker {without_password(broker)!r}: its '@' comes after a '/', '?' or '#'; {_ENCODED}"
        )
    return url


def place(url: SplitResult, broker: str) -> tuple[str, int]:
    """Return host and port."""
    if url.scheme not in ("mqtt", "mqtts") or not url.hostname:
        raise FlowError(
            f"a broker is a host or mqtt://host:port/topic (mqtts:// for TLS); got {without_password(broker)!r}"
        )
    try:
        return url.hostname, url.port or (8883 if url.scheme == "mqtts" else 1883)
    except ValueError:
        raise FlowError(
            f"cannot read broker {without_password(broker)!r}: its port is no number up to 65535; {_ENCODED}"
        ) from None


def options(url: SplitResult) -> dict[str, str]:
    """Return what stands behind the '?'."""
    values = dict(parse_qsl(url.query, keep_blank_values=True))
    for name in values:
        if name not in _OPTIONS:
            raise FlowError(f"a broker's URL takes {listed(_OPTIONS)}; got {name!r}{suggestion(name, _OPTIONS)}")
    return values
