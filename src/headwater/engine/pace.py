"""How a source is read while kernels of its flow are being compiled, and take a hundred times as long as compiled ones."""

from __future__ import annotations

FIRST = (
    16  #: records of the first read of a source with a clock: they run uncompiled, and show what there is to compile
)
PROBE_S = 0.5  #: that these are waited for before more are read, where they show nothing: a step of theirs may be slow
FEW = 64  #: records of a read while something is being compiled
LATE_S = 0.1  #: where records of a source with a clock are later than this, the flow cannot keep up uncompiled
#: That a source with a clock waits for the compiler, in all; then it is read whatever comes of it. A small or busy machine
#: takes more than a minute, and a rate that cannot be kept until then serves nobody.
LONGEST_S = 120.0


class Pace:
    """Decides for a source that loses nothing by waiting; moments are seconds of one clock.

    While something is being compiled, few records are read, and the next ones when these are through the flow: so none waits
    in a queue. A source with a clock, whose records fall due at a rate, would fall behind where that is not enough: it waits
    until all is compiled, and its clock starts anew then. A slow one does not wait.
    """

    def __init__(self, *, clocked: bool) -> None:
        self._clocked = clocked
        self._reads = 0
        self._behind = False
        self._late_s = 0.0
        self._probed_s: float | None = None  #: when the first records were seen on their way
        self._since_s: float | None = None  #: when the clock of the source was stopped
        self._stopped_s = 0.0  #: for how long it was, before that

    def most(self, compiling: bool) -> int | None:
        """Return how many records to read at most; None for as many as otherwise."""
        return FIRST if self._clocked and not self._reads else FEW if compiling else None

    def read(self, late_s: float, compiling: bool) -> None:
        """Take note that records were read, the oldest of which was due so long ago."""
        self._reads += 1
        self._behind = self._clocked and compiling and late_s > LATE_S
        self._late_s = late_s if self._behind else 0.0

    def waits(self, compiling: bool, idle: bool, now_s: float) -> bool:
        """Say whether the source is to be left alone for now; `idle` says that nothing is on its way in the flow."""
        if self.is_probing and not compiling and not idle:
            self._probed_s = now_s if self._probed_s is None else self._probed_s
            return now_s - self._probed_s < PROBE_S
        if not compiling or not self._reads or self.stopped_s(now_s) >= LONGEST_S:
            return False
        if self._clocked and self._since_s is None and (self._behind or self.is_probing):
            self._since_s = now_s - self._late_s  # by so much it was late already
        return self._behind or not idle

    @property
    def is_probing(self) -> bool:
        """Whether the first records were read and no others."""
        return self._clocked and self._reads == 1

    @property
    def is_behind(self) -> bool:
        """Whether it waits until all is compiled."""
        return self._behind

    def starts_anew(self, now_s: float) -> bool:
        """Say, once after it has waited, whether the clock of the source is to go on from now."""
        if self._since_s is None:
            return False
        self._stopped_s, self._since_s = self.stopped_s(now_s), None
        self._behind = False
        return True

    def stopped_s(self, now_s: float) -> float:
        """Return for how long the clock of the source was stopped so far; any thread may ask."""
        since_s = self._since_s  # which the thread of the source may change meanwhile
        return self._stopped_s + (0.0 if since_s is None else now_s - since_s)
