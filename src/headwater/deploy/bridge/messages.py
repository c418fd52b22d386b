"""What the two ends of a bridge say to each other, and how that looks on the wire.

A message is a head (its kind, the bytes of its body, two numbers) and a body. Records go as a frame of `data.frames`: the
columns' own memory, which costs as much as Arrow's form to write and less to read into columns again, carries stamps and
watermark, and needs nothing that a small device has not installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

import msgspec

from headwater.errors import InputError

VERSION = 1
_HEAD = Struct("<BIqq")
MOST_BYTES = 2**30  #: of one message
_pack, _unpack = msgspec.msgpack.Encoder().encode, msgspec.msgpack.decode


class Hello(NamedTuple):
    """The first word of either end: which bridge it means, and who it is."""

    bridge: str
    role: str  #: "sender" or "receiver"
    life: str = ""  #: of the sender: another one each time that it opens its buffer
    began: int = 0  #: of the sender: where the messages of this life begin
    safe: int = 0  #: of the sender: all before it is gone, since some receiver had it for good
    durable: bool = False  #: whether the sender sends nothing that it could forget
    version: int = VERSION
    clock_ns: int = 0  #: of the sender: what time it is there, by the clock that stamps its records


class Resume(NamedTuple):
    """The receiver has all before `next`, and all before `safe` for good; it has room for so many bytes."""

    next: int
    safe: int
    credit: int


class Data(NamedTuple):
    """Records, or how far event time has come. Between `follows` and `number` there is nothing to be had."""

    number: int
    follows: int
    frame: bytes | memoryview


class Ack(NamedTuple):
    """The receiver has all before `safe` for good, and room for `credit` bytes since the connection was made."""

    safe: int
    credit: int


class Ping(NamedTuple):
    """Nothing is new, and somebody is there."""


class Refuse(NamedTuple):
    """This bridge cannot go on, and why: trying again does not help."""

    why: str


Message = Hello | Resume | Data | Ack | Ping | Refuse
_HELLO, _RESUME, _DATA, _ACK, _PING, _REFUSE = range(6)


def encoded(message: Message) -> list[bytes | memoryview]:
    """Return a message as pieces to be sent one after the other."""
    match message:
        case Data(number, follows, frame):
            return [_HEAD.pack(_DATA, len(frame), number, follows), frame]
        case Ack(safe, credit):
            return [_HEAD.pack(_ACK, 0, safe, credit)]
        case Ping():
            return [_HEAD.pack(_PING, 0, 0, 0)]
        case Resume():
            body = _pack(list(message))
            return [_HEAD.pack(_RESUME, len(body), 0, 0), body]
        case Hello():
            body = _pack(list(message))
            return [_HEAD.pack(_HELLO, len(body), 0, 0), body]
        case Refuse(why):
            body = _pack([why])
            return [_HEAD.pack(_REFUSE, len(body), 0, 0), body]


class Parser:
    """Takes bytes as they come, and hands out the messages that are whole, of up to `most_bytes` each."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._bytes, self.most_bytes = bytearray(), most_bytes

    def feed(self, data: bytes) -> Iterator[Message]:
        """Take more bytes; InputError for what no end of a bridge says."""
        self._bytes += data
        at = 0
        while len(self._bytes) - at >= _HEAD.size:
            kind, size, first, second = _HEAD.unpack_from(self._bytes, at)
            if kind > _REFUSE or size > self.most_bytes:
                raise InputError("what came over a bridge is none of its messages; is something else at that address?")
            end = at + _HEAD.size + size
            if end > len(self._bytes):
                break
            body = bytes(memoryview(self._bytes)[at + _HEAD.size : end])
            at = end
            yield _decoded(kind, first, second, body)
        del self._bytes[:at]


def _decoded(kind: int, first: int, second: int, body: bytes) -> Message:
    if kind == _DATA:
        return Data(first, second, body)
    if kind == _ACK:
        return Ack(first, second)
    if kind == _PING:
        return Ping()
    try:
        fields = _unpack(body)
        if kind == _REFUSE:
            return Refuse(str(fields[0]))
        if kind == _RESUME:
            return Resume(*(int(each) for each in fields))
        bridge, role, life, began, safe, durable, version, *rest = fields  # what a later version adds is not for us
        clock_ns = int(rest[0]) if rest else 0
        return Hello(str(bridge), str(role), str(life), int(began), int(safe), bool(durable), int(version), clock_ns)
    except (msgspec.DecodeError, TypeError, ValueError, IndexError) as error:
        raise InputError(f"what came over a bridge is none of its messages: {error}") from None
