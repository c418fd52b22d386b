"""The bytes that come from a broker, cut into packets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headwater.clock import now_ns
from headwater.data.column import Text
from headwater.io.mqtt.packets import ProtocolError
from headwater.io.mqtt.scan import BROKEN, CONTROL, FULL, head, scan
from headwater.io.mqtt.transport import Transport

_FIRST_SIZE = 1 << 18  # bytes; the buffer grows with the packets that come
_NUMBERS = 1 << 16
_LONGEST_HEAD = 5


@dataclass(frozen=True, slots=True)
class Received:
    """Messages and acknowledgements that came together, in columns; see `scan`."""

    payloads: Text
    topics: Text
    numbers: NDArray[np.uint16]
    flags: NDArray[np.uint8]
    answers: NDArray[np.int64]
    arrived_ns: NDArray[np.int64]

    def rows(self, start: int, stop: int) -> Received:
        """Return some of the messages, without copying, and no answers."""
        cut = slice(start, stop)
        arrived_ns = self.arrived_ns[cut]
        return Received(
            self.payloads[cut], self.topics[cut], self.numbers[cut], self.flags[cut], self.answers[:0], arrived_ns
        )

    def at(self, rows: NDArray[np.int64]) -> Received:
        """Return the messages at these rows, and all answers."""
        texts = self.payloads.take(rows), self.topics.take(rows)
        return Received(*texts, self.numbers[rows], self.flags[rows], self.answers, self.arrived_ns[rows])

    def __len__(self) -> int:
        return len(self.flags)


Control = tuple[int, bytes]  #: a packet of another kind, and its body


def load_kernels() -> None:
    """Have what cuts packets ready, or compiled meanwhile, before the first of them comes."""
    nothing = np.empty(0, np.uint8)
    scan(nothing, 0, 0, 4, 0, 0, nothing, nothing, np.empty(0, np.int64))


class Stream:
    """What one connection brings; `states` is what is known of packet numbers, which outlives the connection.

    A packet's length is believed up to `largest`, and takes memory only as its bytes come.
    """

    def __init__(self, version: int, largest: int, aliases: int, states: NDArray[np.uint8]) -> None:
        self._version, self._largest, self._states = version, largest, states
        self._aliases, self._alias_sizes = np.zeros(aliases * _NUMBERS, np.uint8), np.zeros(aliases, np.int64)
        self._buffer = np.empty(_FIRST_SIZE, np.uint8)
        self._at = self._stop = 0  # what was received and not taken
        self._arrived_ns = 0
        self._error: ProtocolError | None = None
        self.has_more = False  #: whether there is something to take or to receive of which `poll` does not know

    def receive(self, transport: Transport) -> bool:
        """Take what the network has; tell whether that was anything."""
        came, view, self.has_more = False, self._make_room().data, False
        while self._stop < len(view):
            try:
                count = transport.receive_into(view[self._stop :])
            except OSError:
                if not came:
                    raise
                self.has_more = True  # first what came before the end
                break
            if count is None:
                break
            came, self._stop = True, self._stop + count
            if not transport.in_records:  # else a second look mostly finds nothing, and costs as much
                break
        self.has_more = self.has_more or self._stop == len(view)
        self._arrived_ns = now_ns()
        return came

    def take(self, room: int) -> tuple[Received | None, Control | None]:
        """Return the next run of messages and acknowledgements, at most `room`, and the packet behind them if it is another.

        Raises ProtocolError where the broker broke the rules, after what came before that.
        """
        if self._error is not None:
            raise self._error
        if self._at == self._stop:
            return None, None
        before = self._at
        self._at, why, *columns = scan(
            self._buffer, self._at, self._stop, self._version, self._largest, room,
            self._states, self._aliases, self._alias_sizes,
        )  # fmt: skip
        self.has_more = self.has_more or why == FULL
        payloads, payload_ends, topics, topic_ends, numbers, flags, answers = columns
        received = None
        if self._at > before:
            texts = Text(payloads, payload_ends), Text(topics, topic_ends)
            arrived_ns = np.full(len(flags), self._arrived_ns, np.int64)
            received = Received(*texts, numbers, flags, answers, arrived_ns)
        if why < 0:
            self._error = ProtocolError(f"the broker sent {BROKEN[why]}")
            return (received, None) if received is not None else self.take(room)
        return received, self._control() if why == CONTROL else None

    def _control(self) -> Control:
        kind = int(self._buffer[self._at]) >> 4
        length, body = head(self._buffer, self._at, self._stop)
        self._at = body + length
        return kind, self._buffer[body : self._at].tobytes()

    def _make_room(self) -> NDArray[np.uint8]:
        """Move what is left to the front; widen the buffer for a packet that fills it."""
        left = self._buffer[self._at : self._stop]
        if len(left) * 2 > len(self._buffer):
            wider = min(2 * len(self._buffer), max(self._largest + _LONGEST_HEAD, _FIRST_SIZE) + _FIRST_SIZE)
            self._buffer = np.empty(wider, np.uint8)
            self._buffer[: len(left)] = left
        elif self._at:
            self._buffer[: len(left)] = left.copy()
        self._at, self._stop = 0, len(left)
        return self._buffer
