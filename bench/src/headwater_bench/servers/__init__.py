"""Servers of our own on loopback, each a process, for experiments and tests that write to real ones.

`mosquitto` is a broker of MQTT, `postgresql` a database, `kafka` a broker of Kafka, `topics` what is in it; `taking` is
somebody's HTTP server, which keeps what is posted and knows requests that come again, `posting` a client of one;
`link` is a way to any of them that can be cut.
What is not installed says so: see `NotHereError`.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

_PATIENCE_S = 180.0  #: on a machine with much else to do, a Java takes its time
_LOWEST = 15_000
_MOST_WORKERS = 8  #: of tests, each of which takes ports of its own
_ports_given: set[int] = set()


class NotHereError(Exception):
    """A server that is not installed on this machine, with what is missing."""


def free_port() -> int:
    """Return a port of loopback that is free, and that the system gives to nobody who asks for any port.

    While a server is away, one that the system gave it would go to whoever asks next: to another server, or to the very
    client that dials, which then talks to itself.
    """
    lowest_of_any = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % _MOST_WORKERS
    own = range(_LOWEST + worker, lowest_of_any, _MOST_WORKERS) or [0]  # where any may be given to anybody
    while True:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", random.SystemRandom().choice(own)))
            except OSError:
                continue
            port = int(probe.getsockname()[1])
        if port not in _ports_given:
            _ports_given.add(port)
            return port


def wait_for(port: int, process: subprocess.Popen[bytes], why: Callable[[], str] = str) -> None:
    """Wait until a process listens on a port; AssertionError, with `why`, if it ends or does not come to that."""
    until_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until_s:
        assert process.poll() is None, f"{process.args!r} has ended: {why()}"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise AssertionError(f"{process.args!r} does not answer: {why()}")
