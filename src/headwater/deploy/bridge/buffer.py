"""Where a sender keeps its messages until the receiver has them for good: in memory, or in a log on disk."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from struct import Struct
from typing import NamedTuple, Protocol
from uuid import uuid4

from headwater.data.frames import unpack_frame
from headwater.errors import InputError
from headwater.io.log import Bounds, Disk, Log

_RECENT_BYTES = 4 * 2**20  #: of the last messages, kept in memory too: those that are sent at once are not read back
#: how an entry of the log begins: a message; the end of a part; what is void; nothing, where another log had one of those
_FRAME, _PART, _VOID, _NOTHING = b"f", b"p", b"v", b"n"
_SEGMENT_BYTES = 2**20  #: of one file: the last is looked through each time that a part stops and goes on elsewhere
_NUMBER = Struct("<cq")
_NEVER_DROPPED = 254  #: the priority of what must stay where a full log drops the least important
_SHORT = 2**12  #: bytes of an entry that may be a word about event time, which has no records


class NumberedFrame(NamedTuple):
    """A message that is kept, under its number."""

    number: int
    frame: bytes | memoryview


class Buffer(Protocol):
    """Messages by growing numbers; not every number has one."""

    life: str  #: another one each time that it is opened
    began: int  #: the number at which it was opened
    durable: bool  #: whether what it has is there after a crash

    @property
    def end(self) -> int:
        """The number that the next message gets."""

    @property
    def nbytes(self) -> int:
        """Bytes that are kept."""

    @property
    def dropped(self) -> int:
        """Records that the bounds have cost."""

    def append(self, frame: bytes, *, records: int, priority: int = 0) -> None:
        """Keep a message."""

    def read(self, start: int, stop: int, most_bytes: int) -> tuple[list[NumberedFrame], int]:
        """Return messages from one number up to another, about so many bytes, and the number that was reached."""

    def release(self, before: int) -> None:
        """Forget what comes before a number."""

    def close(self) -> None:
        """Leave; what is on disk stays there."""


class _Recent:
    """The last messages, in order."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._frames: list[bytes] = []
        self.nbytes = 0

    def append(self, number: int, frame: bytes) -> None:
        self._numbers.append(number)
        self._frames.append(frame)
        self.nbytes += len(frame)

    def has(self, number: int) -> bool:
        """Tell whether all from a number on that there is is here."""
        return bool(self._numbers) and self._numbers[0] <= number

    def read(self, start: int, stop: int, most_bytes: int) -> tuple[list[NumberedFrame], int]:
        frames: list[NumberedFrame] = []
        size = 0
        for at in range(bisect_left(self._numbers, start), bisect_left(self._numbers, stop)):
            if size >= most_bytes:
                return frames, self._numbers[at]
            frames.append(NumberedFrame(self._numbers[at], self._frames[at]))
            size += len(self._frames[at])
        return frames, stop

    def cut(self, start: int) -> None:
        at = bisect_left(self._numbers, start)
        self.nbytes -= sum(map(len, self._frames[at:]))
        del self._numbers[at:], self._frames[at:]

    def forget(self, before: int) -> None:
        at = bisect_left(self._numbers, before)
        self.nbytes -= sum(map(len, self._frames[:at]))
        del self._numbers[:at], self._frames[:at]

    def shrink(self, most_bytes: int) -> list[bytes]:
        """Forget the oldest, so that no more bytes are left; return what that was."""
        at = 0
        while self.nbytes > most_bytes:
            self.nbytes -= len(self._frames[at])
            at += 1
        frames = self._frames[:at]
        del self._numbers[:at], self._frames[:at]
        return frames


