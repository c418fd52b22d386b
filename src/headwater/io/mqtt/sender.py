"""What goes out on one connection: single packets first, then the client's own, as far as the network takes them."""

from __future__ import annotations

import time
from collections import deque

from headwater.io.mqtt.client import Client
from headwater.io.mqtt.transport import Transport


class Sender:
    """Sends without waiting; a packet that went out in part is finished before another begins."""

    def __init__(self, transport: Transport, client: Client) -> None:
        self._transport, self._client = transport, client
        self._single: deque[memoryview] = deque()  # packets that go before the client's next piece
        self._refused_single: bool | None = None  # of which kind the piece was that the network took nothing of
        self.open = False  #: whether the client may send: not before the broker let us in
        self.blocked = False  #: the network takes no more for now
        self.sent_s = time.monotonic()  #: when something last went out

    def put(self, data: bytes) -> None:
        """Have whole packets go out before whatever the client has to send."""
        if data:
            self._single.append(memoryview(data))

    def flush(self) -> None:
        """Send what there is, as far as it goes at once."""
        while not self.blocked and self._send_piece():
            pass

    def _send_piece(self) -> bool:
        """Send a piece or the rest of one; tell whether there may be more."""
        # TLS has encrypted a part of a piece that it took nothing of, and has to be given the same again
        single = self._refused_single
        if single is None:
            single = bool(self._single) and not self._client.midway
        piece = self._single[0] if single else self._client.next_piece() if self.open else None
        if not piece:
            return False
        count = self._transport.send(piece)
        self.sent_s = time.monotonic()
        self.blocked = count < len(piece)
        self._refused_single = None if count else single
        if not single:
            self._client.on_sent(count)
        elif self.blocked:
            self._single[0] = piece[count:]
        else:
            self._single.popleft()
        return True
