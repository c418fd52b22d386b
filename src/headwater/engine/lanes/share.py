"""A share: what one lane reads of a source whose ranges can be read side by side (`headwater.flow.ranges`).

A lane that has room takes the next range, the block, and moves the place that all share behind it. So a lane that has more
to do takes fewer; what was read before what is known by the numbers of the blocks.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct

import msgspec

from headwater.data.batch import NO_WATERMARK, Batch, concat_batches
from headwater.data.schema import Schema
from headwater.errors import RunError
from headwater.flow.endpoints import Reject, Source
from headwater.flow.ranges import Offset, RangeRequest, Ranges, Sizes, ranges_of

_NOTHING = Batch.of_watermark(NO_WATERMARK)
_ROOM = 2**16  #: bytes for an offset
_HEAD = Struct("<qq")  #: the number of the next block, and the bytes of the offset behind it
_RECORD_BYTES = 128  #: what a record of a file is taken to have, to read about as many as are asked for


class SharedPosition:
    """Where a source is to be read next, which all lanes share; opened before they part.

    The lock is one of the system: that of a lane that died is free. Each lane opens the file for itself. Locks of whole
    processes (lockf) are refused to two lanes of which each holds what the other waits for, as if that were a deadlock;
    but these are threads for different sources.
    """

    def __init__(self, start: Offset) -> None:
        self._start = start
        self._fd = -1
        self._own: tuple[int, int] | None = None  #: this process, and its own description of the file

    def open(self) -> None:
        """Make it one that processes share."""
        self._fd = os.memfd_create("headwater-lanes", os.MFD_CLOEXEC)
        os.ftruncate(self._fd, _ROOM)
        self._bytes = mmap.mmap(self._fd, _ROOM)
        self._put(0, self._start)

    def activity(self) -> tuple[int, float]:
        """Return how many blocks were handed out; what is read is in one, so that nothing else keeps the source busy."""
        return int(_HEAD.unpack_from(self._bytes)[0]), 0.0

    @contextmanager
    def lock(self) -> Iterator[Offset]:
        """Have the place for oneself, and know where it is."""
        fd = self._description()
        fcntl.flock(fd, fcntl.LOCK_EX)
        try:
            _, size = _HEAD.unpack_from(self._bytes)
            yield msgspec.json.decode(self._bytes[_HEAD.size : _HEAD.size + size])
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)

    def _description(self) -> int:
        """Return the file as this process has opened it: what a fork inherits has the lock in common."""
        if self._own is None or self._own[0] != os.getpid():
            self._own = os.getpid(), os.open(f"/proc/self/fd/{self._fd}", os.O_RDWR | os.O_CLOEXEC)
        return self._own[1]

    def move(self, to: Offset) -> int:
        """Move on, as one who holds it; return the number of the block that ends there."""
        block: int = _HEAD.unpack_from(self._bytes)[0]
        self._put(block + 1, to)
        return block

    def stay(self, at: Offset) -> None:
        """Tell the same place otherwise, as one who holds it."""
        self._put(_HEAD.unpack_from(self._bytes)[0], at)

    def _put(self, block: int, offset: Offset) -> None:
        data = msgspec.json.encode(offset)
        if _HEAD.size + len(data) > _ROOM:
            raise RunError(f"the place in a source is told in at most {_ROOM - _HEAD.size:,} bytes; got {len(data):,}")
        self._bytes[: _HEAD.size + len(data)] = _HEAD.pack(block, len(data)) + data

    def close(self) -> None:
        """Give back what was opened, once no lane reads."""
        if self._fd >= 0:
            self._bytes.close()
            os.close(self._fd)
            self._fd = -1
        if self._own is not None and self._own[0] == os.getpid():
            os.close(self._own[1])
        self._own = None


class Share:
    """The source as one lane reads it."""

    def __init__(self, source: Source, ranges: Ranges, place: SharedPosition) -> None:
        self.source, self.ranges, self.place = source, ranges, place

    @property
    def schema(self) -> Schema:
        """The columns of the records."""
        return self.source.schema

    def open(self, reject: Reject) -> ShareReader:
        """Start reading."""
        return ShareReader(self.ranges, self.place, reject)

    def __str__(self) -> str:
        return str(self.source)


class ShareReader:
    """Reads blocks that no other lane reads; the watermark of each is its number."""

    def __init__(self, ranges: Ranges, place: SharedPosition, reject: Reject) -> None:
        self._ranges, self._place, self._reject = ranges, place, reject

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        """Return the next block, about `limit` records, all at once: what is taken is not left half read."""
        self._ranges.sizes = _sizes(limit)
        with self._place.lock() as at:
            if at["ended"]:
                return None
            end = self._ranges.advance(at)
            block = self._place.move(end) if end != at else -1
        if block < 0:
            self._ranges.wait(at, timeout_s)
            return _NOTHING
        pieces = self._ranges.cut(at, end)
        batches = [batch for piece in pieces for batch in self._ranges.batches(piece, self._reject) if batch.length]
        if not batches:
            return Batch.of_watermark(block)
        whole = batches[0] if len(batches) == 1 else concat_batches(batches)
        return Batch(whole.columns, whole.length, whole.stamps, block)

    @property
    def start_anew(self) -> Callable[[], None] | None:
        """What has the clock go on from now, for all lanes; None for a source without one."""
        return self._start_anew if self._ranges.has_clock else None

    def _start_anew(self) -> None:
        with self._place.lock() as at:
            self._place.stay(self._ranges.anew(at))

    def close(self) -> None:
        """Nothing to release: each range is opened and closed by itself."""


def shared(source: Source) -> tuple[Ranges, SharedPosition] | None:
    """Return how a source is read side by side, and the place where that begins; None if it cannot be, or does not pay."""
    ranges = ranges_of(source, RangeRequest(_sizes(1), together=True))
    if ranges is None:
        return None
    start = ranges.start()
    return (ranges, SharedPosition(start)) if ranges.quick_to_cut else None


def _sizes(records: int) -> Sizes:
    return Sizes(1, batch_records=records, batch_bytes=records * _RECORD_BYTES)
