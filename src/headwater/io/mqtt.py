"""MQTT: a topic of a broker, to read from or to publish to."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from hashlib import sha256
from secrets import token_hex
from socket import gethostname
from typing import TYPE_CHECKING, Any, Literal, overload
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from headwater.data.schema import Fields, Schema
from headwater.errors import FlowError, listed, suggestion
from headwater.flow.duration import Duration, microseconds
from headwater.flow.endpoints import Reject, Resume
from headwater.flow.identity import Identity
from headwater.flow.places import Place
from headwater.io.urls import shown

if TYPE_CHECKING:
    from headwater.io.mqtt_reader import MqttReader
    from headwater.io.mqtt_writer import MqttWriter

Payload = Literal["json", "text"]
_ENCODED = "in a user's name or password write / as %2F, ? as %3F, # as %23, @ as %40"


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


class Mqtt:
    """A topic of an MQTT broker, to read from or to publish to.

    `broker` is a host, or a URL that may hold all the rest: `mqtt://user@host:1883/topic?qos=1`, or
    `mqtts://` for TLS. User and password may also come from the environment, as HEADWATER_MQTT_USERNAME and
    _PASSWORD.

    Reading. A payload is a JSON object of the columns of `schema`, or with `payload="text"` a text as it is,
    for the one text column of `schema`. `topic_column` adds the topic of each message. A record was created
    when it arrived, unless `created` names the time column that says so. With QoS 1 the broker keeps what
    comes while the flow is away, under a client id that stays the same between runs, and a message is
    acknowledged only after the flow took it. At most `buffer` messages wait; beyond, reading stops with QoS
    1, and with QoS 0 messages are dropped and counted (the reader's `dropped`).

    Publishing. Each record is a message: a JSON object, or with `payload="text"` the one text column.
    `topic` may hold column names: `city/{sensor}/out`. A value is one level of the topic, so that a record with
    a `/` in it is refused; `{sensor:path}` lets it be several. Refused is also, each record by itself, what
    would make a topic that brokers do not take: a wildcard, a control character, a missing value, a `$` at the
    start, more than 65,535 bytes. With `retain` the broker keeps the last message of each topic for those who
    subscribe later. While the broker is away at most `buffer` records wait; then writing waits for `patience`
    and fails.
    """

    def __init__(
        self,
        broker: str,
        topic: str | None = None,
        schema: Fields | None = None,
        *,
        qos: Literal[0, 1] | None = None,
        payload: Payload = "json",
        topic_column: str | None = None,
        created: str | None = None,
        retain: bool = False,
        username: str | None = None,
        password: str | None = None,
        ca: str | None = None,
        certificate: str | None = None,
        key: str | None = None,
        client_id: str | None = None,
        buffer: int = 10_000,
        patience: Duration = "5 s",
        retry: Duration = "1 s",
    ) -> None:
        url = _parsed(broker)
        options = _options(url)
        self.address = Address(
            *_place(url, broker),
            username or (unquote(url.username) if url.username else os.environ.get("HEADWATER_MQTT_USERNAME")),
            password or (unquote(url.password) if url.password else os.environ.get("HEADWATER_MQTT_PASSWORD")),
            url.scheme == "mqtts",
            *(None if file is None else os.fspath(file) for file in (ca, certificate, key)),
        )
        self.topic = topic or unquote(url.path.removeprefix("/"))
        self.qos = _checked_qos(options.get("qos", "0") if qos is None else qos)
        self.client_id = client_id or options.get("client_id")
        self.payload, self.topic_column, self.created, self.retain = payload, topic_column, created, retain
        self.buffer, self.patience_s, self.retry_s = buffer, _seconds(patience), _seconds(retry)
        self._given = Schema.of(schema) if schema is not None else None
        self._check()

    @property
    def schema(self) -> Schema:
        """The columns of the messages that are read."""
        return self.fields if self.topic_column is None else self.fields.with_fields({self.topic_column: str})

    @property
    def fields(self) -> Schema:
        """The columns that a payload holds."""
        if self._given is not None:
            return self._given
        if self.payload == "text":
            return Schema.of({"text": str})
        raise FlowError(
            f"reading JSON from {self} takes a schema, such as schema={{'id': str, 'x': float}}; "
            "or take messages as they are with payload='text'"
        )

    @overload
    def open(self, given: Reject, position: Any = None) -> MqttReader: ...
    @overload
    def open(self, given: Schema) -> MqttWriter: ...
    def open(self, given: Reject | Schema, position: Any = None) -> MqttReader | MqttWriter:
        """Start reading (the broker knows from where); with a schema instead, start publishing."""
        from headwater.io.mqtt_reader import MqttReader
        from headwater.io.mqtt_writer import MqttWriter

        return MqttWriter(self, given) if isinstance(given, Schema) else MqttReader(self, given)

    @property
    def writers(self) -> Literal["one", "many"]:
        """Whether several may publish at once: each needs a client id of its own."""
        return "one" if self.client_id else "many"

    @property
    def resume(self) -> Resume:
        """Whether the broker keeps what was not acknowledged, as it does with QoS 1."""
        return "sender" if self.qos else "never"

    @property
    def identity(self) -> Identity:
        """The topic: a broker may move."""
        return {"topic": self.topic}

    def claims(self, *, writing: bool) -> Place | None:
        """Return the client id, of which the broker lets in one at a time; none where each connection gets a new one."""
        name = self._lasting_name("write" if writing else "read")
        if name is None:
            return None
        advice = (
            "the broker lets in one client of that id at a time, and puts the other out. Give each its own client_id"
        )
        return Place(f"client id {name!r} of {self.address}", (str(self.address), name), shared=False, advice=advice)

    def name_for(self, purpose: str) -> str:
        """Return the client id: one that lasts when the broker keeps a session, else a new one."""
        return self._lasting_name(purpose) or f"headwater-{token_hex(6)}"

    def _lasting_name(self, purpose: str) -> str | None:
        if self.client_id or self.qos == 0 or purpose == "write":
            return self.client_id
        known = sha256(f"{gethostname()} {self}".encode()).hexdigest()
        return f"headwater-{known[:12]}"

    def __str__(self) -> str:
        return f"{self.address}/{self.topic}"

    def _check(self) -> None:
        if not self.topic:
            raise FlowError(f"which topic of {self.address}? Give topic='…' or put it into the URL")
        if self.payload not in ("json", "text"):
            raise FlowError(f"payload is 'json' or 'text'; got {self.payload!r}")
        if not isinstance(self.buffer, int) or self.buffer < 1:
            raise FlowError(f"buffer is the number of messages that may wait, 1 or more; got {self.buffer}")
        if self.created is not None and self.fields.type_of(self.created, what="created") != "time":
            raise FlowError(f"created names a column of type time; {self.created!r} is {self.fields[self.created]}")
        if self._given is not None and self.payload == "text":
            text_column(self._given, ())


def text_column(schema: Schema, elsewhere: tuple[str, ...]) -> str:
    """Return the one text column that a payload is."""
    texts = [name for name, kind in schema.fields if kind == "text" and name not in elsewhere]
    if len(texts) != 1:
        raise FlowError(
            f"payload='text' takes exactly one text column; there is {listed(texts)} among ({schema}). "
            "Select the one before, or use payload='json'"
        )
    return texts[0]


def _parsed(broker: str) -> SplitResult:
    """Take a broker's URL apart; what Python says of one that is none may quote the password, and is not passed on."""
    try:
        url = urlsplit(broker if "://" in broker else f"mqtt://{broker}", allow_fragments=False)
    except ValueError:
        raise FlowError(f"cannot read broker {shown(broker)!r}: it is no URL; {_ENCODED}") from None
    if "@" not in url.netloc and "@" in url.path + url.query:
        raise FlowError(f"cannot read broker {shown(broker)!r}: its '@' comes after a '/', '?' or '#'; {_ENCODED}")
    return url


def _place(url: SplitResult, given: str) -> tuple[str, int]:
    if url.scheme not in ("mqtt", "mqtts") or not url.hostname:
        raise FlowError(f"a broker is a host or mqtt://host:port/topic (mqtts:// for TLS); got {shown(given)!r}")
    try:
        return url.hostname, url.port or (8883 if url.scheme == "mqtts" else 1883)
    except ValueError:
        raise FlowError(f"cannot read broker {shown(given)!r}: its port is no number up to 65535; {_ENCODED}") from None


def _options(url: SplitResult) -> dict[str, str]:
    options = dict(parse_qsl(url.query, keep_blank_values=True))
    known = ["client_id", "qos"]
    for name in options:
        if name not in known:
            raise FlowError(f"a broker's URL takes {listed(known)}; got {name!r}{suggestion(name, known)}")
    return options


def _checked_qos(qos: Any) -> int:
    if str(qos) not in ("0", "1"):
        raise FlowError(f"qos is 0 (at most once) or 1 (at least once); got {qos!r}")
    return int(qos)


def _seconds(duration: Duration) -> float:
    return microseconds(duration) / 1e6
