"""How much memory is a process's own."""

from __future__ import annotations

import os
from pathlib import Path


def private_mb(pid: int | None = None) -> float:
    """Return the megabytes that a process shares with no other."""
    text = Path(f"/proc/{pid or os.getpid()}/smaps_rollup").read_text()
    kb = sum(int(line.split()[1]) for line in text.splitlines() if line.startswith(("Private_Clean", "Private_Dirty")))
    return round(kb / 1024, 1)
