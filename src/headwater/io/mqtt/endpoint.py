"""MQTT: a topic of a broker, to read from or to publish to."""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256
from secrets import token_hex
from socket import gethostname
from typing import TYPE_CHECKING, Any, Literal, get_args, overload
from urllib.parse import unquote

from headwater.data.schema import Fields, Schema
from headwater.errors import FlowError, listed
from headwater.flow.duration import Duration, microseconds
from headwater.flow.endpoints import DeliverySemantics, Ledger, Reject, Resume, Transaction
from headwater.flow.identity import Identity
from headwater.flow.places import Place
from headwater.io.mqtt.address import Address, options, parse_broker, place
from headwater.io.mqtt.ids import NAME, Where
from headwater.io.mqtt.packets import LARGEST, LONGEST_TEXT, Hello, Will
from headwater.io.payload import payload_schema

if TYPE_CHECKING:
    from headwater.io.mqtt.reader import MqttReader
    from headwater.io.mqtt.writer import MqttWriter

Payload = Literal["json", "text"]
Version = Literal["3.1.1", "5"]
_KEEP_ALIVE_S = 30
_ALIASES = 8  # topics that a broker may abbreviate, as MQTT 5 allows


class Mqtt:
    """A topic of an MQTT broker, to read from or to publish to.

    `broker` is a host, or a URL that may hold all the rest: `mqtt://user@host:1883/topic?qos=1`, or
    `mqtts://` for TLS. User and password may also come from the environment, as HEADWATER_MQTT_USERNAME and
    _PASSWORD. `version` is "3.1.1" or "5". `will` is what the broker publishes when it loses us. A packet of more
    than `largest` bytes ends the connection, which then comes back.

    Reading. A payload is a JSON object of the columns of `schema`, or with `payload="text"` a text as it is,
    for the one text column of `schema`. `topic_column` adds the topic of each message. A record was created
    when it arrived, unless `created` names the time column that says so. With QoS 1 the broker keeps what
    comes while the flow is away, under a client id that stays the same between runs (with MQTT 5 for as long as
    `session`; "0 s" keeps nothing, in either version), and a message is acknowledged only after the flow took it.
    QoS 2 does that too, and neither end has a message twice. Where few messages come, they gather for `linger`. At
    most `buffer` messages wait, or as many as have `buffer_bytes`; beyond, reading stops with QoS 1 and 2, and with
    QoS 0 messages are dropped and counted (the reader's `dropped`).

    Publishing. Each record is a message: a JSON object, or with `payload="text"` the one text column.
    `topic` may hold column names: `city/{sensor}/out`. A value is one level of the topic, so that a record with
    a `/` in it is refused; `{sensor:path}` lets it be several. Refused is also, each record by itself, what
    would make a topic that brokers do not take: a wildcard, a control character, a missing value, a `$` at the
    start, more than 65,535 bytes. With `retain` the broker keeps the last message of each topic for those who
    subscribe later. While the broker is away at most `buffer` records wait, or `buffer_bytes` of them; then writing
    waits for `patience` and fails.

    With `ids` each message has an id, the same whenever it is sent, so that receivers can tell one that comes
    again: as MQTT 5's user property `headwater-id` ("property"), as a member of that name of the JSON object
    ("payload"), or as one level more of the topic ("topic"). Under a checkpoint messages then leave when it is
    complete.
    """

    def __init__(
        self,
        broker: str,
        topic: str | None = None,
        schema: Fields | None = None,
        *,
        qos: Literal[0, 1, 2] | None = None,
        payload: Payload = "json",
        topic_column: str | None = None,
        created: str | None = None,
        retain: bool = False,
        ids: Where | None = None,
        username: str | None = None,
        password: str | None = None,
        ca: str | None = None,
        certificate: str | None = None,
        key: str | None = None,
        client_id: str | None = None,
        version: Version | None = None,
        will: Will | None = None,
        session: Duration = "7 days",
        buffer: int = 100_000,
        buffer_bytes: int = 256 << 20,
        largest: int = 64 << 20,
        linger: Duration = "2 ms",
        patience: Duration = "5 s",
        retry: Duration = "1 s",
    ) -> None:
        url = parse_broker(broker)
        url_options = options(url)
        self.address = Address(
            *place(url, broker),
            username or (unquote(url.username) if url.username else os.environ.get("HEADWATER_MQTT_USERNAME")),
            password or (unquote(url.password) if url.password else os.environ.get("HEADWATER_MQTT_PASSWORD")),
            url.scheme == "mqtts",
            *(None if file is None else os.fspath(file) for file in (ca, certificate, key)),
        )
        self.topic = topic or unquote(url.path.removeprefix("/"))
        self.qos = _checked_qos(url_options.get("qos", "0") if qos is None else qos)
        self.client_id = client_id or url_options.get("client_id")
        self.version = _checked_version(url_options.get("version", "3.1.1") if version is None else version)
        self.will, self.session_s = will, _seconds(session)
        self.payload, self.topic_column, self.created, self.retain = payload, topic_column, created, retain
        self.ids = ids
        self.buffer, self.buffer_bytes = buffer, buffer_bytes
        self.largest, self.linger_s = largest, _seconds(linger)
        self.patience_s, self.retry_s = _seconds(patience), _seconds(retry)
        self._own_schema = Schema.of(schema) if schema is not None else None
        self._check()

    @property
    def schema(self) -> Schema:
        """The columns of the messages that are read."""
        return self.fields if self.topic_column is None else self.fields.with_fields({self.topic_column: str})

    @property
    def fields(self) -> Schema:
        """The columns that a payload holds."""
        return payload_schema(self._own_schema, self.payload, self)

    @overload
    def open(self, reject_or_schema: Reject, position: Any = None) -> MqttReader: ...
    @overload
    def open(self, reject_or_schema: Schema) -> MqttWriter: ...
    def open(self, reject_or_schema: Reject | Schema, position: Any = None) -> MqttReader | MqttWriter:
        """Start reading (the broker knows from where, and `position` is what is known to be here of that); with a schema
        instead, start publishing.
        """
        from headwater.io.mqtt.reader import MqttReader
        from headwater.io.mqtt.writer import MqttWriter

        if isinstance(reject_or_schema, Schema):
            return MqttWriter(self, reject_or_schema)
        return MqttReader(self, reject_or_schema, position or ())

    @property
    def writers(self) -> Literal["one", "many"]:
        """Whether several may publish at once: each needs a client id of its own."""
        return "one" if self.client_id else "many"

    apart = True
    in_order = True

    delivery: DeliverySemantics = "neither"
    remote = True

    @property
    def transaction(self) -> Callable[[Schema, Ledger], Transaction] | None:
        """How it is written in parts: with ids, which only what is in a checkpoint has for good; else messages leave as they
        come.
        """
        return None if self.ids is None else self._in_parts

    def _in_parts(self, schema: Schema, ledger: Ledger) -> Transaction:
        from headwater.io.mqtt.uplink import MqttUplink
        from headwater.io.transactions.outbox import Outbox

        return Outbox(self, MqttUplink(self, schema), ledger)

    @property
    def again(self) -> str | None:
        """What receivers have of a message that comes again."""
        return None if self.ids is None else f"what comes again has the same {NAME}, by which receivers can tell"

    @property
    def resume(self) -> Resume:
        """Whether the broker keeps what was not acknowledged, as it does with QoS 1."""
        return "sender" if self.qos else "never"

    @property
    def recognizes(self) -> bool:
        """Whether a message that comes again is told from a new one, also by a later run."""
        return self.qos == 2

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

    def hello(self, purpose: Literal["read", "write"]) -> Hello:
        """Return what to say to the broker first."""
        reading = purpose == "read"
        # a writer that makes up its name has nothing to come back to, unless QoS 2 has it finish what it began
        keep = self.qos > 0 if reading else self.qos == 2 or (self.qos == 1 and self.client_id is not None)
        return Hello(
            self.name_for(purpose),
            self.version,
            keep and self.session_s > 0,
            _KEEP_ALIVE_S,
            self.address.username,
            self.address.password,
            self.will,
            session_s=min(int(self.session_s), 2**32 - 1),
            receive_maximum=min(self.buffer, LONGEST_TEXT) if reading else LONGEST_TEXT,
            largest=self.largest,
            aliases=_ALIASES if reading and self.version == 5 else 0,
        )

    def name_for(self, purpose: str) -> str:
        """Return the client id: one that lasts when the broker keeps a session, else a new one."""
        return self._lasting_name(purpose) or f"headwater-{token_hex(6)}"

    def _lasting_name(self, purpose: str) -> str | None:
        if self.client_id or self.qos == 0 or purpose == "write":
            return self.client_id
        digest = sha256(f"{gethostname()} {self}".encode()).hexdigest()
        return f"headwater-{digest[:12]}"

    def __str__(self) -> str:
        return f"{self.address}/{self.topic}"

    def _check(self) -> None:
        if not self.topic:
            raise FlowError(f"which topic of {self.address}? Give topic='…' or put it into the URL")
        if self.payload not in ("json", "text"):
            raise FlowError(f"payload is 'json' or 'text'; got {self.payload!r}")
        if self.ids not in (None, *get_args(Where)):
            raise FlowError(f"ids is one of {listed(get_args(Where))}; got {self.ids!r}")
        if self.ids == "property" and self.version != 5:
            raise FlowError("ids='property' takes MQTT 5 (version='5'); MQTT 3.1.1 has ids='payload' and ids='topic'")
        if self.ids == "payload" and self.payload != "json":
            raise FlowError(
                f"ids='payload' is a member of a JSON object, and payload is {self.payload!r}; use ids='topic'"
            )
        if not isinstance(self.buffer, int) or self.buffer < 1:
            raise FlowError(f"buffer is the number of messages that may wait, 1 or more; got {self.buffer}")
        if not isinstance(self.buffer_bytes, int) or self.buffer_bytes < 1:
            raise FlowError(f"buffer_bytes is what messages that wait may take, 1 or more; got {self.buffer_bytes}")
        if not isinstance(self.largest, int) or not 0 < self.largest <= LARGEST:
            raise FlowError(f"largest is the bytes that a packet may have, from 1 to {LARGEST:,}; got {self.largest}")
        if self.linger_s < 0:
            raise FlowError("linger is a duration, 0 or more")
        if self.created is not None and self.fields.type_of(self.created, what="created") != "time":
            raise FlowError(f"created names a column of type time; {self.created!r} is {self.fields[self.created]}")
        if self._own_schema is not None and self.payload == "text":
            text_column(self._own_schema, ())


def text_column(schema: Schema, elsewhere: tuple[str, ...]) -> str:
    """Return the one text column that a payload is."""
    texts = [name for name, kind in schema.fields if kind == "text" and name not in elsewhere]
    if len(texts) != 1:
        raise FlowError(
            f"payload='text' takes exactly one text column; there is {listed(texts)} among ({schema}). "
            "Select the one before, or use payload='json'"
        )
    return texts[0]


def _checked_qos(qos: Any) -> int:
    if str(qos) not in ("0", "1", "2"):
        raise FlowError(f"qos is 0 (at most once), 1 (at least once) or 2 (once); got {qos!r}")
    return int(qos)


def _checked_version(version: Any) -> int:
    """Return the number by which the protocol itself calls its versions."""
    if str(version) not in ("3.1.1", "5"):
        raise FlowError(f"version is '3.1.1' or '5'; got {version!r}")
    return 5 if str(version) == "5" else 4


def _seconds(duration: Duration) -> float:
    return microseconds(duration) / 1e6
