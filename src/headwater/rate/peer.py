"""Who is at the other end of a socket of this machine, by the system's own word."""

from __future__ import annotations

import socket
import struct

_WHO = struct.Struct("3i")  #: process, user and group


def peer(line: socket.socket) -> tuple[int, int]:
    """Return the process that connected, or that listens, at the other end, and its user."""
    pid, uid, _ = _WHO.unpack(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _WHO.size))
    return pid, uid
