"""A socket to a broker, plain or with TLS, that never makes anybody wait."""

from __future__ import annotations

import select
import socket
import ssl
import time
from contextlib import suppress
from threading import Lock

from headwater.errors import InputError
from headwater.io.mqtt.address import Address

_FINISH_S = 0.5  # for a broker to say goodbye


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


def tls_context(address: Address) -> ssl.SSLContext | None:
    """Return what TLS needs to know, or None where it is not wanted; raises InputError for files that cannot be used."""
    if not address.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=address.ca)
        if address.certificate is not None:
            context.load_cert_chain(address.certificate, address.key)
    except (OSError, ValueError) as error:  # ssl's own errors are OSErrors
        named = [str(file) for file in (address.ca, address.certificate, address.key) if file]
        raise InputError(f"cannot use TLS files {', '.join(named)} for {address}: {error}") from error
    return context
