"""What a connection hands to who uses it, a reader or a writer, and what it asks of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headwater.data.column import Text
from headwater.io.mqtt.packets import Welcome


@dataclass(frozen=True, slots=True)
class ReceivedMessages:
    """Messages and acknowledgements that came together, in columns; see `scan`."""

    payloads: Text
    topics: Text
    numbers: NDArray[np.uint16]
    flags: NDArray[np.uint8]
    answers: NDArray[np.int64]
    arrived_ns: NDArray[np.int64]

    def rows(self, start: int, stop: int) -> ReceivedMessages:
        """Return some of the messages, without copying, and no answers."""
        cut = slice(start, stop)
        arrived_ns = self.arrived_ns[cut]
        return ReceivedMessages(
            self.payloads[cut], self.topics[cut], self.numbers[cut], self.flags[cut], self.answers[:0], arrived_ns
        )

    def at(self, rows: NDArray[np.int64]) -> ReceivedMessages:
        """Return the messages at these rows, and all answers."""
        texts = self.payloads.take(rows), self.topics.take(rows)
        return ReceivedMessages(*texts, self.numbers[rows], self.flags[rows], self.answers, self.arrived_ns[rows])

    @property
    def size(self) -> int:
        """Bytes of payloads and topics."""
        ends = self.payloads.offsets, self.topics.offsets
        return sum(int(each[-1]) - int(each[0]) for each in ends)

    def __len__(self) -> int:
        return len(self.flags)


class Client(Protocol):
    """A reader or a writer; everything is called under the connection's lock, most of it by the connection's thread."""

    states: NDArray[np.uint8]  #: what is known of packet numbers; see `scan`

    def connected(self, welcome: Welcome) -> bytes:
        """Hear that the broker is there; return what to send first."""

    def received(self, received: ReceivedMessages) -> None:
        """Take messages and acknowledgements."""

    def answered(self, code: int) -> None:
        """Hear what the broker says to SUBSCRIBE."""

    def room(self) -> int:
        """Return how many messages may come; 0 stops receiving until the connection is woken."""

    def next_piece(self) -> memoryview | None:
        """Return bytes to send, from where `sent` left off."""

    @property
    def midway(self) -> bool:
        """Whether a packet of the pieces went out in part."""

    def sent(self, count: int) -> None:
        """Hear how many bytes of the piece went out."""

    def disconnected(self) -> None:
        """Hear that the connection is lost."""
