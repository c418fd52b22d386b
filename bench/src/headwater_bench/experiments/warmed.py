"""A source that first warms a flow up: messages as fast as they are taken, then, once it is let go, at a rate."""

from __future__ import annotations

import threading

from headwater.data.batch import Batch, stamped
from headwater.data.schema import Schema
from headwater.flow.endpoints import Reject
from headwater.io import Generate


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
            made = self._take(self._given, count)
            self._given += count
            return Batch(made.columns, count, stamped(count))
        if not self._warmed.go.is_set():
            self._warmed.go.wait(timeout_s)
            return Batch.none(self._warmed.schema)
        return self._paced.read(limit, timeout_s)

    def close(self) -> None:
        self._paced.close()
