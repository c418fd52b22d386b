"""Which processes a process has started, as the system knows them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def children(pid: int) -> list[int]:
    """Return those that a process has started, by whatever thread, as far as they are not gone."""
    found: list[int] = []
    with suppress(OSError):  # it is gone itself, or this system does not tell
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += map(int, (thread / "children").read_text().split())
    return found


def family(pid: int) -> list[int]:
    """Return a process, those that it has started, those that these have, and so on."""
    found = [pid]
    for each in found:  # grows while we walk along it
        found += children(each)
    return found
