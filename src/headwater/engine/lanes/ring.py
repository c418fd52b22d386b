"""A ring: messages from one lane to another through memory that both share, one sender and one receiver each.

A message is a header and, if records come with it, their frame (`data.frames`). The ring is a stream of bytes, so that a
message may be larger than it; `written` and `read` count the bytes that have passed and never run back. Each side writes
its counter behind a fence, and looks at the bytes behind one: processors such as ARM's may otherwise show another core
the counter before what it counts.
"""

from __future__ import annotations

import mmap
import os
import select
import threading
from collections import deque
from contextlib import suppress
from struct import Struct
from typing import NamedTuple, Protocol

import numpy as np

from headwater.data.batch import END, NO_WATERMARK, Batch
from headwater.data.column import Array
from headwater.data.frames import PREFIX, pieces_of, unpack
from headwater.errors import RunError

CAPACITY = 2**24  #: bytes that may be on their way to one lane at one place; two blocks of the heaviest flows, about
_COUNTERS = 64  #: bytes in front for the counters
_WRITTEN, _READ, _RECORDS_IN, _RECORDS_OUT = range(4)
_HEADER = Struct("<qqqqq")  #: block, whether it ends, watermark, records, bytes of the frame


class Message(NamedTuple):
    """What goes from lane to lane: records, how far time has come, and the block that they are of."""

    batch: Batch | None
    watermark: int  #: event time; `END` when nothing will follow
    block: int = -1  #: the number of the block, -1 for none
    whole: bool = True  #: whether that block ends here

    @property
    def records(self) -> int:
        """How many records it has."""
        return 0 if self.batch is None else self.batch.length


THE_END = Message(None, END)
NO_BLOCK = -2  #: what comes next is not known yet
BARRIER = -3  #: what comes next is the barrier of a checkpoint
IDLE = -4  #: what comes next says whether nobody needs to wait for the sender's event time


def barrier(number: int, *, last: bool) -> Message:
    """Return the barrier of a checkpoint: behind the last one nothing comes."""
    return Message(None, number, BARRIER, last)


def idle_word(idle: bool) -> Message:
    """Return the word that nobody needs to wait for the event time of a lane, or again."""
    return Message(None, NO_WATERMARK, IDLE, idle)


class Bell:
    """Wakes a thread of another process; rung once or often, it wakes once."""

    def __init__(self) -> None:
        if not hasattr(os, "eventfd"):
            raise RunError("lanes need Linux: they wake each other by eventfd, which this system does not have")
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)

    def ring(self) -> None:
        """Wake who waits, or who will."""
        os.eventfd_write(self._fd, 1)

    def wait(self, timeout_s: float) -> None:
        """Wait until it rings, or for so long."""
        if self._poll.poll(timeout_s * 1000):
            with suppress(BlockingIOError):
                os.eventfd_read(self._fd)

    def reset(self) -> None:
        """Forget that it rang."""
        self.wait(0)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._fd)


class Path(Protocol):
    """What takes messages from a sender to a receiver."""

    def offer(self, message: Message) -> bool:
        """Take a message if there is room for it now."""

    def push(self, message: Message) -> bool:
        """Take as much of a message as there is room for; return whether it is through. To be called until it is."""

    def next_block(self) -> int:
        """Return the block of the next message, -1 if it is of none, `NO_BLOCK` while there is no message."""

    def take(self) -> Message | None:
        """Return the next message, or None if it is not there yet."""

    def waiting(self) -> int:
        """Return how many records are on their way."""

    def reset(self) -> None:
        """Be empty, once neither side is at work."""


