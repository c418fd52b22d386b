"""When records come: at random, evenly, or as they were recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from headwater.errors import RunError
from headwater.net.arrays import Floats


class Arrivals(Protocol):
    """Gives the moments at which a source's records are created."""

    def times_s(self, rate_hz: float, until_s: float, random: np.random.Generator) -> Floats:
        """Return rising times from 0 to `until_s` for a source of `rate_hz` records per second."""


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent records: exponential gaps."""

    def times_s(self, rate_hz: float, until_s: float, random: np.random.Generator) -> Floats:
        """Return a Poisson process."""
        count = random.poisson(rate_hz * until_s)
        times = np.cumsum(random.standard_exponential(count + 1))
        # the first `count` of count + 1 exponential gaps, scaled to the span, are Poisson given their number
        return np.asarray(times[:-1] * (until_s / times[-1])) if count else np.zeros(0)


@dataclass(frozen=True, slots=True)
class Constant:
    """Evenly spaced records."""

    def times_s(self, rate_hz: float, until_s: float, random: np.random.Generator) -> Floats:
        """Return a comb."""
        return np.arange(int(rate_hz * until_s)) / rate_hz


@dataclass(frozen=True, eq=False)
class RecordedArrivals:
    """The moments of a recorded stream; the rate is what it was."""

    moments_s: Floats

    def __post_init__(self) -> None:
        if len(self.moments_s) and (not np.isfinite(self.moments_s).all() or (np.diff(self.moments_s) < 0).any()):
            raise RunError("recorded arrivals must be finite and in order of time")

    def times_s(self, rate_hz: float, until_s: float, random: np.random.Generator) -> Floats:
        """Return the recording up to `until_s`."""
        return self.moments_s[self.moments_s <= until_s]
