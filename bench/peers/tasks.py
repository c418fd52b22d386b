"""The tasks of RIoTBench's CITY flows in plain Python, as the peers run them: one row for each message.

A row is (message number, time, sensor, longitude, latitude, the five numbers). Numbers are Python's own 64-bit floats; what
comes out is compared with a tolerance.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from random import random
from typing import Any

import msgspec

Row = tuple[Any, ...]

NUMBERS = ("temperature", "humidity", "light", "dust", "airquality_raw")
RANGES = ((0.7, 35.1), (20.3, 69.1), (0.0, 5153.0), (83.36, 3322.67), (12.0, 49.0))


class Entry(msgspec.Struct):
    n: str
    v: str | float | None = None
    sv: str | None = None


class Message(msgspec.Struct):
    e: list[Entry]
    bt: int | str


_decode = msgspec.json.Decoder(Message).decode


def parse(numbered: tuple[int, bytes]) -> Row:
    """Read a SenML message into a row."""
    number, raw = numbered
    message = _decode(raw)
    values = {entry.n: entry.v if entry.v is not None else entry.sv for entry in message.e}
    return (
        number,
        int(message.bt),
        values["source"],
        values["longitude"],
        values["latitude"],
        float(values["temperature"]),
        float(values["humidity"]),
        float(values["light"]),
        float(values["dust"]),
        float(values["airquality_raw"]),
    )


def in_range(row: Row) -> Row:
    """Take the values out that lie outside their ranges."""
    _, _, _, _, _, t, h, l, d, a = row  # noqa: E741
    if 0.7 <= t <= 35.1 and 20.3 <= h <= 69.1 and 0.0 <= l <= 5153.0 and 83.36 <= d <= 3322.67 and 12.0 <= a <= 49.0:
        return row
    values = (value if low <= value <= high else None for value, (low, high) in zip(row[5:], RANGES, strict=True))
    return (*row[:5], *values)


class Known:
    """Asks whether a row's sensor is known; as in the original, the answer changes no output."""

    def __init__(self, sensors: Iterable[str]) -> None:
        self.sensors, self.strangers = frozenset(sensors), 0

    def ask(self, row: Row) -> Row:
        """Return the row."""
        if row[2] not in self.sensors:
            self.strangers += 1
        return row


class Interpolation:
    """Fills a gap with the mean of one sensor's last five valid values of the kind, or 0."""

    def __init__(self, last: list[list[float]] | None = None) -> None:
        self.last = last if last is not None else [[] for _ in NUMBERS]

    def fill(self, row: Row) -> Row:
        """Return the row without gaps."""
        if None not in row:
            for history, value in zip(self.last, row[5:], strict=True):
                history.append(value)
                if len(history) > 5:
                    del history[0]
            return row
        values = list(row)
        for place, history in enumerate(self.last, 5):
            value = values[place]
            if value is None:
                values[place] = sum(history) / len(history) if history else 0.0
            else:
                history.append(value)
                if len(history) > 5:
                    del history[0]
        return tuple(values)


def annotate(row: Row, notes: dict[str, tuple[str, str]]) -> Row:
    """Add what is known of the row's sensor."""
    return row + notes[row[2]]


_SENML = (
    '{"e":[{"sv":"%s","u":"string","n":"source"},{"v":"%s","u":"lon","n":"longitude"},'
    '{"v":"%s","u":"lat","n":"latitude"},{"v":"%s","u":"far","n":"temperature"},{"v":"%s","u":"per","n":"humidity"},'
    '{"v":"%s","u":"per","n":"light"},{"v":"%s","u":"per","n":"dust"},{"v":"%s","u":"per","n":"airquality_raw"},'
    '{"sv":"%s","u":"string","n":"location"},{"sv":"%s","u":"string","n":"type"}],"bt":"%s"}'
)


def senml(row: Row) -> tuple[int, str]:
    """Write an annotated row as a SenML message."""
    return row[0], _SENML % (*row[2:], row[1])


class Kalman:
    """One sensor's five Kalman filters; they share their variance, which depends on the number of values alone."""

    def __init__(self) -> None:
        self.estimate, self.variance = [0.0] * 5, 30.0

    def smooth(self, row: Row) -> Row:
        """Return the row with estimates in place of the numbers."""
        before = self.variance + 0.125
        gain = before / (before + 0.32)
        self.variance = (1 - gain) * before
        self.estimate = [x + gain * (z - x) for x, z in zip(self.estimate, row[5:], strict=True)]
        return (*row[:5], *self.estimate)


_LINE = "%.7g#" * 10
_PLACES = tuple(k - 4.5 for k in range(10))
_AHEAD = tuple(10 + k - 4.5 for k in range(10))


