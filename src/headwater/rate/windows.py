"""The proof of a promise: windows of one second, each kept or broken, and why.

A window is kept if the records that were created in it left within the promised latency, and if no more than a burst of them
was left over at its end beyond what may be on its way. Counting what comes out in each second would blame harmless jitter.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from headwater.data.column import Array
from headwater.flow.contract import Contract
from headwater.rate.counts import CAME, CAUGHT_UP, CLOSE, LATE, Counts

WINDOW_NS = 1_000_000_000

WITHOUT_PROCESSOR = "processor taken by others"
DEARER = "steps dearer than reserved for"
ABOVE = "arrivals above the promise"
BLOCKED = "a sink or source that blocks"
DIED = "the lane died and was started again"
ELSEWHERE = "work on other machines, where nothing is reserved for it"
SLOW = "a way through the flow that took too long, with processor to spare"

TAKEN = 0.1  #: the share of a window spent waiting for a processor from which on that is the cause
_HELD = 0.1  #: the same of a queue that stood full, and of a sink that blocked
_MUCH = 1.5  #: times what is reserved, from which on a lane has not lacked a processor
_CATCHES_UP = 1.1  #: times the promised rate, from which on more leaves than comes
_CLOSE = 0.8  #: the share of the promised latency from which on a record was nearly too late
_LATELY = (
    10  #: windows in which it is looked whether more came than was promised: records may be read some seconds late
)
_OPEN_S = 60  #: for how long a window may still break by records that are found late
_TOLD = 20  #: broken windows of which all is kept


@dataclass(frozen=True, slots=True)
class Reading:
    """What was seen at the end of a window, of that window."""

    used: float  #: cores that the lane had
    waited: float  #: share of the window in which it could have run and had no processor
    held: float  #: share of the window in which a full queue held a source
    backlog: float  #: records that were read and had not left, in records of the sources
    done: float = 0.0  #: records that left in it, by the second
    blocked: float = 0.0  #: share of the window in which its worker was in a sink, and neither computed nor could have
    sink: str = ""  #: which sink that was
    rivals: tuple[str, ...] = ()  #: programs of others that run in real time, where the lane had to wait


@dataclass(frozen=True, slots=True)
class Window:
    """One second of a promise."""

    second: int  #: from the beginning of the promise on, also where a lane has died meanwhile
    records: int  #: created in it, as far as they were read
    late: int  #: left after the promised latency, at any sink
    shortfall: float  #: records left over at its end beyond what may be on its way
    cause: str = ""  #: of a broken one
    close: int = 0  #: left nearly too late, or too late

    @property
    def kept(self) -> bool:
        """Whether the promise held."""
        return not self.cause


@dataclass(slots=True)
class Verdict:
    """Windows so far: how many were kept, and what the others broke of."""

    kept: int = 0
    close: int = 0  #: those of the kept ones of which some record was nearly too late
    causes: Counter[str] = field(default_factory=Counter)
    broken: list[Window] = field(default_factory=list)  #: the first of them

    @property
    def windows(self) -> int:
        """All of them."""
        return self.kept + self.causes.total()

    def add(self, window: Window) -> None:
        """Count a window."""
        if window.kept:
            self.kept += 1
            self.close += window.close > 0
        else:
            self.causes[window.cause] += 1
            if len(self.broken) < _TOLD:
                self.broken.append(window)


class Windows:
    """Counts what comes and leaves by the second of its creation; told by sources, sinks and a monitor."""

    def __init__(self, contract: Contract, reserved: float, started_ns: int, lanes: int = 1) -> None:
        self.contract, self.reserved = contract, reserved
        self.counts = Counts(lanes)
        self._started_ns = started_ns
        self._before = 0  #: windows before the first of this lane
        self._next = 0  #: the one to be read next
        self._readings: dict[int, Reading] = {}
        self._settled = Verdict()
        self._down_since: int | None = None
        self._down: list[tuple[int, int]] = []  #: the first and the last window of times in which no lane was at work

    def begin(self, now_ns: int) -> None:
        """Let the first window begin; those before were of a start that took its time, and are forgotten."""
        self._started_ns, self._next = now_ns, 0
        self._readings.clear()
        if self._settled.windows:
            self.counts.back_ns = now_ns

    def resume(self, kept: int, causes: dict[str, int], silent_s: float) -> None:
        """Go on behind the windows of a lane that died; those of which nobody knows more than that broke of it."""
        self._settled.kept, self._settled.causes = kept, Counter(causes)
        for second in range(self._settled.windows, self._settled.windows + max(1, round(silent_s))):
            self._settled.add(Window(second, 0, 0, 0.0, DIED))
        self._before = self._settled.windows

    def died(self, now_ns: int) -> None:
        """Take note that work has stopped, since a lane has died."""
        self._down_since = self.second(now_ns)

    def back(self, now_ns: int) -> None:
        """Take note that work is taken up again."""
        if self._down_since is not None:
            self._down.append((self._down_since, self.second(now_ns)))
        self._down_since = None
        self.counts.back_ns = now_ns

    def second(self, now_ns: int) -> int:
        """Return the window of a moment, the first of this lane being 0."""
        return (now_ns - self._started_ns) // WINDOW_NS

    def came(self, created_ns: Array) -> None:
        """Take note of records that a source has read."""
        self._count(CAME, created_ns)

    def left(self, created_ns: Array, now_ns: int) -> None:
        """Take note of records that a sink has taken."""
        bound_s = self.contract.latency_s
        if bound_s is None or not len(created_ns):
            return
        bound_ns, first_ns = round(bound_s * 1e9), int(created_ns.min())
        oldest_ns, close_ns = now_ns - bound_ns, now_ns - round(_CLOSE * bound_ns)
        if first_ns < close_ns:
            self._count(CLOSE, created_ns[created_ns < close_ns])
        if first_ns < oldest_ns:
            self._count(LATE, created_ns[created_ns < oldest_ns])
            if first_ns < self.counts.back_ns:
                self.counts.add(CAUGHT_UP, self.second(now_ns), 1)

    def _count(self, what: int, created_ns: Array) -> None:
        first, last = self.second(int(created_ns.min())), self.second(int(created_ns.max()))
        if first == last:  # as it is but once a second, and much cheaper
            self.counts.add(what, first, len(created_ns))
            return
        seconds, counts = np.unique((created_ns - self._started_ns) // WINDOW_NS, return_counts=True)
        for second, count in zip(seconds.tolist(), counts.tolist(), strict=True):
            self.counts.add(what, second, count)

    def due(self, now_ns: int) -> range:
        """Return the windows that have ended and were not read yet."""
        return range(self._next, self.second(now_ns))

    def read(self, second: int, reading: Reading) -> None:
        """Take note of what was seen at the end of a window."""
        self._readings[second], self._next = reading, second + 1
        for old in [each for each in self._readings if each <= second - _OPEN_S]:
            self._settled.add(self._window(old, self._readings.pop(old)))

    def is_above(self, now_ns: int) -> bool:
        """Say whether more records were created in some window of late than is promised, whenever they were read."""
        here, most = self.second(now_ns), self.contract.rate_hz + self.contract.burst_records
        return any(self.counts.total(CAME, here - ago) > most for ago in range(_LATELY))

    def is_breaking(self, second: int, backlog: float) -> bool:
        """Say whether a window that has just ended is broken as it seems now."""
        return self.counts.total(LATE, second) > 0 or self._shortfall(backlog) > self.contract.burst_records

    def judged(self) -> list[Window]:
        """Return the windows of the last minute; one may still break by records of it that are found late."""
        return [self._window(second, reading) for second, reading in sorted(self._readings.items())]

    def verdict(self) -> Verdict:
        """Return how many windows were kept and broken so far, from the beginning on."""
        settled = self._settled
        verdict = Verdict(settled.kept, settled.close, Counter(settled.causes), list(settled.broken))
        for window in self.judged():
            verdict.add(window)
        return verdict

    def _shortfall(self, backlog: float) -> float:
        return max(0.0, backlog - self.contract.rate_hz * (self.contract.latency_s or 0.0))

    def _window(self, second: int, reading: Reading) -> Window:
        contract = self.contract
        records, late = self.counts.total(CAME, second), self.counts.total(LATE, second)
        close = self.counts.total(CLOSE, second)
        shortfall = self._shortfall(reading.backlog)
        broken = late > 0 or shortfall > contract.burst_records
        cause = DIED if self._died_in(second) else self._cause(second, records, reading) if broken else ""
        return Window(self._before + second, records, late, shortfall, cause, close)

    def _died_in(self, second: int) -> bool:
        """Say whether no lane was at work for some part of a window: what came then nobody has seen."""
        since = self._down_since
        return (since is not None and since <= second) or any(first <= second <= last for first, last in self._down)

    def _cause(self, second: int, records: int, reading: Reading) -> str:
        if any(self.counts.total(CAUGHT_UP, each) for each in (second - 1, second)):
            return DIED  # it had to catch up with what came while nobody was there
        before = self._readings.get(second - 1)
        if before is not None and reading.done > _CATCHES_UP * self.contract.rate_hz:
            broken = self._window(second - 1, before).cause
            if broken:
                return broken  # it had to catch up with what that has left
        return cause_of(self.contract, self.reserved, records, reading)


def cause_of(contract: Contract, reserved: float, records: int, reading: Reading) -> str:
    """Return why a window is broken, as far as that can be seen from the lane itself."""
    if records > contract.rate_hz + contract.burst_records:
        return ABOVE
    if not reserved:
        return ELSEWHERE
    if reading.used > _MUCH * reserved:
        return DEARER  # it had more than was reserved for it, whatever others had
    if reading.waited > TAKEN:
        return f"{WITHOUT_PROCESSOR} in real time: {', '.join(reading.rivals)}" if reading.rivals else WITHOUT_PROCESSOR
    if reading.blocked > _HELD:
        return f"{BLOCKED}: {reading.sink}"
    if reading.held > _HELD:
        return BLOCKED
    return DEARER if reading.used > reserved else SLOW
