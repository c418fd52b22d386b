"""What else went on while something was measured: what of the machine others had, and pauses of the garbage collector."""

from __future__ import annotations

import gc
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_STAT = Path("/proc/stat")
_IDLE, _WAITING, _STOLEN = 3, 4, 7  #: columns of a machine's time there
_COUNTED = 8  #: what follows is counted in these


class Surroundings(NamedTuple):
    """What may explain why a measurement differs from the next; 0 where the system does not tell."""

    others: float  #: processors that other programs had, in the mean
    stolen: float  #: processors that the host of a virtual machine gave to others, in the mean
    gc_ms: float  #: the longest pause of the garbage collector


class Watch:
    """Watches from when it is made until it is asked; steps aside then."""

    def __init__(self) -> None:
        self._ticks, self._own_s, self._began_s = _ticks(), time.process_time(), time.perf_counter()
        self._paused_s = self._longest_s = 0.0
        gc.callbacks.append(self._heard)

    def _heard(self, phase: str, info: dict[str, int]) -> None:
        now = time.perf_counter()
        if phase == "start":
            self._paused_s = now
        else:
            self._longest_s = max(self._longest_s, now - self._paused_s)

    def report(self) -> Surroundings:
        """Return what went on since."""
        gc.callbacks.remove(self._heard)
        span_s = time.perf_counter() - self._began_s
        own_s = time.process_time() - self._own_s
        passed = [after - before for before, after in zip(self._ticks, _ticks(), strict=False)]
        if not passed:
            return Surroundings(0.0, 0.0, 1e3 * self._longest_s)
        a_tick = 1 / os.sysconf("SC_CLK_TCK") / span_s
        stolen = passed[_STOLEN] * a_tick
        busy = a_tick * sum(count for at, count in enumerate(passed) if at not in (_IDLE, _WAITING, _STOLEN))
        return Surroundings(
            round(max(0.0, busy - own_s / span_s), 3), round(stolen, 3), round(1e3 * self._longest_s, 3)
        )


def _ticks() -> list[int]:
    """Return how the machine's time was spent since it started; nothing where the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        ticks = [int(each) for each in _STAT.read_text().splitlines()[0].split()[1:]]
        return ticks[:_COUNTED] if len(ticks) >= _COUNTED else []
    return []
