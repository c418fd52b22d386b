"""Ports for the servers of tests, which are killed and started again."""

import os
import random
import socket
from pathlib import Path

_LOWEST = 15_000
_MOST_WORKERS = 8  #: of xdist, each of which takes ports of its own
_given: set[int] = set()


def free_port():
    """Return a port of loopback that is free, and that the system gives to nobody who asks for any port.

    While a server is away, one that the system gave it would go to whoever asks next: to a server of another test, or to
    the very client that dials, which then talks to itself.
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
            port = probe.getsockname()[1]
        if port not in _given:
            _given.add(port)
            return port
