"""The packets of MQTT that come one at a time, made and read in plain Python; messages are for `scan` and `frame`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headwater.errors import FlowError, one_line
from headwater.io.mqtt.reasons import reason

CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 2, 3, 4, 5, 6, 7
SUBACK, UNSUBACK, PINGRESP, DISCONNECT = 9, 11, 13, 14
PING = b"\xc0\x00"
LARGEST = 268_435_455  #: bytes of a packet: what its length can say
LONGEST_TEXT = 65_535  #: bytes: a text's length has two
_FOREVER = 0xFFFFFFFF  # seconds of a session that does not end

_SESSION_EXPIRY, _RECEIVE_MAXIMUM, _MAXIMUM_QOS, _RETAIN_AVAILABLE = 0x11, 0x21, 0x24, 0x25
_MAXIMUM_PACKET, _TOPIC_ALIAS_MAXIMUM, _SERVER_KEEP_ALIVE, _REASON_TEXT = 0x27, 0x22, 0x13, 0x1F
#: how each property is written: so many bytes, "text" (also binary), "pair" of texts, "number" of 1 to 4 bytes
_FORMS: dict[int, int | str] = {
    0x01: 1, 0x02: 4, 0x03: "text", 0x08: "text", 0x09: "text", 0x0B: "number", 0x11: 4, 0x12: "text", 0x13: 2,
    0x15: "text", 0x16: "text", 0x17: 1, 0x18: 4, 0x19: 1, 0x1A: "text", 0x1C: "text", 0x1F: "text", 0x21: 2,
    0x22: 2, 0x23: 2, 0x24: 1, 0x25: 1, 0x26: "pair", 0x27: 4, 0x28: 1, 0x29: 1, 0x2A: 1,
}  # fmt: skip


class ProtocolError(Exception):
    """The broker sent what is no MQTT, or broke its rules: the connection is of no use any more."""


@dataclass(frozen=True)
class Will:
    """What the broker publishes for us when it loses us without a goodbye."""

    topic: str
    payload: str = ""
    qos: int = 0
    retain: bool = False

    def __post_init__(self) -> None:
        if not self.topic or "+" in self.topic or "#" in self.topic:
            raise FlowError(f"a will has a topic without wildcards; got {self.topic!r}")
        if self.qos not in (0, 1, 2):
            raise FlowError(f"a will's qos is 0, 1 or 2; got {self.qos!r}")


@dataclass(frozen=True)
class Hello:
    """All that CONNECT says."""

    client_id: str
    version: int  #: 4 is MQTT 3.1.1, 5 is 5
    keep_session: bool
    keep_alive_s: int
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    will: Will | None = None
    session_s: int = _FOREVER  #: how long the broker keeps the session of who is gone; MQTT 5 only
    receive_maximum: int = LONGEST_TEXT
    largest: int = LARGEST
    aliases: int = 0

    def packet(self, *, clean: bool) -> bytes:
        """Return CONNECT; `clean` asks for a new session, which MQTT 3.1.1 then does not keep, and MQTT 5 does."""
        flags = (clean or not self.keep_session) << 1
        body = text(self.client_id)
        if self.will is not None:
            flags |= 0x04 | self.will.qos << 3 | self.will.retain << 5
            body += (b"\x00" if self.version == 5 else b"") + text(self.will.topic) + text(self.will.payload)
        if self.username is not None:
            flags |= 0x80
            body += text(self.username)
        if self.password is not None and (self.username is not None or self.version == 5):
            flags |= 0x40
            body += text(self.password)
        head = text("MQTT") + bytes([self.version, flags]) + self.keep_alive_s.to_bytes(2)
        return packet(0x10, head + self._properties() + body)

    def _properties(self) -> bytes:
        if self.version < 5:
            return b""
        properties = _property(_SESSION_EXPIRY, self.session_s if self.keep_session else 0)
        properties += _property(_RECEIVE_MAXIMUM, self.receive_maximum) + _property(_MAXIMUM_PACKET, self.largest)
        if self.aliases:
            properties += _property(_TOPIC_ALIAS_MAXIMUM, self.aliases)
        return number(len(properties)) + properties


class Welcome(NamedTuple):
    """What CONNACK says."""

    session_kept: bool
    code: int  #: 0, or why the broker lets us not in
    receive_maximum: int = LONGEST_TEXT  #: messages of QoS 1 and 2 that may be on their way to the broker
    maximum_qos: int = 2
    may_retain: bool = True
    largest: int = LARGEST  #: bytes of a packet that the broker takes
    keep_alive_s: int | None = None  #: where the broker has its own mind
    reason_text: str = ""
    session_s: int | None = None  #: how long it keeps our session, where that is not as long as was asked for


def welcome(body: bytes, version: int) -> Welcome:
    """Read CONNACK."""
    if len(body) < 2 or body[0] > 1:
        raise ProtocolError("its answer to CONNECT cannot be read")
    if version < 5 or len(body) == 2:  # a broker of 3.1.1 that is asked in MQTT 5 answers in its own tongue
        return Welcome(bool(body[0]), body[1])
    fields = properties(body, 2)[0]
    return Welcome(
        bool(body[0]),
        body[1],
        int(fields.get(_RECEIVE_MAXIMUM, LONGEST_TEXT)) or LONGEST_TEXT,
        int(fields.get(_MAXIMUM_QOS, 2)),
        bool(fields.get(_RETAIN_AVAILABLE, 1)),
        int(fields.get(_MAXIMUM_PACKET, LARGEST)),
        int(fields[_SERVER_KEEP_ALIVE]) if _SERVER_KEEP_ALIVE in fields else None,
        one_line(str(fields.get(_REASON_TEXT, ""))),
        int(fields[_SESSION_EXPIRY]) if _SESSION_EXPIRY in fields else None,
    )


def subscribe(topic: str, qos: int, version: int) -> bytes:
    """Return SUBSCRIBE, which has the number 1: there is only ever one."""
    return packet(0x82, b"\x00\x01" + (b"\x00" if version == 5 else b"") + text(topic) + bytes([qos]))


def granted(body: bytes, version: int) -> int:
    """Read SUBACK: return the QoS that the broker grants, or from 128 on why it does not."""
    at = properties(body, 2)[1] if version == 5 else 2
    if len(body) != at + 1:
        raise ProtocolError("its answer to SUBSCRIBE cannot be read")
    return body[at]


def farewell(body: bytes) -> str:
    """Read the DISCONNECT of a broker, and say in words why it leaves us."""
    if not body:
        return "it says goodbye"
    reason_text = one_line(str(properties(body, 1)[0].get(_REASON_TEXT, ""))) if len(body) > 1 else ""
    return reason(body[0]) + (f" ({reason_text})" if reason_text else "")


def goodbye(version: int, *, forget: bool = False) -> bytes:
    """Return DISCONNECT; with `forget` it asks a broker of MQTT 5 to drop the session."""
    if version < 5 or not forget:
        return b"\xe0\x00"
    properties = _property(_SESSION_EXPIRY, 0)
    return packet(0xE0, b"\x00" + number(len(properties)) + properties)


def packet(first: int, body: bytes) -> bytes:
    """Put the head before a packet's body."""
    return bytes([first]) + number(len(body)) + body


