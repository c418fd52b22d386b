"""What a connection hands to its client, a reader or a writer, and what it asks of it."""

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
        rows = slice(start, stop)
        arrived_ns = self.arrived_ns[rows]
        return ReceivedMessages(
            self.payloads[rows], self.topics[rows], self.numbers[rows], self.flags[rows], self.answers[:0], arrived_ns
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

    def on_connect(self, welcome: Welcome) -> bytes:
        """The broker has let us in; return what to send first."""

    def on_received(self, received: ReceivedMessages) -> None:
        """Messages and acknowledgements have come."""

    def on_suback(self, code: int) -> None:
        """The broker has answered SUBSCRIBE."""

    def room(self) -> int:
        """Return how many messages may come; 0 stops receiving until the connection is woken."""

    def next_piece(self) -> memoryview | None:
        """Return bytes to send, from where `on_sent` left off."""

    @property
    def midway(self) -> bool:
        """Whether a packet of the pieces went out in part."""

    def on_sent(self, count: int) -> None:
        """So many bytes of the piece went out."""

    def on_disconnect(self) -> None:
        """The connection is lost."""
