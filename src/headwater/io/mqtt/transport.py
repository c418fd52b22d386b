"""A socket to a broker, plain or with TLS, that never makes anybody wait, and what comes by it, cut into packets."""

from __future__ import annotations

import select
import socket
import ssl
import time
from contextlib import suppress
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from headwater.clock import now_ns
from headwater.data.column import Text
from headwater.errors import InputError
from headwater.io.mqtt.address import Address
from headwater.io.mqtt.client import ReceivedMessages
from headwater.io.mqtt.packets import ProtocolError
from headwater.io.mqtt.scan import BROKEN, CONTROL, FULL, head, scan

_FINISH_S = 0.5  # for a broker to say goodbye
_FIRST_SIZE = 1 << 18  # bytes; the buffer grows with the packets that come
_NUMBERS = 1 << 16
_LONGEST_HEAD = 5

Packet = tuple[int, bytes]  #: one that is neither message nor acknowledgement: its kind, and its body


class Transport:
    """An open socket; one thread receives, any may send.

    With TLS both happen under a lock, since what encrypts is not made for two threads.
    """

    def __init__(self, address: Address, context: ssl.SSLContext | None, timeout_s: float) -> None:
        self._socket = socket.create_connection((address.host, address.port), timeout=timeout_s)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                self._socket = context.wrap_socket(self._socket, server_hostname=address.host)
            self._socket.setblocking(False)
        except BaseException:
            self._socket.close()
            raise
        self._lock = Lock() if context is not None else None

    def fileno(self) -> int:
        """Return what `poll` waits for."""
        return self._socket.fileno()

    def receive_into(self, room: memoryview) -> int | None:
        """Receive what is there; None where nothing is. Raises ConnectionError at the end."""
        try:
            if self._lock is None:
                count = self._socket.recv_into(room)
            else:
                with self._lock:
                    count = self._socket.recv_into(room)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        if count == 0:
            raise ConnectionError("the broker closed it")
        return count

    @property
    def in_records(self) -> bool:
        """Whether bytes come in records, as with TLS: what is left of one, `poll` does not know of."""
        return self._lock is not None

    def send(self, data: memoryview) -> int:
        """Send what goes at once; return how many bytes that were."""
        try:
            if self._lock is None:
                return self._socket.send(data)
            with self._lock:
                return self._socket.send(data)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0

    def wait(self, seconds: float) -> bool:
        """Wait until there is something to receive."""
        poll = select.poll()
        poll.register(self, select.POLLIN)
        return bool(poll.poll(1000 * seconds))

    def finish(self) -> None:
        """Let what was sent arrive: a socket that is closed with bytes not received takes those back that it sent."""
        until_s, rest = time.monotonic() + _FINISH_S, memoryview(bytearray(1 << 16))
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            while (left_s := until_s - time.monotonic()) > 0 and self.wait(left_s):
                self.receive_into(rest)

    def close(self) -> None:
        """Close the socket."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class Incoming:
    """Cuts the bytes that one connection brings into packets.

    `states` is what is known of packet numbers, which outlives the connection. A packet's length is
    believed up to `largest`, and takes memory only as its bytes come.
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
        any_bytes, view, self.has_more = False, self._make_room().data, False
        while self._stop < len(view):
            try:
                count = transport.receive_into(view[self._stop :])
            except OSError:
                if not any_bytes:
                    raise
                self.has_more = True  # first what came before the end
                break
            if count is None:
                break
            any_bytes, self._stop = True, self._stop + count
            if not transport.in_records:  # else a second look mostly finds nothing, and costs as much
                break
        self.has_more = self.has_more or self._stop == len(view)
        self._arrived_ns = now_ns()
        return any_bytes

    def take(self, room: int) -> tuple[ReceivedMessages | None, Packet | None]:
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
            received = ReceivedMessages(*texts, numbers, flags, answers, arrived_ns)
        if why < 0:
            self._error = ProtocolError(f"the broker sent {BROKEN[why]}")
            return (received, None) if received is not None else self.take(room)
        return received, self._packet() if why == CONTROL else None

    def _packet(self) -> Packet:
        kind = int(self._buffer[self._at]) >> 4
        length, body = head(self._buffer, self._at, self._stop)
        self._at = body + length
        return kind, self._buffer[body : self._at].tobytes()

    def _make_room(self) -> NDArray[np.uint8]:
        """Move what is left to the front; widen the buffer for a packet that fills it."""
        rest = self._buffer[self._at : self._stop]
        if len(rest) * 2 > len(self._buffer):
            wider = min(2 * len(self._buffer), max(self._largest + _LONGEST_HEAD, _FIRST_SIZE) + _FIRST_SIZE)
            self._buffer = np.empty(wider, np.uint8)
            self._buffer[: len(rest)] = rest
        elif self._at:
            self._buffer[: len(rest)] = rest.copy()
        self._at, self._stop = 0, len(rest)
        return self._buffer


def load_kernels() -> None:
    """Have what cuts packets ready, or compiled meanwhile, before the first of them comes."""
    nothing = np.empty(0, np.uint8)
    scan(nothing, 0, 0, 4, 0, 0, nothing, nothing, np.empty(0, np.int64))


def tls_context(address: Address) -> ssl.SSLContext | None:
    """Return what TLS needs to know, or None where it is not wanted; raises InputError for files that cannot be used."""
    if not address.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=address.ca)
        if address.certificate is not None:
            context.load_cert_chain(address.certificate, address.key)
    except (OSError, ValueError) as error:  # ssl's own errors are OSErrors
        files = [str(file) for file in (address.ca, address.certificate, address.key) if file]
        raise InputError(f"cannot use TLS files {', '.join(files)} for {address}: {error}") from error
    return context
