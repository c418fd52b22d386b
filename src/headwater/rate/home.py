"""Where a machine's supervisor is found: the runtime folder, and what lies in it."""

from __future__ import annotations

import os
import socket
from errno import EAGAIN
from pathlib import Path

SOCKET, LOCK, BOOK, LOG = "supervisor.sock", "supervisor.lock", "ledger.json", "supervisor.log"
LONGEST_FOLDER = 107 - len("/lanes-00000000.sock")
"""Bytes of the name of a runtime folder: the system has 107 for a socket's, and this is the longest one in it."""


MACHINE = Path("/run/headwater")
"""Where the supervisor of the whole machine is found, which root runs."""


def folder() -> Path:
    """Return the runtime folder: `HEADWATER_RUNTIME`, the machine's, or the user's own where nobody serves that."""
    own = own_folder()
    if not os.environ.get("HEADWATER_RUNTIME") and _answers(MACHINE / SOCKET):
        return MACHINE
    return own


def own_folder() -> Path:
    """Return the runtime folder of this user: `HEADWATER_RUNTIME`, or the machine's for root."""
    runtime = os.environ.get("HEADWATER_RUNTIME")
    if runtime:
        return Path(runtime)
    if os.geteuid() == 0:
        return MACHINE
    return Path(os.environ.get("XDG_RUNTIME_DIR") or f"/tmp/headwater-{os.getuid()}") / "headwater"


def _answers(path: Path) -> bool:
    """Say whether somebody listens at a socket that this user may call, also one who takes up no call at present."""
    with socket.socket(socket.AF_UNIX) as line:
        line.setblocking(False)  # where a hundred calls wait, as at a process that is stopped, one more would for ever
        return line.connect_ex(str(path)) in (0, EAGAIN)
