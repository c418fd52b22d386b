"""What is offered to the systems that are compared, and how it is judged: by the records that come to the sink.

A record is due by a clock that goes on while a system restarts, and its age counts from when it was due.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headwater.clock import now_ns
from headwater.data.batch import CREATED, Batch
from headwater.data.column import Array
from headwater.data.schema import Schema
from headwater.flow import Flow
from headwater.flow.endpoints import DeliverySemantics, Reject
from headwater.flow.identity import Identity
from headwater.io.open_loop import OpenLoop, OpenLoopReader, RecordsFrom
from headwater.io.open_loop_source import OpenLoopSource
from headwater.io.rates import Pieces
from headwater_bench.riot.etl import INSTANCES as ETL
from headwater_bench.riot.etl import etl
from headwater_bench.riot.pred import INSTANCES as PRED
from headwater_bench.riot.pred import pred
from headwater_bench.riot.sources import MESSAGES, generated
from headwater_bench.riot.stats import INSTANCES as STATS
from headwater_bench.riot.stats import stats

COPIES = {"etl": 1, "stats": 10, "pred": 2}
"""Records that the sink of a flow gets for each message; STATS has a regression besides, once it has seen ten."""

INSTANCES: Mapping[str, Mapping[str, int]] = {"etl": ETL, "stats": STATS, "pred": PRED}

_S = 1_000_000_000
_PREPARED_HZ = 20_000  #: messages made beforehand are those of some seconds at this rate


class Offered(OpenLoopSource):
    """Messages that fall due at a rate from the first read on; a reader that is opened later finds what it has missed."""

    def __init__(self, rates: Sequence[tuple[float, float]]) -> None:
        self.rate = Pieces(tuple(start_s for start_s, _ in rates), tuple(rate_hz for _, rate_hz in rates))
        self.began_ns: int | None = None

    @property
    def schema(self) -> Schema:
        """The message's number and its text."""
        return MESSAGES

    @property
    def open_loop(self) -> OpenLoop:
        """When messages are due."""
        return OpenLoop(self.rate)

    @property
    def identity(self) -> Identity:
        """Which messages they are."""
        return {"data set": "CITY", "seed": 1}

    def numbered(self, reject: Reject) -> tuple[RecordsFrom, int]:
        """Make the messages, once, before they are due."""
        return generated("CITY", _PREPARED_HZ).numbered(reject)

    def open(self, reject: Reject, position: int | None = None) -> OpenLoopReader:
        """Start handing out what is due, from a message on."""
        take, most = self.numbered(reject)
        return _Reader(self, take, position, most)

    def at_rate(self, rate: float) -> Offered:
        """Return the same messages at one rate."""
        return Offered([(0.0, rate)])


class _Reader(OpenLoopReader):
    def __init__(self, source: Offered, take: RecordsFrom, position: int | None, most: int) -> None:
        super().__init__(take, source.schema, source.open_loop, position, most)
        self._source = source

    def _start(self) -> None:
        super()._start()
        if self._source.began_ns is None:
            self._source.began_ns = self._started_ns
        self._started_ns = self._source.began_ns


class Judge:
    """A sink that notes when each record was due and when it came; of STATS, all but the regression."""

    writers = "many"
    delivery: DeliverySemantics = "idempotent"
    apart = False

    def __init__(self) -> None:
        self.first = threading.Event()
        self._lock = threading.Lock()
        self._came: list[tuple[int, Array]] = []

    def rehearsed(self) -> Judge:
        """Return another: what it costs to take notes belongs to what a lane uses."""
        return Judge()

    def open(self, schema: Schema) -> Judge:
        """Start taking notes."""
        return self

    def write(self, batch: Batch) -> None:
        """Note what has come."""
        kinds = batch.columns.get("kind")
        if kinds is not None and batch.length and batch.slice(0, 1).rows()[0]["kind"] == "SLR":
            return
        with self._lock:
            self._came.append((now_ns(), batch.stamps[:, CREATED].copy()))
        self.first.set()

    def close(self) -> None:
        """Nothing to release: a system that restarts opens it again."""

    def verdict(self, source: Offered, copies: int, from_ns: int, seconds: int, bound_s: float) -> dict[str, Any]:
        """Judge so many windows of a second: kept is one of which every record that was due has come in time.

        What has not come by now counts in the latency as old as it is. More than was due is an error.
        """
        stopped_ns = now_ns()
        with self._lock:
            came = list(self._came)
        expected = copies * self._due_by_second(source, from_ns, seconds)
        delivered, late, worst = np.zeros(seconds, np.int64), np.zeros(seconds, np.int64), np.zeros(seconds)
        ages: list[Array] = []
        for at, due in came:  # one after the other: of all together there may be a gigabyte
            second = (due - from_ns) // _S
            inside = (second >= 0) & (second < seconds)
            second, age_s = second[inside], (at - due[inside]) / _S
            delivered += np.bincount(second, minlength=seconds)
            late += np.bincount(second[age_s > bound_s], minlength=seconds)
            np.maximum.at(worst, second, age_s)
            ages.append(age_s)
        if (delivered > expected + copies).any():
            raise AssertionError(f"more came than was due: {delivered.tolist()} of {expected.tolist()}")
        is_kept = (late == 0) & (delivered >= expected - copies)
        missing = np.maximum(0, expected - delivered)
        ends_s = (stopped_ns - from_ns) / _S - np.arange(seconds) - 1
        p50_s, p99_s = np.percentile(np.concatenate([*ages, np.repeat(np.maximum(ends_s, 0), missing)]), (50, 99))
        return {
            "windows": seconds,
            "kept_windows": int(is_kept.sum()),
            "kept": round(float(is_kept.mean()), 4),
            "rate_kept": round(float(np.minimum(delivered, expected).sum() / expected.sum()), 4),
            "p50_ms": round(1e3 * float(p50_s), 2),
            "p99_ms": round(1e3 * float(p99_s), 2),
            "delivered": (delivered // copies).tolist(),
            "due": (expected // copies).tolist(),
            "worst_ms": [round(1e3 * each, 1) for each in worst.tolist()],
            "arrived": self._arrived(came, copies, from_ns, seconds),
        }

    def _due_by_second(self, source: Offered, from_ns: int, seconds: int) -> Array:
        assert source.began_ns is not None
        ends = [(from_ns - source.began_ns) / _S + at for at in range(seconds + 1)]
        return np.diff([int(source.rate.due(max(0.0, end))) for end in ends])

    def _arrived(self, came: list[tuple[int, Array]], copies: int, from_ns: int, seconds: int) -> list[int]:
        """Return messages by the second in which they came, whenever they were due: the throughput."""
        counts = np.zeros(seconds, np.int64)
        for at, stamps in came:
            if 0 <= (at - from_ns) // _S < seconds:
                counts[(at - from_ns) // _S] += len(stamps)
        return [int(each) for each in counts // copies]


def flow_of(name: str, source: Offered, judge: Judge, instances: Mapping[str, int] | None = None) -> Flow:
    """Build one of the flows between what is offered and who judges."""
    if name == "etl":
        return etl(source, publish=judge, instances=instances)
    return (stats if name == "stats" else pred)(source, publish=judge, instances=instances)
