"""What the part of a flow at a site took and how long its records took there, of late: from what its site reports."""

from __future__ import annotations

from collections import deque
from statistics import fmean, median

from headwater.deploy.control.messages import PartState

_SPAN_S = 10.0  #: over which it is told


class Lately:
    """One part; each second of it counts the same."""

    def __init__(self) -> None:
        self._id = ""
        self._samples: deque[tuple[float, PartState]] = deque()

    def note(self, at_s: float, part: PartState) -> None:
        """Take note of a report; another part begins anew."""
        if part.id != self._id or (self._samples and self._samples[-1][0] > at_s):
            self._samples.clear()
        self._id = part.id
        self._samples.append((at_s, part))
        while self._samples[0][0] < at_s - _SPAN_S:
            self._samples.popleft()

    @property
    def cores(self) -> float | None:
        """The cores that its process took in the mean; None before it has told."""
        return fmean(part.cores for _, part in self._samples) if self._samples else None

    @property
    def delay_ms(self) -> tuple[float, float] | None:
        """How long a record in the middle took there, and one of the slowest hundredth; None where none came out."""
        delays = [part.delay_ms for _, part in self._samples if part.delay_ms is not None]
        return (median(p50 for p50, _ in delays), median(p99 for _, p99 in delays)) if delays else None
