"""A connection to an MQTT broker that comes back by itself."""

from __future__ import annotations

import logging
import random
import select
import socket
import ssl
import time
from collections import deque
from contextlib import suppress
from threading import Condition, Event, RLock, Thread
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headwater.errors import InputError
from headwater.io.mqtt import packets
from headwater.io.mqtt.address import Address
from headwater.io.mqtt.packets import Hello, ProtocolError, Welcome
from headwater.io.mqtt.reasons import is_passing, refusal
from headwater.io.mqtt.stream import Received, Stream
from headwater.io.mqtt.transport import Transport, tls_context

log = logging.getLogger(__name__)

_LONGEST_PAUSE_S = 30.0
_SAY_EVERY_S = 60.0
_DIAL_S = 5.0  # to reach the broker, and again to be let in
_CLOSE_S = 2.0
_QUIET_S = 60.0  # between two looks at a connection that nobody keeps alive
_FEW = 200  # messages that came at once: below, it is worth while to wait for more


class Client(Protocol):
    """What a connection is for: a reader or a writer. All is called under the connection's lock, by its thread."""

    states: NDArray[np.uint8]  #: what is known of packet numbers; see `scan`

    def connected(self, welcome: Welcome) -> bytes:
        """Hear that the broker is there; return what to send first."""

    def received(self, received: Received) -> None:
        """Take messages and acknowledgements."""

    def answered(self, code: int) -> None:
        """Hear what the broker says to SUBSCRIBE."""

    def room(self) -> int:
        """Return how many messages may come; 0 stops receiving until `resume`."""

    def next_piece(self) -> memoryview | None:
        """Return whole packets to send, from where `sent` left off."""

    @property
    def midway(self) -> bool:
        """Whether a packet of the piece went out in part."""

    def sent(self, count: int) -> None:
        """Hear how many bytes of the piece went out."""

    def disconnected(self) -> None:
        """Hear that the connection is lost."""


