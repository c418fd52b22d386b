"""What this machine is, measured: `headwater profile --device` prints it, and plans can use it as a class of devices."""

from __future__ import annotations

import os
import platform
import socket
import statistics
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from headwater.bench import cep, energy
from headwater.bench.operations import PER_TURN, operate
from headwater.data.jit import COMPILED
from headwater.errors import RunError
from headwater.net.device import DeviceClass
from headwater.net.net import Net
from headwater.net.wan import Gateways

QUERIES = ("Fil 0.5", "Seq3 1.0", "Pat3 1.0", "AggB 60", "AggS 60")
"""One query of each kind: what the machine does with records, not with a loop."""
PING_BYTES = 44
"""The size of the packet that the CEP paper's ping sends."""
_COPIED = 64 * 2**20


def describe(*, seconds: float = 0.2, records: int = 200_000) -> dict[str, Any]:
    """Measure this machine for some seconds.

    `cpu_ips` counts simple whole-number operations of a compiled loop, all cores together. Published figures (those of
    the shipped classes) count the instructions of other programs, so a net should take all its classes from one scale.
    """
    cores = len(os.sched_getaffinity(0))
    per_core = operations_per_s(seconds)
    queries = cep.run(records=records, only=list(QUERIES))["queries"]
    return {
        "name": name(),
        "processor": _processor(),
        "cores": cores,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "compiled": COMPILED,
        "operations_per_s": per_core,
        "cpu_ips": cores * per_core,
        "copied_bytes_per_s": _copied_bytes_per_s(seconds),
        "records_per_s": {query: round(1e9 / row["cpu_ns"]) for query, row in queries.items()},
        "energy": drawn(seconds),
    }


def name() -> str:
    """What profiles call this machine, so that a plan knows it again."""
    return f"{platform.node()} ({platform.machine()})"


def as_net(described: dict[str, Any]) -> Net:
    """A net of this one device, to be written to a file and added to."""
    kind = DeviceClass(described["name"], described["cpu_ips"], memory_bytes=described["memory_bytes"])
    one = np.zeros(1)
    return Net("here", (kind,), ("here",), np.array([0, 1]), np.zeros(1, np.uint16), one, Gateways(one.copy()))


def operations_per_s(seconds: float) -> float:
    """How many simple operations one core does in a second: the best of five, since others only slow it down."""
    operate(1)
    turns = 10_000
    while (spent := _spun(turns)) < seconds / 5 and turns < 2**40:
        turns = int(turns * max(2.0, seconds / 5 / max(spent, 1e-9)))
    return turns * PER_TURN / min(_spun(turns) for _ in range(5))


def _spun(turns: int) -> float:
    began = time.thread_time()
    operate(turns)
    return time.thread_time() - began


def _copied_bytes_per_s(seconds: float) -> float:
    source = np.ones(_COPIED // 8)
    target = np.empty_like(source)
    np.copyto(target, source)  # memory that was never written to is slower
    times: list[float] = []
    until = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < until:
        began = time.perf_counter()
        np.copyto(target, source)
        times.append(time.perf_counter() - began)
    return _COPIED / min(times)


def drawn(seconds: float) -> dict[str, Any]:
    """Watts at rest and with one core busy, or why they cannot be read."""
    found = energy.meter()
    if isinstance(found, str):
        return {"readable": False, "why": found}
    began, start = time.perf_counter(), found.joules()
    time.sleep(seconds)
    rest_w = (found.joules() - start) / (time.perf_counter() - began)
    began, start = time.perf_counter(), found.joules()
    operations_per_s(seconds)
    return {
        "readable": True,
        "rest_w": rest_w,
        "busy_w": (found.joules() - start) / (time.perf_counter() - began),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


# -- the way to another program -------------------------------------------------------------------------------------------


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
    block, found = bytes(2**20), []
    for _ in range(count):
        with _Peer(_counted) as link:
            began = time.perf_counter()
            for _ in range(megabytes):
                link.sendall(block)
            link.shutdown(socket.SHUT_WR)
            arrived = int.from_bytes(_received(link, 8), "big")
            found.append(8 * arrived / (time.perf_counter() - began))
        if arrived != megabytes * 2**20:
            raise AssertionError(f"{megabytes * 2**20} bytes were sent and {arrived} arrived")
    return found


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
