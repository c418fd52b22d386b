"""Rates: how many records a second an open-loop source creates, as a function of time.

>>> step([("0 s", 1000), ("10 s", 5000)]).due(12)
20000.0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import cos, floor, inf, pi
from typing import Protocol

import numpy as np

from headwater.data.column import Array
from headwater.errors import FlowError
from headwater.flow.duration import Duration, microseconds


class Rate(Protocol):
    """A number of records due over time, which never falls."""

    def due(self, t_s: float) -> float:
        """Return how many records are due within the first `t_s` seconds."""

    def when(self, numbers: Array) -> Array:
        """Return the seconds at which the records of these numbers (from 1) are due; infinity for never."""


@dataclass(frozen=True)
class Pieces:
    """A rate that is constant between set moments, and starts over after `period_s` when that is given."""

    starts_s: tuple[float, ...]
    rates_hz: tuple[float, ...]
    period_s: float | None = None

    def __post_init__(self) -> None:
        edges = (*self.starts_s, inf if self.period_s is None else self.period_s)
        if edges[0] != 0 or any(b <= a for a, b in pairwise(edges)):
            raise FlowError(f"a rate's moments start at 0 s and rise; got {', '.join(f'{t:g} s' for t in edges)}")
        for rate_hz in self.rates_hz:
            if not 0 <= rate_hz < inf:
                raise FlowError(f"a rate is 0 or more records per second; got {rate_hz!r}")

    @cached_property
    def _before(self) -> Array:
        """Records due before each piece starts and, for a rate that starts over, in a whole period."""
        ends = (*self.starts_s[1:], self.period_s or self.starts_s[-1])
        lengths = np.subtract(ends, self.starts_s)
        before: Array = np.concatenate([[0.0], np.cumsum(lengths * self.rates_hz)])
        return before

    def due(self, t_s: float) -> float:
        """Return how many records are due within the first `t_s` seconds."""
        rounds = floor(t_s / self.period_s) if self.period_s else 0
        t_s -= rounds * (self.period_s or 0)
        piece = int(np.searchsorted(self.starts_s, t_s, "right")) - 1
        within = (t_s - self.starts_s[piece]) * self.rates_hz[piece]
        return float(rounds * self._before[-1] + self._before[piece] + within)

    def when(self, numbers: Array) -> Array:
        """Return the seconds at which the records of these numbers are due."""
        rounds, numbers = _rounds(numbers, float(self._before[-1]), self.period_s)
        # the first piece by whose end the record is due: a piece of rate 0 is never that one, save a last one
        piece = np.searchsorted(self._before[1 : len(self.starts_s)], numbers, "left")
        with np.errstate(divide="ignore"):
            within = (numbers - self._before[piece]) / np.asarray(self.rates_hz)[piece]
        times: Array = rounds * (self.period_s or 0) + np.asarray(self.starts_s)[piece] + within
        return times


@dataclass(frozen=True)
class Sine:
    """A rate that swings round `mean_hz` by `amplitude_hz`, once in `period_s`, rising first."""

    mean_hz: float
    amplitude_hz: float
    period_s: float

    def __post_init__(self) -> None:
        if not 0 <= self.amplitude_hz <= self.mean_hz < inf or self.mean_hz == 0:
            raise FlowError(
                f"a sine's mean is above 0 and its amplitude at most its mean, lest the rate fall below 0; "
                f"got mean {self.mean_hz:g}, amplitude {self.amplitude_hz:g}"
            )
        if not 0 < self.period_s < inf:
            raise FlowError(f"a sine's period is above 0 s; got {self.period_s:g} s")

    def due(self, t_s: float) -> float:
        """Return how many records are due within the first `t_s` seconds."""
        turn = 2 * pi / self.period_s
        return self.mean_hz * t_s + self.amplitude_hz / turn * (1 - cos(turn * t_s))

    def when(self, numbers: Array) -> Array:
        """Return the seconds at which the records of these numbers are due."""
        rounds, numbers = _rounds(numbers, self.mean_hz * self.period_s, self.period_s)
        times, due = self._table
        return rounds * self.period_s + np.interp(numbers, due, times)

    @cached_property
    def _table(self) -> tuple[Array, Array]:
        """One period as 16,384 chords: off by at most amplitude × period × 3e-9 records."""
        times = np.linspace(0, self.period_s, 2**14 + 1)
        return times, np.array([self.due(t) for t in times])


def _rounds(numbers: Array, each: float, period_s: float | None) -> tuple[Array, Array]:
    """Split record numbers into whole periods and the rest, which is above 0 and at most a period's worth."""
    if period_s is None:
        return np.zeros(len(numbers)), numbers
    rounds = np.ceil(numbers / each) - 1
    return rounds, numbers - rounds * each


def constant(rate_hz: float) -> Pieces:
    """Create records at one rate.

    >>> constant(2000).due(1.5)
    3000.0
    """
    return Pieces((0.0,), (float(rate_hz),))


def step(rates: Sequence[tuple[Duration, float]]) -> Pieces:
    """Change the rate at set moments: `step([("0 s", 1000), ("10 s", 5000)])`."""
    if not rates:
        raise FlowError("step takes moments and rates, such as [('0 s', 1000), ('10 s', 5000)]; got none")
    return Pieces(tuple(_seconds(start) for start, _ in rates), tuple(float(rate_hz) for _, rate_hz in rates))


def burst(base_hz: float, peak_hz: float, *, every: Duration, length: Duration) -> Pieces:
    """Create `peak_hz` for `length` at the end of each `every`, and `base_hz` between.

    >>> burst(100, 1000, every="10 s", length="2 s").due(10)
    2800.0
    """
    period_s, length_s = _seconds(every), _seconds(length)
    if base_hz <= 0 and peak_hz <= 0:
        raise FlowError(f"a burst needs a base or a peak above 0; got {base_hz:g} and {peak_hz:g}")
    return Pieces((0.0, period_s - length_s), (float(base_hz), float(peak_hz)), period_s)


def sine(mean_hz: float, amplitude_hz: float, *, period: Duration) -> Sine:
    """Swing the rate between mean − amplitude and mean + amplitude.

    >>> sine(1000, 500, period="60 s").due(60)
    60000.0
    """
    return Sine(float(mean_hz), float(amplitude_hz), _seconds(period))


def rate_of(rate: Rate | float) -> Rate:
    """Take a number as a constant rate."""
    return constant(rate) if isinstance(rate, int | float) else rate


def _seconds(duration: Duration) -> float:
    return microseconds(duration) / 1e6
