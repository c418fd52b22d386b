"""What the system knows of a process: whether it lives, what it used, and how long it waited for a processor."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def began(pid: int) -> int | None:
    """Return when a process began, in ticks since boot; None if there is none, or only its remains."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else int(fields[19])
    return None


def waited_ns() -> int:
    """Return how long the threads of this process could have run and had no processor, all in all."""
    total = 0
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it may have ended
            total += int((thread / "schedstat").read_text().split()[1])
    return total


def foreign_real_time() -> list[str]:
    """Return programs of others that run in real time, which no weight holds against."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            name, _, rest = (each / "stat").read_text().rpartition(")")
            fields = rest.split()
            is_program = bool((each / "cmdline").read_bytes())  # the kernel's own threads have none
            if is_program and int(fields[38]) in (1, 2, 6) and "headwater" not in (each / "cmdline").read_text():
                found.append(f"{name.partition('(')[2]} ({each.name})")
    return found
