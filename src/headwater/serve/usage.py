"""What the process of a flow takes of the machine, with the lanes that it has forked: processor time and memory."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from headwater.processes import children

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Usage:
    """Reads what this process and its children take; each reading says how many cores since the one before."""

    def __init__(self) -> None:
        self._at_s: float | None = None
        self._cpu_s = 0.0

    def read(self, now_s: float) -> dict[str, Any]:
        """Return cores since the last reading (since the start, at the first), and memory now, as JSON has them."""
        cpu_s, memory = 0.0, 0
        for pid in (os.getpid(), *children(os.getpid())):
            with suppress(OSError, ValueError, IndexError):  # a lane that ends, or a system that does not tell
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                cpu_s += (int(fields[11]) + int(fields[12])) * _TICK_S
                memory += int(fields[21]) * _PAGE
        span_s = now_s - self._at_s if self._at_s is not None else 0.0
        cores = max(0.0, cpu_s - self._cpu_s) / span_s if span_s > 0 else 0.0
        self._at_s, self._cpu_s = now_s, cpu_s
        return {"cpu_s": round(cpu_s, 2), "cores": round(cores, 4), "memory_bytes": memory}