class Regression:
    """One sensor's five sliding regressions over ten values each, prolonged by ten."""

    def __init__(self) -> None:
        self.last: list[list[float]] = [[] for _ in NUMBERS]
        self.count = 0

    def predict(self, row: Row) -> Row | None:
        """Return the predictions as texts, once there were more than ten values."""
        self.count += 1
        for history, value in zip(self.last, row[5:], strict=True):
            history.append(value)
            if len(history) > 10:
                del history[0]
        if self.count <= 10:
            return None
        return (row[0], row[2], "SLR", *[line(history) for history in self.last])


def line(history: list[float]) -> str:
    """Return where a line through ten values goes on, as a text."""
    mean = sum(history) / 10
    slope = sum([x * y for x, y in zip(_PLACES, history, strict=True)]) / 82.5
    return _LINE % tuple([mean + slope * ahead for ahead in _AHEAD])


class Moment:
    """One sensor's five second-order moments, each estimated from ten values, of which a new one replaces any."""

    def __init__(self) -> None:
        self.items: list[list[float]] = [[] for _ in NUMBERS]
        self.counts: list[list[int]] = [[] for _ in NUMBERS]
        self.totals = [0] * 5
        self.seen = 0

    def estimate(self, row: Row) -> Row:
        """Return the estimates as texts."""
        self.seen += 1
        out = []
        for k, (value, items, counts) in enumerate(zip(row[5:], self.items, self.counts, strict=True)):
            if value in items:
                counts[items.index(value)] += 1
                self.totals[k] += 1
            elif len(items) < 10:
                items.append(value)
                counts.append(1)
                self.totals[k] += 1
            else:
                place = int(random() * 10)
                self.totals[k] += 1 - counts[place]
                items[place], counts[place] = value, 1
            out.append("%.7g" % (self.seen * (2 * self.totals[k] - 10) / len(items)))
        return (row[0], row[2], "SOM", *out)


@lru_cache(maxsize=100_000)
def bucket_and_rank(sensor: str, bits: int = 5) -> tuple[int, int]:
    """Return where a sensor's hash falls, and how many zero bits it ends with."""
    head = int.from_bytes(hashlib.sha1(sensor.encode()).digest()[:4], "little", signed=True)
    rest = head >> bits
    return head & (1 << bits) - 1, 31 if rest == 0 else (rest & -rest).bit_length() - 1


class Distinct:
    """How many distinct sensors there are; the five kinds come from the same sensors, so one sketch serves all."""

    def __init__(self) -> None:
        self.ranks, self.total = [0] * 32, 0

    def count(self, row: Row) -> Row:
        """Return the estimate, for each kind, as texts."""
        bucket, rank = bucket_and_rank(row[2])
        if rank > self.ranks[bucket]:
            self.total += rank - self.ranks[bucket]
            self.ranks[bucket] = rank
        estimate = str(int(0.79402 * 32 * 2 ** (self.total / 32)))
        return (row[0], row[2], "DA", estimate, estimate, estimate, estimate, estimate)


_CLASSES = ("BAD", "GOOD", "VERYGOOD")


def classify(row: Row) -> Row:
    """Tell a row's class by the benchmark's decision tree."""
    air = row[9]
    number = 0 if air <= 22 else 1 if air <= 29 else 2
    return row[0], row[2], "DTC", float(number), _CLASSES[number]


def regress(row: Row) -> Row:
    """Return message, sensor, what was measured, and what the benchmark's regression predicts."""
    predicted = -0.5106896760749683 * row[5] + 0.1550345386077423 * row[6] - 0.0043941074441107295 * row[8]
    return row[0], row[2], row[9], predicted + 37.442739000196276


class Average:
    """The mean of every five values of one sensor."""

    def __init__(self) -> None:
        self.total, self.count = 0.0, 0

    def add(self, forecast: Row) -> Row:
        """Return the forecast with the mean that it completes, or None."""
        self.total += forecast[2]
        self.count += 1
        if self.count < 5:
            return (*forecast, None)
        mean = self.total / 5
        self.total, self.count = 0.0, 0
        return (*forecast, mean)


class Error:
    """Measures the error of forecasts in units of the latest mean of any sensor."""

    def __init__(self) -> None:
        self.latest = 0.0

    def estimate(self, forecast: Row) -> Row:
        """Return the error; infinite before the first mean, as in the original."""
        number, sensor, measured, predicted, mean = forecast
        if mean is not None:
            self.latest = mean
        error = measured - predicted
        if self.latest:
            error /= self.latest
        else:
            error *= float("inf")
        return number, sensor, "MLR", error, ""
