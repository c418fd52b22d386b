"""The tasks of RIoTBench's ETL and STATS as the benchmark has them: one record for each observation of a message.

A record is (message number, time, sensor, longitude, latitude, which of the five numbers it is, its value). What all tasks
do is what `tasks` does to a whole row.
"""

from __future__ import annotations

from random import random
from typing import Any

import tasks

Row = tuple[Any, ...]


def observations(row: Row) -> list[Row]:
    """Return a record for each number of a row."""
    head = row[:5]
    return [(*head, kind, value) for kind, value in enumerate(row[5:])]


def key(record: Row) -> str:
    """Return whose history a record belongs to."""
    return f"{record[2]}/{record[5]}"


def in_range(record: Row) -> Row:
    """Take a value out that lies outside its range."""
    low, high = tasks.RANGES[record[5]]
    return record if low <= record[6] <= high else (*record[:6], None)


class Interpolation:
    """Fills a gap with the mean of the last five valid values, or 0."""

    def __init__(self) -> None:
        self.last: list[float] = []

    def fill(self, record: Row) -> Row:
        """Return the record with a value."""
        last, value = self.last, record[6]
        if value is None:
            return (*record[:6], sum(last) / len(last) if last else 0.0)
        last.append(value)
        if len(last) > 5:
            del last[0]
        return record


class Join:
    """Puts the records of one sensor's messages together again."""

    def __init__(self) -> None:
        self.open: dict[int, list[Row]] = {}

    def add(self, record: Row) -> Row | None:
        """Return the row that a record completes."""
        number = record[0]
        records = self.open.setdefault(number, [])
        records.append(record)
        if len(records) < len(tasks.NUMBERS):
            return None
        del self.open[number]
        values = {each[5]: each[6] for each in records}
        return (*record[:5], values[0], values[1], values[2], values[3], values[4])


class Kalman:
    """A Kalman filter."""

    def __init__(self) -> None:
        self.estimate, self.variance = 0.0, 30.0

    def smooth(self, record: Row) -> Row:
        """Return the record with the estimate in place of its value."""
        before = self.variance + 0.125
        gain = before / (before + 0.32)
        self.variance = (1 - gain) * before
        self.estimate += gain * (record[6] - self.estimate)
        return (*record[:6], self.estimate)


class Regression:
    """A sliding regression over ten values, prolonged by ten."""

    def __init__(self) -> None:
        self.last: list[float] = []
        self.count = 0

    def predict(self, record: Row) -> Row | None:
        """Return the predictions as a text, once there were more than ten values."""
        self.count += 1
        self.last.append(record[6])
        if len(self.last) > 10:
            del self.last[0]
        if self.count <= 10:
            return None
        return record[0], record[2], record[5], "SLR", tasks.line(self.last)


class Moment:
    """A second-order moment, estimated from ten values, of which a new one replaces any."""

    def __init__(self) -> None:
        self.items: list[float] = []
        self.counts: list[int] = []
        self.total = self.seen = 0

    def estimate(self, record: Row) -> Row:
        """Return the estimate as a text."""
        value, items, counts = record[6], self.items, self.counts
        self.seen += 1
        if value in items:
            counts[items.index(value)] += 1
            self.total += 1
        elif len(items) < 10:
            items.append(value)
            counts.append(1)
            self.total += 1
        else:
            place = int(random() * 10)
            self.total += 1 - counts[place]
            items[place], counts[place] = value, 1
        return record[0], record[2], record[5], "SOM", "%.7g" % (self.seen * (2 * self.total - 10) / len(items))


class Distinct:
    """How many distinct sensors there are."""

    def __init__(self) -> None:
        self.ranks, self.total = [0] * 32, 0

    def count(self, record: Row) -> Row:
        """Return the estimate as a text."""
        bucket, rank = tasks.bucket_and_rank(record[2])
        if rank > self.ranks[bucket]:
            self.total += rank - self.ranks[bucket]
            self.ranks[bucket] = rank
        return record[0], record[2], record[5], "DA", str(int(0.79402 * 32 * 2 ** (self.total / 32)))
