"""The way to another program of this machine: latency and bandwidth over TCP on loopback."""

from __future__ import annotations

import socket
import statistics
import threading
import time
from typing import Any

from headwater.errors import RunError

PING_BYTES = 44
"""The size of the packet that the CEP paper's ping sends."""


def pings_s(count: int) -> list[float]:
    """One-way times of packets to another thread of this machine and back, over TCP on loopback, halved."""
    with _Peer(_echo) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        times = []
        for number in range(count):
            packet = number.to_bytes(8, "big").ljust(PING_BYTES, b".")
            began = time.perf_counter()
            link.sendall(packet)
            back = _received(link, PING_BYTES)
            times.append((time.perf_counter() - began) / 2)
            if back != packet:
                raise AssertionError(f"ping {number} came back as {back!r}")
    return times


def bandwidths_bps(count: int, megabytes: int) -> list[float]:
    """Bits per second of transfers to another thread of this machine, over TCP on loopback."""
    block, rates_bps = bytes(2**20), []
    for _ in range(count):
        with _Peer(_counted) as link:
            began = time.perf_counter()
            for _ in range(megabytes):
                link.sendall(block)
            link.shutdown(socket.SHUT_WR)
            arrived = int.from_bytes(_received(link, 8), "big")
            rates_bps.append(8 * arrived / (time.perf_counter() - began))
        if arrived != megabytes * 2**20:
            raise AssertionError(f"{megabytes * 2**20} bytes were sent and {arrived} arrived")
    return rates_bps


class _Peer:
    """A thread that answers on loopback, and the connection to it."""

    def __init__(self, answer: Any) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, args=(answer,), daemon=True)

    def _serve(self, answer: Any) -> None:
        with self._server.accept()[0] as link:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            answer(link)

    def __enter__(self) -> socket.socket:
        self._thread.start()
        self._link = socket.create_connection(self._server.getsockname(), timeout=10)
        return self._link

    def __exit__(self, *raised: object) -> None:
        self._link.close()
        self._thread.join(10)
        self._server.close()


def _echo(link: socket.socket) -> None:
    while packet := link.recv(4096):
        link.sendall(packet)


def _counted(link: socket.socket) -> None:
    count = 0
    while data := link.recv(2**20):
        count += len(data)
    link.sendall(count.to_bytes(8, "big"))


def _received(link: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = link.recv(size - len(data))
        if not part:
            raise RunError(f"the other end of a connection on loopback closed after {len(data)} of {size} bytes")
        data += part
    return data


def quartiles(values: list[float]) -> list[float]:
    """Least, first quartile, median, third quartile, most."""
    q1, q2, q3 = statistics.quantiles(values, n=4)
    return [min(values), q1, q2, q3, max(values)]
