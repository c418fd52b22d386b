"""Sources whose records fall due by the clock, whatever happens to the sites, and sinks that note how old records are."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from headwater.data.batch import CREATED, NO_WATERMARK, Batch
from headwater.data.schema import Schema
from headwater.flow.endpoints import DeliverySemantics, Reject, Resume

BEGAN, END = "began", "end"
_WAIT_S = 0.002

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Due:
    """Record n is there n / `rate_hz` seconds after a moment that a file says, once it does; another says how long."""

    resume: ClassVar[Resume] = "position"

    folder: Path
    rate_hz: float
    schema: Schema
    make: Callable[[Ints, Ints], Mapping[str, Any]]  #: columns, of the numbers of records and when they fall due, in ns

    def open(self, reject: Reject, position: int | None = None) -> _DueReader:
        """Go on after so many records."""
        return _DueReader(self, position or 0)


class _DueReader:
    def __init__(self, source: Due, position: int) -> None:
        self._source, self.position = source, position
        self._began_s: float | None = None

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        source = self._source
        if self._began_s is None and (source.folder / BEGAN).exists():
            self._began_s = float((source.folder / BEGAN).read_text())
        if self._began_s is not None:
            count = int(float((source.folder / END).read_text()) * source.rate_hz)
            if self.position >= count:
                return None
            passed = (time.time() - self._began_s) * source.rate_hz
            due = min(math.floor(passed) + 1, count, self.position + limit)
            if due > self.position:
                numbers = np.arange(self.position, due)
                created_ns = ((self._began_s + numbers / source.rate_hz) * 1e9).astype(np.int64)
                self.position = due
                return Batch.of(source.make(numbers, created_ns), source.schema, created_ns=created_ns)
        time.sleep(min(timeout_s, _WAIT_S))
        return Batch.of_watermark(NO_WATERMARK)

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Aged:
    """Notes when each record was created and how old it is, both in ns, and which source it is from, where it says so.

    What a window has made of records is as old as the moment from which on it could: its end, and what may still be late.
    """

    delivery: ClassVar[DeliverySemantics] = "neither"

    path: Path
    window_ns: int = 0
    lateness_ns: int = 0

    def open(self, schema: Schema) -> _AgedWriter:
        """Note what comes after what is there."""
        return _AgedWriter(self)


class _AgedWriter:
    def __init__(self, sink: Aged) -> None:
        self._sink, self._file = sink, sink.path.open("a")

    def write(self, batch: Batch) -> None:
        sink, now_ns = self._sink, time.time_ns()
        since = batch.stamps[:, CREATED]
        if sink.window_ns:
            since = (since // sink.window_ns + 1) * sink.window_ns + sink.lateness_ns
        origins = batch["origin"] if "origin" in batch.columns else np.full(batch.length, -1)
        for at, origin in zip(since.tolist(), np.asarray(origins).tolist(), strict=True):
            self._file.write(f"{at} {now_ns - at} {origin}\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def ages_ms(path: Path, since_s: float, origin: int | None = None) -> NDArray[np.float64]:
    """Return the ages that a sink has noted, of records since a moment and of one source, in milliseconds."""
    text = path.read_text() if path.exists() else ""
    rows = np.array([line.split() for line in text.splitlines()], np.int64).reshape(-1, 3)
    # not of windows that the end of the stream has closed, before they could have been otherwise
    mask = (rows[:, 0] >= since_s * 1e9) & (rows[:, 1] >= 0)
    if origin is not None:
        mask &= rows[:, 2] == origin
    return np.asarray(rows[mask, 1] / 1e6)
