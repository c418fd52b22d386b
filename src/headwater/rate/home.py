"""Where a machine's supervisor is found: the runtime folder, and what lies in it."""

from __future__ import annotations

import os
from pathlib import Path

SOCKET, LOCK, BOOK, LOG = "supervisor.sock", "supervisor.lock", "ledger.json", "supervisor.log"


def folder() -> Path:
    """Return the runtime folder: `HEADWATER_RUNTIME`, or one of the system's for root and for each user."""
    given = os.environ.get("HEADWATER_RUNTIME")
    if given:
        return Path(given)
    if os.geteuid() == 0:
        return Path("/run/headwater")
    return Path(os.environ.get("XDG_RUNTIME_DIR") or f"/tmp/headwater-{os.getuid()}") / "headwater"
