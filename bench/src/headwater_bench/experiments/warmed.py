"""Warming a flow up: its source gives messages as fast as they are taken, and once it is let go, others at a rate."""

from __future__ import annotations

import threading

from headwater.data.batch import Batch, stamped
from headwater.data.schema import Schema
from headwater.engine import EngineRun
from headwater.flow.endpoints import Reject
from headwater.io import Generate
from headwater.metrics import Report, Sample


class Warmed:
    """Hands out `first` messages at full speed, none until `go` is set, and from then on the others at their rate."""

    def __init__(self, source: Generate, first: int) -> None:
        self.source, self.first = source, first
        self.go = threading.Event()

    @property
    def schema(self) -> Schema:
        """The columns of the messages."""
        return self.source.schema

    def open(self, reject: Reject) -> _WarmedReader:
        """Start with the first message."""
        return _WarmedReader(self, reject)

    def __str__(self) -> str:
        return f"{self.source}, after {self.first:,} at full speed"


class _WarmedReader:
    def __init__(self, warmed: Warmed, reject: Reject) -> None:
        self._warmed, self._given = warmed, 0
        self._take, _ = warmed.source.numbered(reject)
        self._paced = warmed.source.open(reject, warmed.first)  # its time starts when it is first read

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        count = min(limit, self._warmed.first - self._given)
        if count:
            batch = self._take(self._given, count)
            self._given += count
            return Batch(batch.columns, count, stamped(count))
        if not self._warmed.go.is_set():
            self._warmed.go.wait(timeout_s)
            return Batch.none(self._warmed.schema)
        return self._paced.read(limit, timeout_s)

    def close(self) -> None:
        self._paced.close()


def copies_of(report: Report, warm: Sample) -> float:
    """Return how many results a message has had since a flow was warm, and raise if any was lost on the way."""
    if report.dead_letters or report.shed or report.left:
        raise AssertionError(
            f"{report.flow}: {report.dead_letters} dead letters, shed {report.shed}, {report.left} left"
        )
    records = report.last.records_in - warm.records_in
    return (sum(report.last.records_out.values()) - sum(warm.records_out.values())) / max(1, records) or 1.0


def when_done_with(running: EngineRun, count: int) -> Sample:
    """Wait until so many messages were taken and all that came of them is out."""
    looks = 0  # in a row at which that was so: a single one may fall between two hands
    while True:
        sample = running.sample()
        is_done = sample.records_in == count and not any(step.left for step in sample.steps.values())
        looks = looks + 1 if is_done else 0
        if looks == 2:
            return sample
        report = running.wait(0.01)
        if report is not None:
            records = report.last.records_in
            raise AssertionError(f"{running.flow.name} ended before it was warm, at {records} of {count} messages")
