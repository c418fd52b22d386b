"""What one site has to send of a stream: messages gathered, numbered and kept once, and how far they may go.

However many sites it goes to, each has a `Sender`, which knows how far that one has come; what all of them have for good is
forgotten.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from headwater.clock import now_ns
from headwater.data.batch import Batch, concat_batches
from headwater.data.frames import pack, unpack_frame
from headwater.deploy.bridge.arrivals import is_word
from headwater.deploy.bridge.buffer import Buffer, LogBuffer
from headwater.deploy.bridge.messages import Hello, Message
from headwater.deploy.bridge.protocol import Sending
from headwater.errors import InputError

log = logging.getLogger(__name__)

_MOST_RECORDS = 4000  #: of small batches that go as one message
_MOST_BYTES = 2**20  #: of records that wait to be gathered, before who writes gathers them
_SEND_BYTES = 2**18  #: handed to the network at once
_AGAIN_S = 0.2  #: before a disk that has no room is tried again
_QUIET_S = 30.0  #: between two warnings


class Outbound:
    """Takes records from the flow, for its senders to hand out; safe for all of them at once.

    Small batches that wait together become one message. With `parts` a message may go when its part is committed; without,
    at once. `limit_bytes` is the room there is: `throttle` is told how much of it is taken, so that sources can be held,
    unless it `holds` none, since the buffer drops what is too much.
    """

    def __init__(self, buffer: Buffer, *, parts: bool, limit_bytes: int, priority: int = 0, holds: bool = True) -> None:
        self.buffer, self.parts, self._limit, self.priority, self._holds = buffer, parts, limit_bytes, priority, holds
        self.lock = threading.RLock()
        self._pending: list[Batch] = []
        self._pending_bytes = 0
        self._ends: dict[int, int] = {}  #: the number behind each part that has ended
        self._released = buffer.released if isinstance(buffer, LogBuffer) else 0
        #: the number behind the last message that may be sent
        self.end = buffer.part_end if parts and isinstance(buffer, LogBuffer) else buffer.end
        self._senders: list[Sender] = []
        self.taken = 0  #: records that were given to it
        self._taken_in_parts = 0  #: of which so many are in parts that have ended
        self._warned_s = -_QUIET_S
        self.throttle: Callable[[float], None] = lambda share: None
        self.pause: Callable[[float], None] = time.sleep

    def sender(self, bridge: str) -> Sender:
        """Return what sends to one site, from the oldest message on that is kept, or from where that site says."""
        with self.lock:
            sender = Sender(self, bridge, self._released)
            self._senders.append(sender)
            return sender

    def drop(self, sender: Sender) -> None:
        """Send to a site no more: what it has not had is kept for the others alone."""
        with self.lock:
            self._senders = [each for each in self._senders if each is not sender]
        self.release()

    # -- for the flow -------------------------------------------------------------------------------------------------

    def put(self, message: Batch) -> None:
        """Take records, or a word about event time."""
        with self.lock:
            self._pending.append(message)
            self._pending_bytes += message.nbytes
            self.taken += message.length
            is_much = self._pending_bytes > min(_MOST_BYTES, self._limit // 8)
        if is_much:
            self.gather()
        if not self.parts:
            self._wake()

    def gather(self) -> None:
        """Number and keep what waits; while the disk has no room for it, this waits."""
        while not self.gathered():
            self.pause(_AGAIN_S)  # without the lock: what the receiver has meanwhile makes room
        self._tell_throttle()

    def prepare(self, part: int) -> None:
        """End a part: what was put since the last is safe, and goes once the part is committed."""
        self.gather()
        with self.lock:
            assert isinstance(self.buffer, LogBuffer)
            self._ends[part] = self.buffer.mark(part)
            self._taken_in_parts = self.taken

    def rollback(self) -> None:
        """Forget what was put since the last part ended."""
        with self.lock:
            assert isinstance(self.buffer, LogBuffer)
            self._pending, self._pending_bytes = [], 0
            self.buffer.void()
            self.taken = self._taken_in_parts

    def commit(self, part: int) -> None:
        """Let all parts up to this one go."""
        with self.lock:
            ended = [each for each in self._ends if each <= part]
            self.end = max([self.end, *(self._ends.pop(each) for each in ended)])
        self._wake()

    def is_done(self) -> bool:
        """Tell whether all receivers have everything for good."""
        with self.lock:
            return all(self.has_all(sender) for sender in self._senders)

    def has_all(self, sender: Sender) -> bool:
        """Tell whether one receiver has everything for good."""
        with self.lock:
            frames, _ = self.buffer.read(sender.machine.safe, self.buffer.end, 1)
            return not self._pending and not frames

    def account(self) -> dict[str, Any]:
        """Return what became of the records, for a report."""
        with self.lock:
            is_done = bool(self._senders) and self.is_done()  # not every number behind `_safe` has a message
            waiting, dropped = 0 if is_done else max(0, self.buffer.end - self._safe()), self.buffer.dropped
            return {"taken": self.taken, "messages_waiting": waiting, "bytes_kept": self.nbytes, "dropped": dropped}

    def unsafe_records(self) -> int:
        """Return how many records some receiver does not have for good."""
        with self.lock:
            frames, _ = self.buffer.read(self._safe(), self.buffer.end, 2**62)
            return sum(unpack_frame(bytes(each.frame)).length for each in frames)

    @property
    def nbytes(self) -> int:
        """Bytes that wait or are kept."""
        return self.buffer.nbytes + self._pending_bytes

    def close(self) -> None:
        """Leave; what is on disk stays there."""
        with self.lock:
            self.buffer.close()

    # -- for those who send -------------------------------------------------------------------------------------------

    def gathered(self) -> bool:
        """Number and keep what waits; small batches become one message. False if the disk has no room for all of it."""
        with self.lock:
            waiting, self._pending, self._pending_bytes = _grouped(self._pending), [], 0
            for at, group in enumerate(waiting):
                message = concat_batches(group)
                frame = pack(message)
                try:
                    self.buffer.append(frame, records=message.length, priority=self.priority)
                except InputError as error:
                    self._pending = [batch for rest in waiting[at:] for batch in rest]
                    self._pending_bytes = sum(batch.nbytes for batch in self._pending)
                    self._warn(error)
                    return False
        return True

    def release(self) -> None:
        """Forget what all receivers have for good; nothing, where nobody is sent anything for the time being."""
        with self.lock:
            if self._senders and self._safe() > self._released:
                self._released = self._safe()
                self.buffer.release(self._released)
        self._tell_throttle()

    def _safe(self) -> int:
        """Return the number before which all receivers have everything for good."""
        return min((sender.machine.safe for sender in self._senders), default=self._released)

    def _wake(self) -> None:
        for sender in self._senders:
            sender.wake()

    def _warn(self, error: InputError) -> None:
        if time.monotonic() - self._warned_s > _QUIET_S:
            self._warned_s = time.monotonic()
            bridges = ", ".join(sender.machine.bridge for sender in self._senders)
            log.warning("bridge %s waits: %s", bridges, error)

    def _tell_throttle(self) -> None:
        if self._holds:
            self.throttle(self.nbytes / self._limit)


class Sender:
    """Hands out the messages of an outbound stream for the network, to one receiver."""

    def __init__(self, outbound: Outbound, bridge: str, safe: int) -> None:
        buffer = outbound.buffer
        self._outbound = outbound
        self.machine = Sending(
            bridge, life=buffer.life, began=buffer.began, durable=buffer.durable, safe=safe, end=outbound.end
        )
        self.priority = outbound.priority
        self.wake: Callable[[], None] = lambda: None  #: called when there is something to send

    def connected(self, now_s: float) -> list[Message]:
        """Greet the receiver."""
        with self._outbound.lock:
            messages = self.machine.connected(now_s)
        return [each._replace(clock_ns=now_ns()) if isinstance(each, Hello) else each for each in messages]

    def heard(self, message: Message, now_s: float) -> list[Message]:
        """Take what the receiver says; forget what it, and all others, have for good."""
        with self._outbound.lock:
            answers = self.machine.heard(message, now_s)
        self._outbound.release()
        return answers

    def next(self, most_bytes: int | None = None) -> list[Message]:
        """Return messages to be sent now, about so many bytes, or as many as the network takes at once."""
        outbound, machine = self._outbound, self.machine
        with outbound.lock:
            if not outbound.parts:
                outbound.gathered()
                outbound.end = outbound.buffer.end
            machine.end = outbound.end
            messages: list[Message] = []
            while not messages and (wants := machine.wants):
                start = machine.next
                most = min(wants, _SEND_BYTES if most_bytes is None else most_bytes)
                frames, reached = outbound.buffer.read(start, machine.end, most)
                messages += [machine.send(*each) for each in frames]
                machine.skip(reached)  # not every number has a message
                if machine.next == start:
                    break  # a disk that cannot be read now
        return messages


def _grouped(pending: list[Batch]) -> list[list[Batch]]:
    """Return what goes together as one message: neighbouring batches up to a size, and each word about time alone."""
    groups: list[list[Batch]] = []
    size = 0
    for message in pending:
        alone = is_word(message)
        if not groups or alone or size + message.length > _MOST_RECORDS:
            groups.append([])
            size = 0
        groups[-1].append(message)
        size = _MOST_RECORDS if alone else size + message.length
    return groups
