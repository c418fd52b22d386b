"""A source of several splits in memory: read in runs as a client of Kafka hands them out, one split after the other."""

import json
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import numpy as np

from headwater import Flow, Tumbling, agg, io
from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.flow.ranges import Ranges
from headwater.flow.splits import Letter, SplitBatch

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = Schema.of({"at": "time", "split": int, "n": int, "value": float})


def hour_in(splits=4, count=20_000, seconds=3600):
    """Return rows of each split, in order, which all span the same time."""
    rows = [[] for _ in range(splits)]
    for n in range(count):
        at = START + timedelta(seconds=n * seconds / count)
        rows[n % splits].append({"at": at, "split": n % splits, "n": n, "value": float(n % 97)})
    return rows


def counted(source, out, before=lambda stream: stream, lateness="5 s", **options):
    """Return a flow that counts and sums by minute and split, and writes down what is late."""
    flow = Flow("counted")
    timed = before(flow.read("in", source)).event_time("timed", "at", lateness=lateness, **options)
    windows = timed.key_by("split").window("minute", Tumbling("1 min"), n=agg.count(), sum=agg.sum("value"))
    windows.write("out", io.JsonLines(out))
    windows.late.write("late", io.JsonLines(out.with_name("late.jsonl")))
    return flow


def plainly(rows, day=0, leave_out=()):
    """Count and sum by minute and split, without any of ours."""
    found = defaultdict(lambda: [0, 0.0])
    for row in (row for split in rows for row in split if row is not None and row["n"] not in leave_out):
        minute = (row["at"] - START) // timedelta(minutes=1) + day * 1440
        found[row["split"], minute][0] += 1
        found[row["split"], minute][1] += row["value"]
    return {key: tuple(value) for key, value in found.items()}


def lines(path):
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


def windows_in(out):
    found = [((row["split"], _minute(row["start"])), (row["n"], row["sum"])) for row in lines(out)]
    assert len(dict(found)) == len(found)
    return dict(found)


def _minute(text):
    return (datetime.fromisoformat(text) - START) // timedelta(minutes=1)


class Splits:
    """Rows by split; a row None is no record. `run` records come of a split before it is another's turn.

    On Spark a micro-batch has a run of every split, the first ones longer. With `in_order`, a split is read to its end
    before the next is begun.
    """

    resume = "position"
    splits = True
    schema = SCHEMA

    def __init__(self, rows, run=1_500, ends=True, in_order=False):
        self.rows, self.run, self.ends, self.in_order = rows, run, ends, in_order

    @property
    def identity(self):
        return {"splits": len(self.rows)}

    def open(self, reject, position=None):
        return SplitsReader(self, reject, position)

    def ranges(self, wanted):
        return SplitRanges(self)


class SplitRanges(Ranges):
    """The same on Spark: what is read at once of a split is cut into two pieces."""

    has_end = True

    def __init__(self, source):
        self._source = source

    def start(self):
        return {"ended": False, "at": [0] * len(self._source.rows)}

    def advance(self, at):
        ends = list(map(len, self._source.rows))
        reached = list(at["at"])
        for split in sorted(self.behind(at))[: 1 if self._source.in_order else None]:
            reached[split] = min(ends[split], reached[split] + self._source.run // (1 + split))
        return {"ended": reached == ends, "at": reached}

    def behind(self, at):
        return {split for split, place in enumerate(at["at"]) if place < len(self._source.rows[split])}

    def split_of(self, piece):
        return piece[0]

    def finish(self, at, until_ns):
        return at

    def cut(self, start, end):
        pairs = enumerate(zip(start["at"], end["at"], strict=True))
        halves = [(split, first, (first + last) // 2, last) for split, (first, last) in pairs]
        pieces = [piece for split, *at in halves for piece in zip((split, split), at, at[1:], strict=False)]
        return [piece for piece in pieces if piece[2] > piece[1]]

    def batches(self, piece, reject):
        split, first, last = piece
        for at in range(first, last, 300):
            yield Batch.of_rows(self._source.rows[split][at : min(at + 300, last)], SCHEMA)


class SplitsReader:
    def __init__(self, source, reject, position):
        self._source, self._reject = source, reject
        self.position = {str(split): 0 for split in range(len(source.rows))} | dict(position or {})
        self._turn, self._run = 0, source.run
        self.held = set()
        self.most_held = 0

    def read(self, limit, timeout_s):
        found = self.read_splits(limit, timeout_s)
        for letter in () if found is None else found.letters:
            self._reject(letter.text, letter.error)
        return None if found is None else found.batch

    def read_splits(self, limit, timeout_s):
        rows, splits, after, letters, left = [], [], [], [], limit
        for _ in range(len(self._source.rows)):
            split = self._turn
            at = self.position[str(split)]
            take = 0 if split in self.held else min(left, self._run, len(self._source.rows[split]) - at)
            left -= take
            for place, row in enumerate(self._source.rows[split][at : at + take], at):
                if row is None:
                    letters.append(Letter(split, place, "no record", f"split {split} place {place}"))
                else:
                    rows.append(row)
                    splits.append(split)
                    after.append(place + 1)
            self.position = {**self.position, str(split): at + take}
            self._run -= take
            if self._run == 0 or take == 0:
                self._turn, self._run = (split + 1) % len(self._source.rows), self._source.run
            if not left:
                break
        if left == limit and self._source.ends and not self.behind():
            return None
        numbers = np.array(splits, np.int64), np.array(after, np.int64)
        return SplitBatch(Batch.of_rows(rows, SCHEMA), *numbers, letters)

    def behind(self):
        ends = enumerate(map(len, self._source.rows))
        return {split for split, end in ends if self.position[str(split)] < end}

    def hold(self, splits):
        self.held = set(splits)
        self.most_held = max(self.most_held, len(self.held))

    def close(self):
        pass
