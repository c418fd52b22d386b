"""What a connection asks of who uses it: a reader or a writer."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headwater.io.mqtt.packets import Welcome
from headwater.io.mqtt.stream import Received


class Client(Protocol):
    """A reader or a writer; everything is called under the connection's lock, most of it by the connection's thread."""

    states: NDArray[np.uint8]  #: what is known of packet numbers; see `scan`

    def connected(self, welcome: Welcome) -> bytes:
        """Hear that the broker is there; return what to send first."""

    def received(self, received: Received) -> None:
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
