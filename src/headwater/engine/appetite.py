"""How much one turn consumes: all of a queue, half of it, or as many records as are worth a turn."""

from __future__ import annotations

from typing import Literal

Take = Literal["all", "half"] | int

#: How fast the measured cost of a step follows new measurements.
LEARNING = 0.1
#: A turn is worth about this much work: when `take` records are less, it consumes more of them.
_WORTH_NS = 400_000
_LONG = 4  #: a queue of more than so many turns is worked off in turns that are longer, by up to as much
_MOST_TIMES, _MOST = 32, 2000  #: but not more than so many times `take`, nor so many records unless `take` is more


class Appetite:
    """What one step instance consumes in a turn, learned from what its records cost."""

    __slots__ = ("_long", "_most", "_usual", "cost_ns", "take")

    def __init__(self, take: Take) -> None:
        self.take = take
        self.cost_ns = 0.0  #: measured compute time per record, a moving average
        self._usual = self._long = take if isinstance(take, int) else 0
        self._most = min(_MOST_TIMES * take, max(_MOST, take)) if isinstance(take, int) else 0

    def learn(self, count: int, elapsed_ns: int) -> None:
        """Take note of what some records cost."""
        per_record = elapsed_ns / count
        self.cost_ns = cost = self.cost_ns + LEARNING * (per_record - self.cost_ns) if self.cost_ns else per_record
        if type(self.take) is int:
            worth = int(_WORTH_NS / (cost + 1))
            self._usual = min(max(worth, self.take), self._most)
            self._long = min(max(_LONG * worth, self.take), self._most)

    def of(self, waiting: int) -> int:
        """Return how many of the waiting records a turn consumes."""
        if self.take == "all":
            return waiting
        if self.take == "half":
            return (waiting + 1) // 2
        return min(waiting, max(self._usual, min(waiting // _LONG, self._long)))