class Connection:
    """Keeps a client connected, in a thread of its own, and says so once when it cannot be.

    The pause between attempts doubles from `retry_s` to half a minute, each a little different, so that a thousand
    devices do not come back at once. A refusal that trying again will not change, such as a wrong password, is kept in
    `refused`. Sending never waits: what the network does not take at once goes out when it does.
    """

    def __init__(
        self, address: Address, hello: Hello, client: Client, *, retry_s: float, linger_s: float = 0, anew: bool = False
    ) -> None:
        self._address, self._hello, self._client = address, hello, client
        self._retry_s, self._linger_s = retry_s, linger_s
        self._anew = anew  # the session that may be there is not ours: begin without it
        self._tls = tls_context(address)
        self.changed = Condition(RLock())  #: guards everything, and tells of each change
        self.connected = Event()
        self.refused: str | None = None
        self.broken: Exception | None = None  #: what we did wrong ourselves: nothing will follow
        self.closing = False
        self.largest = packets.LARGEST  #: bytes of a packet that the broker takes
        self._said_s: float | None = None  # when trouble was last logged
        self._transport: Transport | None = None
        self._control: deque[memoryview] = deque()  # packets that go before the client's next piece
        self._blocked = False  # the network takes no more for now
        self._sent_s = 0.0
        self._waker, self._awake = socket.socketpair()
        self._awake.setblocking(False)
        self._thread = Thread(target=self._run, name="headwater-mqtt", daemon=True)

    def start(self) -> None:
        """Connect in the background."""
        self._thread.start()

    def check(self) -> None:
        """Raise InputError if the broker refused us for good, or nothing will come any more."""
        if self.broken is not None:
            raise InputError(f"the connection to broker {self._address} broke: {self.broken}")
        if self.refused is not None:
            raise InputError(
                f"broker {self._address} refuses the connection: {self.refused}; "
                "are user and password right, and may this client connect?"
            )

    def send(self, data: bytes | memoryview) -> None:
        """Send whole packets before whatever the client has to send; forgotten when the connection is lost."""
        with self.changed:
            if self._transport is not None and len(data):
                self._control.append(memoryview(data))
                self.flush()

    def flush(self) -> None:
        """Send what there is, as far as it goes at once."""
        with self.changed:
            try:
                while self._transport is not None and not self._blocked:
                    if not self._send_once(self._transport):
                        return
            except OSError as error:
                log.debug("cannot send to %s: %s", self._address, error)
                self._blocked = True  # who receives learns of it too, and mends it
            except Exception as error:
                self._broke(error)
            self.wake()

    def wake(self) -> None:
        """Let the thread look again: there is room, or something to send, or an end."""
        with suppress(OSError):
            self._waker.send(b"\0")

    def close(self, *, forget: bool = False) -> None:
        """Say goodbye and stop; with `forget` the broker drops the session."""
        with self.changed:
            if self.closing:
                return
            self.closing = True
            self.send(packets.goodbye(self._hello.version, forget=forget))
            self.changed.notify_all()
            self.wake()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_S)  # who dials may take longer, and closes what comes of it
        if forget and self._hello.keep_session and self._hello.version < 5 and not self.refused:
            with suppress(OSError, ProtocolError):
                self._erase()

    def _send_once(self, transport: Transport) -> bool:
        """Send a piece or the rest of one; tell whether there may be more."""
        own = bool(self._control) and not self._client.midway
        piece = self._control[0] if own else self._client.next_piece() if self.connected.is_set() else None
        if not piece:
            return False
        count = transport.send(piece)
        self._sent_s = time.monotonic()
        self._blocked = count < len(piece)
        if not own:
            self._client.sent(count)
        elif count == len(piece):
            self._control.popleft()
        else:
            self._control[0] = piece[count:]
        return True

    def _run(self) -> None:
        try:
            pause_s = self._retry_s
            while not self.closing:
                began_s = time.monotonic()
                self._live_once()
                if time.monotonic() - began_s > 2 * pause_s + 1:
                    pause_s = self._retry_s
                with self.changed:
                    self.changed.wait_for(lambda: self.closing, pause_s * random.uniform(0.5, 1))
                pause_s = max(self._retry_s, min(2 * pause_s, _LONGEST_PAUSE_S))
        except Exception as error:
            self._broke(error)
        finally:
            self._waker.close()
            self._awake.close()

    def _broke(self, error: Exception) -> None:
        """Say what is our own fault, and let the client hear of it."""
        log.error("the connection to %s broke", self._address, exc_info=error)
        with self.changed:
            self.broken = error
            self.changed.notify_all()

    def _live_once(self) -> None:
        """Connect and serve until the connection is lost, and say why it was."""
        try:
            self._dial()
        except (OSError, ProtocolError) as error:
            if isinstance(error, ssl.SSLCertVerificationError):
                self.refused = f"its certificate is not trusted ({error.verify_message})"
            self._say(f"cannot reach broker {self._address}: {error}; trying again")
            return
        reason = "closed"
        try:
            self._serve()
        except (OSError, ProtocolError) as error:
            reason = str(error)
        was_connected = self.connected.is_set()
        with self.changed:
            self._disconnect()
        if was_connected or not self.refused:
            self._say(f"connection to broker {self._address} is lost: {reason}; trying again")

    def _dial(self) -> None:
        if self._anew and self._hello.version < 5:  # in MQTT 5 one CONNECT begins anew and keeps a session from there
            self._erase()
        transport = Transport(self._address, self._tls, _DIAL_S)
        with self.changed:
            self._transport, self._blocked = transport, False
            self._stream = Stream(self._hello.version, self._hello.largest, self._hello.aliases, self._client.states)
            self.send(self._hello.packet(clean=self._anew))

    def _erase(self) -> None:
        """Let the broker forget our session: MQTT 3.1.1 has no other way than to come with a new one, and leave."""
        transport = Transport(self._address, self._tls, _DIAL_S)
        try:
            hello = Hello(
                self._hello.client_id, 4, False, 0, username=self._hello.username, password=self._hello.password
            )
            transport.send(memoryview(hello.packet(clean=True)))
            poll = select.poll()
            poll.register(transport, select.POLLIN)
            answer = memoryview(bytearray(4))
            end_s, got = time.monotonic() + _DIAL_S, 0
            while got < 4 and time.monotonic() < end_s:
                poll.poll(1000 * _DIAL_S)
                got += transport.receive_into(answer[got:]) or 0
            transport.send(memoryview(packets.goodbye(4)))
        finally:
            transport.close()

    def _serve(self) -> None:
        """Receive and send until something ends it."""
        transport, stream = self._transport, self._stream
        assert transport is not None
        poll = select.poll()
        poll.register(self._awake, select.POLLIN)
        now = time.monotonic()
        self._heard_s, self._deadline_s, self._pinged = now, now + _DIAL_S, False
        self._keep_alive_s = float(self._hello.keep_alive_s)
        while not self.closing:
            with self.changed:
                room = self._client.room()
                wanted = (select.POLLIN if room else 0) | (select.POLLOUT if self._blocked else 0)
            poll.register(transport, wanted)
            again = bool(room) and stream.has_more
            happened = poll.poll(0 if again else 1000 * (self._keep_alive_s or _QUIET_S) / 4)
            if any(number == self._awake.fileno() for number, _ in happened):
                with suppress(BlockingIOError):
                    self._awake.recv(4096)
            if room and (again or any(number == transport.fileno() for number, _ in happened)):
                if stream.receive(transport):
                    self._heard_s, self._pinged = time.monotonic(), False
                if 0 < self._take(stream) < _FEW and self._linger_s:
                    self._collect()
            with self.changed:
                if self._blocked:
                    self._blocked = False
                    self.flush()
            self._keep_alive(bool(room))

    def _take(self, stream: Stream) -> int:
        """Hand on what was received, up to what breaks the rules; return how many messages there were."""
        with self.changed:
            messages = 0
            while True:
                received, control = stream.take(self._client.room())
                if received is not None:
                    messages += len(received)
                    self._client.received(received)
                if control is not None:
                    self._handle(*control)
                elif received is None:
                    self.changed.notify_all()
                    return messages

    def _handle(self, kind: int, body: bytes) -> None:
        """Take one packet that is neither message nor acknowledgement."""
        version = self._hello.version
        if kind == packets.CONNACK:
            self._let_in(packets.welcome(body, version))
        elif kind == packets.SUBACK:
            self._client.answered(packets.granted(body, version))
        elif kind == packets.DISCONNECT and version == 5:
            raise ConnectionError(f"the broker left: {packets.farewell(body)}")
        elif kind not in (packets.PINGRESP, packets.UNSUBACK):
            raise ProtocolError(f"the broker sent a packet of kind {kind} that we did not ask for")

    def _let_in(self, welcome: Welcome) -> None:
        if welcome.code:
            why = refusal(self._hello.version, welcome.code) + (f" ({welcome.said})" if welcome.said else "")
            if not is_passing(self._hello.version, welcome.code):
                self.refused = why
            self._say(f"broker {self._address} refuses the connection: {why}")
            raise ConnectionError(why)
        if self._said_s is not None:
            log.warning("broker %s is there again", self._address)
        self._said_s, self.refused, self._anew = None, None, False
        self.largest = welcome.largest
        if welcome.keep_alive_s is not None:
            self._keep_alive_s = float(welcome.keep_alive_s)
        first = self._client.connected(welcome)
        self.connected.set()
        self.send(first)
        self.flush()

    def _collect(self) -> None:
        """Let messages gather for a moment, so that few of them do not make many batches."""
        poll = select.poll()
        poll.register(self._awake, select.POLLIN)
        poll.poll(1000 * self._linger_s)

    def _keep_alive(self, receiving: bool) -> None:
        now, quiet_s = time.monotonic(), self._keep_alive_s / 2
        if not self.connected.is_set():
            if now > self._deadline_s:
                raise ConnectionError("the broker does not answer")
        elif quiet_s and receiving and self._pinged and now - self._heard_s > 2 * self._keep_alive_s:
            raise ConnectionError("the broker does not answer")
        elif (quiet_s and now - self._sent_s > quiet_s) or (
            receiving and not self._pinged and now - self._heard_s > quiet_s
        ):
            self._pinged = True
            self.send(packets.PING)

    def _disconnect(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()
        self._control.clear()
        self.connected.clear()
        self._client.disconnected()
        self.changed.notify_all()

    def _say(self, message: str) -> None:
        """Log at most once a minute: a broker may be away for days."""
        now = time.monotonic()
        if not self.closing and (self._said_s is None or now - self._said_s >= _SAY_EVERY_S):
            self._said_s = now
            log.warning(message)
