"""The proof of a promise: windows of one second, each kept or broken, and why.

A window is kept if the records that were created in it left within the promised latency, and if no more than a burst of them
was left over at its end beyond what may be on its way. Counting what comes out in each second would blame harmless jitter.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass

import numpy as np

from headwater.data.column import Array
from headwater.flow.contract import Contract

WINDOW_NS = 1_000_000_000

WITHOUT_PROCESSOR = "processor taken by others"
DEARER = "steps dearer than reserved for"
ABOVE = "arrivals above the promise"
BLOCKED = "a sink or source that blocks"

TAKEN = 0.1  #: the share of a window spent waiting for a processor from which on that is the cause
_HELD = 0.1  #: the same of a queue that stood full


@dataclass(frozen=True, slots=True)
class Reading:
    """What was seen at the end of a window, of that window."""

    used: float  #: cores that the lane had
    waited: float  #: share of the window in which it could have run and had no processor
    held: float  #: share of the window in which a full queue held a source
    backlog: float  #: records that were read and had not left, in records of the sources
    rivals: tuple[str, ...] = ()  #: programs of others that run in real time, where the lane had to wait


@dataclass(frozen=True, slots=True)
class Window:
    """One second of a promise."""

    second: int
    records: int  #: created in it, as far as they were read
    late: int  #: left after the promised latency, at any sink
    shortfall: float  #: records left over at its end beyond what may be on its way
    cause: str = ""  #: of a broken one

    @property
    def kept(self) -> bool:
        """Whether the promise held."""
        return not self.cause


class Windows:
    """Counts what comes and leaves by the second of its creation; told by sources, sinks and a monitor."""

    def __init__(self, contract: Contract, reserved: float, started_ns: int) -> None:
        self.contract, self.reserved = contract, reserved
        self._started_ns = started_ns
        self._came: Counter[int] = Counter()
        self._late: Counter[int] = Counter()
        self._readings: dict[int, Reading] = {}
        self._lock = threading.Lock()

    def begin(self, now_ns: int) -> None:
        """Let the first window begin."""
        self._started_ns = now_ns

    def second(self, now_ns: int) -> int:
        """Return the window of a moment."""
        return (now_ns - self._started_ns) // WINDOW_NS

    def came(self, created_ns: Array) -> None:
        """Take note of records that a source has read."""
        self._count(self._came, created_ns)

    def left(self, created_ns: Array, now_ns: int) -> None:
        """Take note of records that a sink has taken."""
        bound_s = self.contract.latency_s
        if bound_s is None or not len(created_ns):
            return
        oldest_ns = now_ns - round(bound_s * 1e9)
        if int(created_ns.min()) < oldest_ns:
            self._count(self._late, created_ns[created_ns < oldest_ns])

    def _count(self, counter: Counter[int], created_ns: Array) -> None:
        first, last = self.second(int(created_ns.min())), self.second(int(created_ns.max()))
        if first == last:  # as it is but once a second, and much cheaper
            with self._lock:
                counter[first] += len(created_ns)
            return
        seconds, counts = np.unique((created_ns - self._started_ns) // WINDOW_NS, return_counts=True)
        with self._lock:
            counter.update(dict(zip(seconds.tolist(), counts.tolist(), strict=True)))

    def read(self, second: int, reading: Reading) -> None:
        """Take note of what was seen at the end of a window."""
        self._readings[second] = reading

    def judged(self) -> list[Window]:
        """Return all windows that have ended; one may still break by records of it that are found late."""
        with self._lock:
            return [self._window(second, reading) for second, reading in sorted(self._readings.items())]

    def _window(self, second: int, reading: Reading) -> Window:
        contract = self.contract
        records, late = self._came[second], self._late[second]
        on_its_way = contract.rate_hz * (contract.latency_s or 0.0)
        shortfall = max(0.0, reading.backlog - on_its_way)
        broken = late > 0 or shortfall > contract.burst_records
        cause = cause_of(contract, self.reserved, records, reading) if broken else ""
        return Window(second, records, late, shortfall, cause)


def cause_of(contract: Contract, reserved: float, records: int, reading: Reading) -> str:
    """Return why a window is broken, as far as that can be seen from the lane itself."""
    if records > contract.rate_hz + contract.burst_records:
        return ABOVE
    if reading.waited > TAKEN:
        return f"{WITHOUT_PROCESSOR} in real time: {', '.join(reading.rivals)}" if reading.rivals else WITHOUT_PROCESSOR
    if reading.used > reserved:
        return DEARER
    if reading.held > _HELD:
        return BLOCKED
    return "not known"
