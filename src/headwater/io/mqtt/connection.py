"""A connection to an MQTT broker that comes back by itself."""

from __future__ import annotations

import logging
import random
import select
import socket
import ssl
import time
from contextlib import suppress
from threading import Condition, Event, RLock, Thread

from headwater.data.jit import answering_at_once
from headwater.errors import InputError
from headwater.io.mqtt import packets
from headwater.io.mqtt.address import Address
from headwater.io.mqtt.client import Client
from headwater.io.mqtt.packets import Hello, ProtocolError, Welcome
from headwater.io.mqtt.reasons import advice, is_passing, refusal
from headwater.io.mqtt.sender import Sender
from headwater.io.mqtt.transport import Incoming, Transport, load_kernels, tls_context

log = logging.getLogger(__name__)

_LONGEST_PAUSE_S = 30.0
_SAY_EVERY_S = 60.0
_DIAL_S = 5.0  # to reach the broker, and again to be let in
_CLOSE_S = 2.0
_QUIET_S = 60.0  # between two looks at a connection that nobody keeps alive
_FEW = 200  # messages that came at once: below, it is worth while to wait for more
_LOST = select.POLLERR | select.POLLHUP | select.POLLNVAL


class Connection:
    """Keeps a client connected, in a thread of its own, and says so once when it cannot be.

    The pause between attempts doubles from `retry_s` to half a minute, each a little different, so that a thousand
    devices do not come back at once. A refusal that trying again will not change, such as a wrong password, is kept in
    `refused`. With `anew` it begins without the session that may be there. Sending never waits: what the network does not
    take at once goes out when it does.
    """

    def __init__(
        self, address: Address, hello: Hello, client: Client, *, retry_s: float, linger_s: float = 0, anew: bool = False
    ) -> None:
        self._address, self._hello, self._client = address, hello, client
        self._retry_s, self._linger_s, self._anew = retry_s, linger_s, anew
        self._tls = tls_context(address)
        self.condition = Condition(RLock())  #: guards everything, and tells of each change
        self.connected = Event()
        self.refused: str | None = None
        self.broken: Exception | None = None  #: what we did wrong ourselves: nothing will follow
        self.closing = False
        self.largest = packets.LARGEST  #: bytes of a packet that the broker takes
        self._logged_s: float | None = None  # when trouble was last logged
        self._sender: Sender | None = None
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
            raise InputError(f"broker {self._address} refuses the connection: {self.refused}")

    def send(self, data: bytes) -> None:
        """Send whole packets before whatever the client has to send; forgotten when the connection is lost."""
        with self.condition:
            if self._sender is not None and data:
                self._sender.put(data)
                self.flush()

    def flush(self) -> None:
        """Send what there is, as far as it goes at once; the rest goes when the network takes it."""
        with self.condition:
            if self._sender is None or self._sender.blocked:
                return
            try:
                self._sender.flush()
            except OSError as error:
                log.debug("cannot send to %s: %s", self._address, error)
                self._sender.blocked = True  # who receives learns of it too, and mends it
            except Exception as error:
                self._on_bug(error)
            if self._sender.blocked:
                self.wake()

    def wake(self) -> None:
        """Let the thread look again: there is room, or something to send, or an end."""
        with suppress(OSError):
            self._waker.send(b"\0")

    def close(self, *, forget: bool = False) -> None:
        """Say goodbye and stop; with `forget` the broker drops the session."""
        with self.condition:
            if self.closing:
                return
            self.closing, there = True, self.connected.is_set()
            self.send(packets.goodbye(self._hello.version, forget=forget))
            self.condition.notify_all()
            self.wake()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_S)  # who dials may take longer, and closes what comes of it
        if forget and there and self._hello.keep_session and self._hello.version < 5:
            with suppress(OSError):
                self._erase()

    def _run(self) -> None:
        with answering_at_once():  # a broker does not wait for a compiler
            self._keep_connected()

    def _keep_connected(self) -> None:
        try:
            load_kernels()
            pause_s = 0.0
            while not self.closing:
                pause_s = next_pause_s(pause_s, self._retry_s, self._live_once())
                with self.condition:
                    self.condition.wait_for(lambda: self.closing, pause_s * random.uniform(0.5, 1))
        except Exception as error:
            self._on_bug(error)
        finally:
            self._waker.close()
            self._awake.close()

    def _on_bug(self, error: Exception) -> None:
        """Say what is our own fault, and let the client hear of it."""
        log.error("the connection to %s broke", self._address, exc_info=error)
        with self.condition:
            self.broken = error
            self.condition.notify_all()

    def _live_once(self) -> float:
        """Connect and serve until the connection is lost, and say why it was; return for how many seconds we were let in."""
        try:
            if self._anew and self._hello.version < 5:  # in MQTT 5 one CONNECT begins anew and keeps what follows
                self._erase()
            transport = Transport(self._address, self._tls, _DIAL_S)
        except OSError as error:
            if isinstance(error, ssl.SSLCertVerificationError):
                with self.condition:
                    self.refused = f"its certificate is not trusted ({error.verify_message})"
                    self.condition.notify_all()
            self._log(f"cannot reach broker {self._address}: {error}; trying again")
            return 0.0
        reason, began_s = "closed", time.monotonic()
        try:
            self._serve(transport)
        except (OSError, ProtocolError) as error:
            reason = str(error)
        was_connected = self.connected.is_set()
        with self.condition:
            self._sender = None
            self.connected.clear()
            self._client.on_disconnect()
            self.condition.notify_all()
        if self.closing:
            transport.finish()
        transport.close()
        if was_connected or not self.refused:
            self._log(f"connection to broker {self._address} is lost: {reason}; trying again")
        return time.monotonic() - began_s if was_connected else 0.0

    def _erase(self) -> None:
        """Let the broker forget our session: MQTT 3.1.1 has no other way than to come for a new one, and leave."""
        hello = Hello(self._hello.client_id, 4, False, 0, self._hello.username, self._hello.password)
        transport = Transport(self._address, self._tls, _DIAL_S)
        try:
            transport.send(memoryview(hello.packet(clean=True)))
            transport.wait(_DIAL_S)
            transport.send(memoryview(packets.goodbye(4)))
            transport.finish()
        finally:
            transport.close()

    def _serve(self, transport: Transport) -> None:
        """Receive and send until something ends it."""
        receiver = Incoming(self._hello.version, self._hello.largest, self._hello.aliases, self._client.states)
        sender = Sender(transport, self._client)
        with self.condition:
            self._sender = sender
            self.send(self._hello.packet(clean=self._anew))
        poll = select.poll()
        poll.register(self._awake, select.POLLIN)
        self._heard_s, self._pinged, self._keep_alive_s = time.monotonic(), False, float(self._hello.keep_alive_s)
        while not self.closing:
            with self.condition:
                room = self._client.room()
            poll.register(transport, (select.POLLIN if room else 0) | (select.POLLOUT if sender.blocked else 0))
            again = bool(room) and receiver.has_more
            look_s = (self._keep_alive_s or _QUIET_S) / 4 if self.connected.is_set() else _DIAL_S / 4
            happened = dict(poll.poll(0 if again else 1000 * look_s))
            if self._awake.fileno() in happened:
                with suppress(BlockingIOError):
                    self._awake.recv(4096)
            if not room and happened.get(transport.fileno(), 0) & _LOST:
                raise ConnectionError("the broker closed it")
            if room and (again or transport.fileno() in happened):
                if receiver.receive(transport):
                    self._heard_s, self._pinged = time.monotonic(), False
                if 0 < self._take(receiver) < _FEW and self._linger_s:
                    self._collect()
            if sender.blocked:
                sender.blocked = False
                self.flush()
            self._keep_alive(sender, bool(room))

    def _take(self, receiver: Incoming) -> int:
        """Hand on what was received, up to what breaks the rules; return how many messages there were."""
        with self.condition:
            messages = 0
            while True:
                received, control = receiver.take(self._client.room())
                if received is not None:
                    if not self.connected.is_set():
                        raise ProtocolError("the broker sent messages before it let us in")
                    messages += len(received)
                    self._client.on_received(received)
                if control is not None:
                    self._handle(*control)
                elif received is None:
                    self.condition.notify_all()
                    return messages

    def _handle(self, kind: int, body: bytes) -> None:
        """Take one packet that is neither message nor acknowledgement."""
        version = self._hello.version
        if kind == packets.DISCONNECT and version == 5:
            raise ConnectionError(f"the broker left: {packets.farewell(body)}")
        if (kind == packets.CONNACK) == self.connected.is_set():  # it lets us in once, before all else
            raise ProtocolError(f"the broker sent a packet of kind {kind} out of turn")
        if kind == packets.CONNACK:
            self._let_in(packets.welcome(body, version))
        elif kind == packets.SUBACK:
            self._client.on_suback(packets.granted(body, version))
        elif kind not in (packets.PINGRESP, packets.UNSUBACK):
            raise ProtocolError(f"the broker sent a packet of kind {kind} that we did not ask for")

    def _let_in(self, welcome: Welcome) -> None:
        if welcome.code:
            why = refusal(welcome.code) + (f" ({welcome.reason_text})" if welcome.reason_text else "")
            if not is_passing(welcome.code):
                self.refused = "; ".join(filter(None, [why, advice(welcome.code)]))
            self._log(f"broker {self._address} refuses the connection: {why}")
            raise ConnectionError(why)
        if self._logged_s is not None:
            log.warning("broker %s is there again", self._address)
        self._logged_s, self.refused, self._anew = None, None, False
        self.largest = welcome.largest
        if welcome.keep_alive_s is not None:
            self._keep_alive_s = float(welcome.keep_alive_s)
        first = self._client.on_connect(welcome)
        if self.refused is not None:  # the client cannot do with what this broker serves
            raise ConnectionError(self.refused)
        assert self._sender is not None
        self._sender.put(first)
        self._sender.open = True
        self.connected.set()
        self.flush()

    def _collect(self) -> None:
        """Let messages gather for a moment, so that few of them do not make many batches."""
        poll = select.poll()
        poll.register(self._awake, select.POLLIN)
        poll.poll(1000 * self._linger_s)

    def _keep_alive(self, sender: Sender, receiving: bool) -> None:
        """Say something before the broker takes us for dead, and give up a broker that says nothing."""
        now, quiet_s = time.monotonic(), self._keep_alive_s / 2
        if not self.connected.is_set():
            if now - self._heard_s > _DIAL_S:
                raise ConnectionError("the broker does not answer")
        elif not quiet_s:
            return
        elif receiving and self._pinged and now - self._heard_s > 2 * self._keep_alive_s:
            raise ConnectionError("the broker does not answer")
        elif now - sender.sent_s > quiet_s or (receiving and not self._pinged and now - self._heard_s > quiet_s):
            self._pinged = True
            self.send(packets.PING)

    def _log(self, message: str) -> None:
        """Log at most once a minute: a broker may be away for days."""
        now = time.monotonic()
        if not self.closing and (self._logged_s is None or now - self._logged_s >= _SAY_EVERY_S):
            self._logged_s = now
            log.warning(message)


def next_pause_s(before_s: float, first_s: float, lived_s: float) -> float:
    """Return the pause before the next attempt, by the one before it and for how long that attempt was let in.

    A broker that takes seconds not to answer, or throws us out at once, is no reason to begin with short pauses again.

    >>> next_pause_s(0, 1, 0), next_pause_s(1, 1, 0), next_pause_s(20, 1, 0), next_pause_s(30, 1, 61.1)
    (1, 2, 30.0, 1)
    """
    return first_s if lived_s > 2 * before_s + 1 else max(first_s, min(2 * before_s, _LONGEST_PAUSE_S))
