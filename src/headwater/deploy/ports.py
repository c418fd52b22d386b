"""Ports for servers that others dial while they are away."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from pathlib import Path

from headwater.errors import RunError

_LOWEST, _ANY_FROM = 15_000, 32_768
_TRIES = 100


def free_port(host: str) -> int:
    """Return a free port of an address of this machine, none that the system gives to whoever asks for any.

    Such a one could go, while its server is away, to another program, or to the very client that dials: TCP lets a
    connection meet itself.
    """
    highest = _ANY_FROM
    with suppress(OSError, ValueError, IndexError):
        highest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    own = [random.randrange(_LOWEST, highest) for _ in range(_TRIES)] if highest > _LOWEST else []
    for port in (*own, 0):
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe, suppress(OSError):
            probe.bind((host, port))
            return int(probe.getsockname()[1])
    raise RunError(f"cannot listen at {host}: is that an address of this machine?")