class MemoryBuffer:
    """Keeps messages in memory: they survive a cut link, and not the process. Of more than `most_bytes` the oldest go."""

    durable = False
    began = 0

    def __init__(self, most_bytes: int | None = None) -> None:
        self.life = uuid4().hex
        self._recent, self._most = _Recent(), most_bytes
        self._end = 0
        self.dropped = 0  #: records that the bound has cost

    @property
    def end(self) -> int:
        """The number that the next message gets."""
        return self._end

    @property
    def nbytes(self) -> int:
        """Bytes that are kept."""
        return self._recent.nbytes

    def append(self, frame: bytes, *, records: int, priority: int = 0) -> None:
        """Keep a message."""
        self._recent.append(self._end, frame)
        self._end += 1
        if self._most is not None:
            self.dropped += sum(unpack_frame(each).length for each in self._recent.shrink(max(self._most, len(frame))))

    def read(self, start: int, stop: int, most_bytes: int) -> tuple[list[NumberedFrame], int]:
        """Return messages from one number up to another, about so many bytes, and the number that was reached."""
        return self._recent.read(start, stop, most_bytes)

    def release(self, before: int) -> None:
        """Forget what comes before a number."""
        self._recent.forget(before)

    def close(self) -> None:
        """Nothing to release."""


class LogBuffer:
    """Keeps messages in the durable log, through a crash too.

    A run with checkpoints writes in `parts`: `mark` ends one, and a log that is opened `after` a part holds nothing of those
    behind it: they were never sent, and are made once more. Who ends each part only when it counts, as Spark its
    micro-batches, says no part: it goes on behind the last one. Without parts all that was kept is there.
    """

    def __init__(
        self,
        folder: str | Path,
        bounds: Bounds | None = None,
        *,
        after: int | None = None,
        parts: bool = False,
        disk: Disk | None = None,
    ) -> None:
        self.durable = parts or after is not None
        every_s = None if self.durable else 1.0
        self._log = Log(folder, bounds, segment_bytes=_SEGMENT_BYTES, sync_every_s=every_s, disk=disk)
        self._consumer = self._log.consumer("bridge")
        self._recent = _Recent()
        self._void: list[tuple[int, int]] = []  #: numbers from one up to another that are not to be sent
        self._folder = str(folder)
        self._reader = self._log.reader(self._consumer.released, unsafe=True)
        self.life = uuid4().hex
        self.part = -1  #: the last that has ended
        self.last = b""  #: the message before its end, if that is short and kept: a word about event time, perhaps
        self.part_end = self._go_on(after)  #: the number behind it
        self.began = self._log.end
        self._behind = self.began  #: no message has this number, or one behind it
        self._clean = self.began  #: what comes from here on is of the part that has not ended

    @classmethod
    def laid(
        cls,
        folder: str | Path,
        first: int,
        end: int,
        messages: Sequence[NumberedFrame],
        part: int,
        disk: Disk | None = None,
    ) -> None:
        """Make a log of messages that another kept, under their numbers, up to the end of a part.

        It is safe on disk then, if `disk` sees to it.
        """
        log = Log(folder, first=first, disk=disk)
        consumer = log.consumer("bridge")
        try:
            consumer.release(first)
            frames = {each.number: each.frame for each in messages}
            for number in range(first, end):
                frame = frames.get(number)
                records = 0 if frame is None else unpack_frame(bytes(frame)).length
                entry = _NOTHING if frame is None else _FRAME + bytes(frame)
                at = log.append(entry, records=records, priority=0 if records else _NEVER_DROPPED)
                assert at == number, f"entry {number} of the log in {folder} came to be {at}"
            log.append(_NUMBER.pack(_PART, part), records=0, priority=_NEVER_DROPPED)
            log.sync()
            consumer.sync()
        finally:
            consumer.close()
            log.close()

    @property
    def end(self) -> int:
        """The number that the next message gets."""
        return self._log.end

    @property
    def released(self) -> int:
        """The number before which nothing is kept."""
        return self._consumer.released

    @property
    def nbytes(self) -> int:
        """Bytes on disk, what is released and not removed yet included."""
        return self._log.nbytes

    @property
    def dropped(self) -> int:
        """Records that the bounds have cost."""
        return self._log.dropped.total()

    def append(self, frame: bytes, *, records: int, priority: int = 0) -> None:
        """Keep a message; InputError where there is no room."""
        position = self._log.append(_FRAME + frame, records=records, priority=priority if records else _NEVER_DROPPED)
        if position is not None:
            self._behind = position + 1
            self._recent.append(position, frame)
            self._recent.shrink(_RECENT_BYTES)

    def mark(self, part: int) -> int:
        """End a part, safe on disk; return the number behind it."""
        self._log.append(_NUMBER.pack(_PART, part), records=0, priority=_NEVER_DROPPED)
        self._log.sync()
        self.part, self.part_end = part, self._log.end
        self._clean = self.part_end
        return self.part_end

    def void(self) -> None:
        """Have void what was kept since the last part ended."""
        end = self._log.end
        if self._clean < end:
            self._log.append(_NUMBER.pack(_VOID, self.part_end), records=0, priority=_NEVER_DROPPED)
            self._void.append((self.part_end, end))
            self._recent.cut(self.part_end)
            self._clean = self._log.end

    def read(self, start: int, stop: int, most_bytes: int) -> tuple[list[NumberedFrame], int]:
        """Return messages from one number up to another, about so many bytes, and the number that was reached."""
        if start >= self._behind:  # the usual case: marks alone follow, for which no file need be read
            return [], max(start, stop)
        if self._recent.has(start):
            return self._recent.read(start, stop, most_bytes)
        if self._reader.position != start:
            self._reader.seek(start)
        frames: list[NumberedFrame] = []
        size = 0
        while size < most_bytes and self._reader.position < stop:
            entries = self._reader.read(min(most_bytes - size, 2**18))
            if not entries:
                break
            for entry in entries:
                if entry.position < stop and entry.data[:1] == _FRAME and not self._is_void(entry.position):
                    frames.append(NumberedFrame(entry.position, memoryview(entry.data)[1:]))
                    size += len(entry.data)
        return frames, min(stop, self._reader.position)

    def release(self, before: int) -> None:
        """Forget what comes before a number."""
        self._recent.forget(before)
        if before > self._consumer.released:
            self._consumer.release(before)

    def close(self) -> None:
        """Have all safe on disk, and leave."""
        self._reader.close()
        self._consumer.close()
        self._log.close()

    def _is_void(self, number: int) -> bool:
        return any(start <= number < stop for start, stop in self._void)

    def _go_on(self, after: int | None) -> int:
        """Find where the part ends that a run goes on after, and have void what came behind it."""
        parts: dict[int, int] = {}
        last = b""
        last_of: dict[int, bytes] = {}
        while entries := self._reader.read():
            for entry in entries:
                if entry.data[:1] == _PART:
                    part = _NUMBER.unpack(entry.data)[1]
                    parts[part], last_of[part] = entry.position + 1, last
                elif entry.data[:1] == _VOID:
                    start = _NUMBER.unpack(entry.data)[1]
                    self._void.append((start, entry.position))
                    parts, last = {part: end for part, end in parts.items() if end <= start}, b""
                else:
                    last = entry.data[1:] if len(entry.data) < _SHORT else b""
        end, released = self._log.end, self._consumer.released
        if not self.durable:
            return end
        if after is None:
            after = max(parts, default=-1)
        if after in parts:
            part_end = parts[after]
        elif after < 0 or (released and all(part > after for part in parts)):
            part_end = released  # it is before the first; or all it had is released, and its mark is gone with that
        else:
            raise self._lost(after, max(parts, default=-1))
        if part_end < end:
            self._log.append(_NUMBER.pack(_VOID, part_end), records=0, priority=_NEVER_DROPPED)
            self._void.append((part_end, end))
        self.part, self.last = after, last_of.get(after, b"")
        return part_end

    def _lost(self, after: int, last: int) -> InputError:
        return InputError(
            f"cannot go on after part {after}: the buffer of a bridge in {self._folder} knows of none behind {last}; "
            "was the checkpoint copied in part?"
        )