def number(value: int) -> bytes:
    """Write a number as lengths are written: seven bits at a time.

    >>> number(0), number(127), number(128), number(LARGEST)
    (b'\\x00', b'\\x7f', b'\\x80\\x01', b'\\xff\\xff\\xff\\x7f')
    """
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def packet_sizes(sizes: NDArray[np.int64], qos: int, version: int) -> NDArray[np.int64]:
    """Return the bytes of a message's packet, by those of its topic and payload.

    >>> packet_sizes(np.array([100, 125, 126]), 0, 4).tolist()  # from 128 on, the length takes a byte more
    [104, 129, 131]
    """
    bodies = sizes + 2 + (2 if qos else 0) + (1 if version == 5 else 0)
    heads: NDArray[np.int64] = 2 + (bodies > 127) + (bodies > 16_383) + (bodies > 2_097_151)
    return bodies + heads


def text(value: str) -> bytes:
    """Write a text with its length before it."""
    raw = value.encode()
    return len(raw).to_bytes(2) + raw


def properties(body: bytes, at: int) -> tuple[dict[int, int | str], int]:
    """Read MQTT 5's properties; return them, the last of each kind, and where they end."""
    size, at = _number(body, at)
    stop = at + size
    if stop > len(body):
        raise ProtocolError("properties that are longer than their packet")
    values: dict[int, int | str] = {}
    while at < stop:
        kind = body[at]
        form = _FORMS.get(kind)
        at += 1
        if isinstance(form, int):
            values[kind], at = int.from_bytes(body[at : at + form]), at + form
        elif form == "number":
            values[kind], at = _number(body, at)
        elif form in ("text", "pair"):
            for _ in range(2 if form == "pair" else 1):
                size = int.from_bytes(body[at : at + 2])
                values[kind], at = body[at + 2 : at + 2 + size].decode(errors="replace"), at + 2 + size
        else:
            raise ProtocolError(f"property 0x{kind:02x}, which MQTT 5 does not have")
    if at != stop:
        raise ProtocolError("properties that go beyond their end")
    return values, stop


def _number(body: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(body[at : at + 4]):
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value, at + place + 1
    raise ProtocolError("a length that does not end")


def _property(kind: int, value: int) -> bytes:
    form = _FORMS[kind]
    assert isinstance(form, int)
    return bytes([kind]) + value.to_bytes(form)
