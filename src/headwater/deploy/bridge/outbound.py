"""What one end of a bridge has to send: messages gathered, numbered and kept, and how far they may go."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from headwater.data.batch import NO_WATERMARK, Batch, concat_batches
from headwater.data.frames import pack, unpack_frame
from headwater.deploy.bridge.buffer import Buffer, LogBuffer
from headwater.deploy.bridge.messages import Message
from headwater.deploy.bridge.protocol import Sending
from headwater.errors import InputError

log = logging.getLogger(__name__)

_MOST_RECORDS = 4000  #: of small batches that go as one message
_MOST_BYTES = 2**20  #: of records that wait to be gathered, before who writes gathers them
_SEND_BYTES = 2**18  #: handed to the network at once
_AGAIN_S = 0.2  #: before a disk that has no room is tried again
_QUIET_S = 30.0  #: between two warnings


class Outbound:
    """Takes records from the flow, and hands out messages for the network; safe for both at once.

    Small batches that wait together become one message. With `parts` a message may go when its part is committed; without,
    at once. `limit_bytes` is the room there is: `throttle` is told how much of it is taken, so that sources can be held.
    """

    def __init__(self, bridge: str, buffer: Buffer, *, parts: bool, limit_bytes: int, priority: int = 0) -> None:
        self._buffer, self._parts, self._limit, self.priority = buffer, parts, limit_bytes, priority
        self._lock = threading.RLock()
        self._pending: list[Batch] = []
        self._pending_bytes = 0
        self._ends: dict[int, int] = {}  #: the number behind each part that has ended
        safe = buffer.released if isinstance(buffer, LogBuffer) else 0
        end = buffer.part_end if parts and isinstance(buffer, LogBuffer) else buffer.end
        self.machine = Sending(bridge, life=buffer.life, began=buffer.began, durable=buffer.durable, safe=safe, end=end)
        self.taken = 0  #: records that were given to it
        self._warned_s = -_QUIET_S
        self.wake: Callable[[], None] = lambda: None  #: called when there is something to send
        self.throttle: Callable[[float], None] = lambda share: None
        self.pause: Callable[[float], None] = time.sleep

    # -- for the flow -------------------------------------------------------------------------------------------------

    def put(self, message: Batch) -> None:
        """Take records, or a word about event time."""
        with self._lock:
            self._pending.append(message)
            self._pending_bytes += message.nbytes
            self.taken += message.length
            is_much = self._pending_bytes > min(_MOST_BYTES, self._limit // 8)
        if is_much:
            self.gather()
        self.wake()

    def gather(self) -> None:
        """Number and keep what waits; while the disk has no room for it, this waits."""
        while not self._gathered():
            self.pause(_AGAIN_S)  # without the lock: what the receiver has meanwhile makes room
        self._tell_throttle()

    def prepare(self, part: int) -> None:
        """End a part: what was put since the last is safe, and goes once the part is committed."""
        self.gather()
        with self._lock:
            assert isinstance(self._buffer, LogBuffer)
            self._ends[part] = self._buffer.mark(part)

    def commit(self, part: int) -> None:
        """Let all parts up to this one go."""
        with self._lock:
            ended = [each for each in self._ends if each <= part]
            self.machine.end = max([self.machine.end, *(self._ends.pop(each) for each in ended)])
        self.wake()

    def is_done(self) -> bool:
        """Tell whether the receiver has everything for good."""
        with self._lock:
            kept, _ = self._buffer.read(self.machine.safe, self._buffer.end, 1)
            return not self._pending and not kept

    def account(self) -> dict[str, Any]:
        """Return what became of the records, for a report."""
        with self._lock:
            dropped = self._buffer.dropped if isinstance(self._buffer, LogBuffer) else 0
            waiting = max(0, self._buffer.end - self.machine.safe)
            return {"taken": self.taken, "messages_waiting": waiting, "bytes_kept": self.nbytes, "dropped": dropped}

    def unsafe_records(self) -> int:
        """Return how many records the receiver does not have for good."""
        with self._lock:
            kept, _ = self._buffer.read(self.machine.safe, self._buffer.end, 2**62)
            return sum(unpack_frame(bytes(each.frame)).length for each in kept)

    @property
    def nbytes(self) -> int:
        """Bytes that wait or are kept."""
        return self._buffer.nbytes + self._pending_bytes

    def close(self) -> None:
        """Leave; what is on disk stays there."""
        with self._lock:
            self._buffer.close()

    # -- for the network ----------------------------------------------------------------------------------------------

    def connected(self, now_s: float) -> list[Message]:
        """Greet the receiver."""
        with self._lock:
            return self.machine.connected(now_s)

    def heard(self, message: Message, now_s: float) -> list[Message]:
        """Take what the receiver says; forget what it has for good."""
        with self._lock:
            answers = self.machine.heard(message, now_s)
            self._buffer.release(self.machine.safe)
        self._tell_throttle()
        return answers

    def next(self, most_bytes: int | None = None) -> list[Message]:
        """Return messages to be sent now, about so many bytes, or as many as the network takes at once."""
        with self._lock:
            if not self._parts:
                self._gathered()
                self.machine.end = self._buffer.end
            found: list[Message] = []
            while not found and (wants := self.machine.wants):
                start = self.machine.next
                kept, reached = self._buffer.read(
                    start, self.machine.end, min(wants, _SEND_BYTES if most_bytes is None else most_bytes)
                )
                found += [self.machine.send(*each) for each in kept]
                self.machine.skip(reached)  # not every number has a message
                if self.machine.next == start:
                    break  # a disk that cannot be read now
        return found

    def _gathered(self) -> bool:
        """Number and keep what waits; small batches become one message. False if the disk has no room for all of it."""
        with self._lock:
            waiting, self._pending, self._pending_bytes = _grouped(self._pending), [], 0
            for at, group in enumerate(waiting):
                message = concat_batches(group)
                frame = pack(message)
                try:
                    self._buffer.append(frame, records=message.length, priority=self.priority)
                except InputError as error:
                    self._pending = [batch for rest in waiting[at:] for batch in rest]
                    self._pending_bytes = sum(batch.nbytes for batch in self._pending)
                    self._warn(error)
                    return False
        return True

    def _warn(self, error: InputError) -> None:
        if time.monotonic() - self._warned_s > _QUIET_S:
            self._warned_s = time.monotonic()
            log.warning("bridge %s waits: %s", self.machine.bridge, error)

    def _tell_throttle(self) -> None:
        self.throttle(self.nbytes / self._limit)


def _grouped(pending: list[Batch]) -> list[list[Batch]]:
    """Return what goes together as one message: neighbouring batches up to a size, and each word about time alone."""
    groups: list[list[Batch]] = []
    size = 0
    for message in pending:
        is_word = message.watermark > NO_WATERMARK
        if not groups or is_word or size + message.length > _MOST_RECORDS:
            groups.append([])
            size = 0
        groups[-1].append(message)
        size = _MOST_RECORDS if is_word else size + message.length
    return groups
