"""Latencies counted in buckets of nearly equal ratio: percentiles within 3 %, and counts that add up over runs and sites."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

#: A float's own bits make the buckets: the exponent and the first five bits of the mantissa, so 32 to a doubling.
SHIFT = 47
BUCKETS = 64 * 32
FIRST = int(np.float64(1).view(np.int64)) >> SHIFT  #: the bits of the first bucket
#: A tally has a count for each bucket, and behind them the sum of all durations, by its upper and lower halves so that
#: neither overflows, and the largest.
TALLY = BUCKETS + 3
UPPER, LOWER, LARGEST = range(BUCKETS, TALLY)
HALF = 20  #: bits of a duration that are in its lower half


class Histogram:
    """Counts durations in buckets of nearly equal ratio: percentiles are within 3 %, and histograms add up.

    >>> h = Histogram()
    >>> h.add(np.array([1_000_000, 2_000_000, 4_000_000]))
    >>> round(h.percentile(50) / 1e6, 1), h.count
    (2.0, 3)
    """

    __slots__ = ("buckets", "count", "largest", "total")

    def __init__(self) -> None:
        self.buckets: npt.NDArray[np.int64] = np.zeros(BUCKETS, np.int64)
        self.count = 0
        self.total = 0
        self.largest = 0

    def add(self, durations_ns: npt.NDArray[np.int64]) -> None:
        """Count durations in nanoseconds; below one counts as one."""
        add_rows([self], np.asarray(durations_ns).reshape(1, -1))

    def add_tally(self, tally: npt.NDArray[np.int64], times: int = 1) -> None:
        """Count in durations that are tallied, each for `times` of them."""
        counts = tally[:BUCKETS]
        self.buckets += counts * times
        self.count += int(counts.sum()) * times
        self.total += ((int(tally[UPPER]) << HALF) + int(tally[LOWER])) * times
        self.largest = max(self.largest, int(tally[LARGEST]))

    def merge(self, other: Histogram) -> None:
        """Count in all that another histogram has counted."""
        self.buckets += other.buckets
        self.count += other.count
        self.total += other.total
        self.largest = max(self.largest, other.largest)

    def minus(self, earlier: Histogram) -> Histogram:
        """Return what was counted since `earlier`, a copy of this histogram."""
        since = Histogram()
        since.buckets = self.buckets - earlier.buckets
        since.count, since.total = self.count - earlier.count, self.total - earlier.total
        since.largest = self.largest
        return since

    def copy(self) -> Histogram:
        """Return a histogram of the same counts."""
        return Histogram().plus(self)

    def plus(self, other: Histogram) -> Histogram:
        """Merge and return self."""
        self.merge(other)
        return self

    def percentile(self, percent: float) -> float:
        """Return the duration in nanoseconds that `percent` of the values do not exceed; 0 when empty."""
        if self.count == 0:
            return 0.0
        rank = max(1, int(np.ceil(self.count * percent / 100)))
        bucket = int(np.searchsorted(np.cumsum(self.buckets), rank))
        lower, upper = (
            np.array([bucket + FIRST, bucket + 1 + FIRST]).astype(np.int64).__lshift__(SHIFT).view(np.float64)
        )
        return float(min((lower + upper) / 2, self.largest))

    def by_doubling(self) -> list[tuple[float, int]]:
        """Return how many were counted up to each power of two, in milliseconds, from the power before; none that is 0.

        >>> h = Histogram()
        >>> h.add(np.array([900_000, 1_000_000, 3_000_000]))
        >>> h.by_doubling()
        [(1.048576, 2), (4.194304, 1)]
        """
        counts = self.buckets.reshape(-1, 32).sum(axis=1)
        return [(2.0 ** (int(at) + 1) / 1e6, int(counts[at])) for at in np.flatnonzero(counts)]

    def mean(self) -> float:
        """Return the mean in nanoseconds."""
        return self.total / self.count if self.count else 0.0

    def to_json(self) -> dict[str, float]:
        """Return the usual percentiles in milliseconds."""
        return {name: round(self.percentile(p) / 1e6, 4) for name, p in (("p50", 50), ("p95", 95), ("p99", 99))}


def add_rows(histograms: list[Histogram], durations_ns: npt.NDArray[np.int64], times: int = 1) -> None:
    """Count each row of durations in a histogram of its own, all in one pass; each stands for `times` of them."""
    if not durations_ns.size:
        return
    for histogram, tally in zip(histograms, tallied(durations_ns), strict=True):
        histogram.add_tally(tally, times)


def tallied(durations_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the tally of each row of durations, of which there are some."""
    rows = len(durations_ns)
    at_least_one = np.maximum(durations_ns, 1)
    buckets = at_least_one.astype(np.float64).view(np.int64) >> SHIFT
    buckets -= (FIRST - BUCKETS * np.arange(rows))[:, None]
    tallies = np.empty((rows, TALLY), np.int64)
    tallies[:, :BUCKETS] = np.bincount(buckets.ravel(), minlength=BUCKETS * rows).reshape(rows, BUCKETS)
    tallies[:, UPPER] = (at_least_one >> HALF).sum(axis=1)
    tallies[:, LOWER] = (at_least_one & ((1 << HALF) - 1)).sum(axis=1)
    tallies[:, LARGEST] = at_least_one.max(axis=1)
    return tallies