class Ring:
    """A path between two processes; made before they part."""

    def __init__(self, data: Bell, room: Bell, capacity: int = CAPACITY) -> None:
        """Take the bell of the receiver, and that of the sender."""
        self._data, self._room, self._capacity = data, room, capacity
        shared = mmap.mmap(-1, _COUNTERS + capacity)  # pages are had when they are first written
        self._counters = np.frombuffer(shared, np.int64, _COUNTERS // 8)
        self._bytes = np.frombuffer(shared, np.uint8, capacity, _COUNTERS)
        self.reset()

    def reset(self) -> None:
        """Be empty, once neither side is at work."""
        self._counters[:] = 0
        self._rest: Array | None = None  #: what is still to be written of a message
        self._header: tuple[int, int, int, int, int] | None = None  #: of the message that is being read
        self._frame = np.empty(0, np.uint8)
        self._frame_at = 0

    def offer(self, message: Message) -> bool:
        """Take a message if all of it fits now."""
        pieces = _encoded(message)
        if self._capacity - self._used() < sum(map(len, pieces)):
            return False
        self._write(pieces)
        self._note_sent(message)
        return True

    def push(self, message: Message) -> bool:
        """Take what fits of a message that may be larger than the ring."""
        rest = np.concatenate(_encoded(message)) if self._rest is None else self._rest
        fits = min(len(rest), self._capacity - self._used())
        self._write([rest[:fits]])
        self._rest = rest[fits:] if fits < len(rest) else None
        if self._rest is not None:
            if fits:
                self._data.ring()
            return False
        self._note_sent(message)
        return True

    def next_block(self) -> int:
        """Return the block of the next message, whether all of that is there or not."""
        header = self._next_header()
        return NO_BLOCK if header is None else header[0]

    def _next_header(self) -> tuple[int, int, int, int, int] | None:
        if self._header is None and self._used() >= _HEADER.size:
            header = np.empty(_HEADER.size, np.uint8)
            self._read(header)
            self._header = _HEADER.unpack(header.data)
            self._frame, self._frame_at = np.empty(self._header[4], np.uint8), 0
        return self._header

    def take(self) -> Message | None:
        """Return the next message, as soon as all of it is there."""
        header = self._next_header()
        if header is None:
            return None
        missing = len(self._frame) - self._frame_at
        if missing:
            there = min(missing, self._used())
            self._read(self._frame[self._frame_at : self._frame_at + there])
            self._frame_at += there
            self._room.ring()
            if there < missing:
                return None
        else:
            self._room.ring()
        block, whole, watermark, records, _ = header
        self._header = None
        self._counters[_RECORDS_OUT] += records
        if not records:
            return Message(None, watermark, block, bool(whole))
        _, length = PREFIX.unpack_from(self._frame.data)
        return Message(unpack(self._frame[PREFIX.size :], length), watermark, block, bool(whole))

    def waiting(self) -> int:
        """Return how many records are on their way."""
        return int(self._counters[_RECORDS_IN] - self._counters[_RECORDS_OUT])

    def _note_sent(self, message: Message) -> None:
        self._counters[_RECORDS_IN] += message.records
        self._data.ring()

    def _used(self) -> int:
        used = int(self._counters[_WRITTEN] - self._counters[_READ])
        _fence()
        return used

    def _write(self, pieces: list[Array]) -> None:
        end = int(self._counters[_WRITTEN])
        for piece in pieces:
            at = end % self._capacity
            first = min(len(piece), self._capacity - at)
            self._bytes[at : at + first] = piece[:first]
            if first < len(piece):
                self._bytes[: len(piece) - first] = piece[first:]
            end += len(piece)
        _fence()
        self._counters[_WRITTEN] = end  # last: what it counts must be there

    def _read(self, into: Array) -> None:
        at = int(self._counters[_READ]) % self._capacity
        first = min(len(into), self._capacity - at)
        into[:first] = self._bytes[at : at + first]
        into[first:] = self._bytes[: len(into) - first]
        _fence()
        self._counters[_READ] += len(into)


class Shortcut:
    """A path within one lane: messages are handed over as they are."""

    def __init__(self, data: Bell, room: Bell, capacity: int = CAPACITY) -> None:
        self._data, self._room, self._capacity = data, room, capacity
        self.reset()

    def reset(self) -> None:
        """Be empty, once nobody is at work."""
        self._messages: deque[Message] = deque()
        self._in = self._out = 0  #: bytes

    def offer(self, message: Message) -> bool:
        """Take a message unless too much is on its way."""
        return self.push(message)

    def push(self, message: Message) -> bool:
        """Take a message unless too much is on its way; one at least always fits."""
        if self._messages and self._in - self._out > self._capacity:
            return False
        self._in += _size(message)
        self._messages.append(message)
        self._data.ring()
        return True

    def next_block(self) -> int:
        """Return the block of the next message."""
        return self._messages[0].block if self._messages else NO_BLOCK

    def take(self) -> Message | None:
        """Return the next message."""
        if not self._messages:
            return None
        message = self._messages.popleft()
        self._out += _size(message)
        self._room.ring()
        return message

    def waiting(self) -> int:
        """Return how many records are on their way."""
        return sum(message.records for message in list(self._messages))


def _size(message: Message) -> int:
    return 0 if message.batch is None else message.batch.nbytes


def _encoded(message: Message) -> list[Array]:
    batch = message.batch
    frame = pieces_of(batch) if batch is not None and batch.length else []
    records, size = message.records if frame else 0, sum(map(len, frame))
    header = _HEADER.pack(message.block, message.whole, message.watermark, records, size)
    return [np.frombuffer(header, np.uint8), *frame]


_fenced = threading.Lock()


def _fence() -> None:
    """Keep what was read and written before from being seen after what follows, on any processor.

    Nothing passes the end of the first hold downwards, nor the beginning of the second upwards. Python has no barrier of
    its own; this one costs some 0.1 µs for a message.
    """
    with _fenced:
        pass
    with _fenced:
        pass
