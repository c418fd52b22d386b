"""How much a micro-batch reads of a source that has more waiting: as much as keeps it near the time that it should take."""

from __future__ import annotations

import time
from dataclasses import replace

from headwater.flow.ranges import Offset, Ranges, Sizes

FIRST = 1 / 16  #: of what a micro-batch may read at most, before it is known how fast that goes
_MOST, _LEAST = 2.0, 0.25  #: how much more, or less, one may read than the one before
_SMALLEST = 1 / 64  #: less would take no less time: planning and writing a micro-batch take their own


class Pace:
    """Changes the sizes of a source from micro-batch to micro-batch."""

    def __init__(self, target_s: float) -> None:
        self._target_s, self._share = target_s, FIRST
        self._sizes: Sizes | None = None  #: the largest
        self._since: float | None = None  #: when a micro-batch was planned behind which more waited

    def advance(self, ranges: Ranges, at: Offset, now: float | None = None) -> Offset:
        """Return how far the next micro-batch reads; called once for each, when the one before is done."""
        now = time.monotonic() if now is None else now
        self._sizes = self._sizes or ranges.sizes
        if self._since is not None and now > self._since:
            self._share = changed_share(self._share, self._target_s / (now - self._since))
        ranges.sizes = _part_of(self._sizes, self._share)
        end = ranges.advance(at)
        # what a source had no more for tells nothing about how long a full one takes
        self._since = now if end != at and not end["ended"] and ranges.advance(end) != end else None
        return end


def changed_share(share: float, change: float) -> float:
    """Return which part of the most a micro-batch should read, where so many times as much would take the time it should."""
    return max(_SMALLEST, min(1.0, share * max(_LEAST, min(_MOST, change))))


def _part_of(sizes: Sizes, share: float) -> Sizes:
    return replace(
        sizes,
        batch_bytes=max(1, round(sizes.batch_bytes * share)),
        batch_records=max(1, round(sizes.batch_records * share)),
    )
