"""Processes that outlive the one that starts them, and are spoken to over a socket: a supervisor, a warm parent of lanes."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_LOOK_S = 0.05
_children: list[subprocess.Popen[bytes]] = []  #: kept, lest Python complain of processes that it forgot


def started(
    code: str,
    arguments: Sequence[str],
    log: Path,
    environment: Mapping[str, str],
    connected: Callable[[], socket.socket | None],
    within_s: float,
) -> socket.socket | None:
    """Start a process that says what it has to say in a log; return a line to it, None if it cannot be had in time."""
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with log.open("ab") as log_file:
        child = subprocess.Popen(
            [sys.executable, "-P", "-c", code, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=log_file,
            start_new_session=True,
            env=dict(environment),
        )
    _children.append(child)
    until_s = time.monotonic() + within_s
    while time.monotonic() < until_s:
        line_to = connected()
        if line_to is not None:
            return line_to
        time.sleep(_LOOK_S)
    return None
