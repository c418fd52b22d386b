"""How many records a connector of Spark's gives a micro-batch, changed while the query runs.

Spark asks a source for its limit once, when a query starts, keeps it beside the source, and tells it the source again with
each micro-batch that it plans. There it can be exchanged: which offsets a micro-batch has is written down before it is read,
as ever, so that one that runs again is the same.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from headwater.errors import RunError
from headwater.flow.ranges import Sizes
from headwater.spark.sources.pace import FIRST, changed_share

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

_EXECUTION = "org.apache.spark.sql.execution.streaming.runtime.StreamExecution"
_OF_RECORDS = "ReadMaxRows"  #: the kind of limit, as Spark calls it


def first_of(most: int) -> int:
    """Return what the first micro-batch may read of a source, before it is known how fast that goes."""
    return max(1, round(most * FIRST))


def check(spark: SparkSession) -> None:
    """Raise where Spark does not let limits be exchanged: a source that begins with little would stay with it."""
    from py4j.protocol import Py4JError

    try:
        execution = spark.sparkContext._jvm.java.lang.Class.forName(_EXECUTION)
        names = {method.getName() for method in execution.getMethods()}
    except Py4JError:
        names = set()
    if not {"uniqueSources", "uniqueSources_$eq"} <= names:
        raise RunError(
            f"this Spark ({spark.version}) does not let limits be changed while a query runs: leave out target"
        )


class Limited:
    """A source with a limit, how that comes to be changed, and which one each of the last micro-batches had."""

    def __init__(self, description: str, limit: int, most: int) -> None:
        self.description = description  #: how Spark calls it where it tells what a micro-batch has read
        self.limit, self._most = limit, most
        self._had: dict[int, int] = {}

    def learn(self, batch: int, took_s: float, *, more_waited: bool, target_s: float) -> None:
        """Take note of how long a micro-batch took; what has no more waiting tells nothing of how long a full one takes."""
        had = self._had.get(batch, self.limit)
        if more_waited and took_s > 0:
            share = changed_share(self.limit / self._most, had / self.limit * target_s / took_s)
            self.limit = max(1, round(share * self._most))

    def give(self, batch: int) -> None:
        """Take note of the limit that a micro-batch is planned with."""
        self._had = {number: limit for number, limit in self._had.items() if number >= batch - 2} | {batch: self.limit}


class Limits:
    """The limits of a query's sources, those that are of records.

    What is known when a micro-batch is done is how long the one before took: Spark tells that a moment later.
    """

    def __init__(self, query: StreamingQuery, target_s: float, sizes: Sizes) -> None:
        """Find the sources; those that begin with a part of `sizes` may come to all, others have a limit of their own."""
        self.query, self._target_s = query, target_s
        self._last_batch = -1  #: the last micro-batch of which it is known how long it took
        self._execution = query._jsq.streamingQuery()
        self._limited: list[tuple[Any, Limited]] = []
        most = {first_of(sizes.batch_records): sizes.batch_records}
        pairs = self._execution.uniqueSources().iterator()
        while pairs.hasNext():
            pair = pairs.next()
            stream, limit = pair._1(), pair._2()
            if limit.getClass().getSimpleName() == _OF_RECORDS:
                first = int(limit.maxRows())
                self._limited.append((stream, Limited(stream.toString(), first, most.get(first, first))))

    def advance(self, batch: int) -> None:
        """Choose what the next micro-batch may read; called when one is about to be done, before Spark plans another."""
        if not self._limited:
            return
        progress = self.query.lastProgress
        if progress is not None and progress.batchId > self._last_batch:
            self._last_batch = progress.batchId
            for _, each in self._limited:
                waited = any(
                    source.description == each.description and _is_behind(source.endOffset, source.latestOffset)
                    for source in progress.sources
                )
                took_s = progress.durationMs["triggerExecution"] / 1000
                each.learn(progress.batchId, took_s, more_waited=waited, target_s=self._target_s)
            self._exchange()
        for _, each in self._limited:
            each.give(batch + 1)

    def _exchange(self) -> None:
        from pyspark import SparkContext

        limits = SparkContext._jvm.org.apache.spark.sql.connector.read.streaming.ReadLimit
        sources = self._execution.uniqueSources()
        for stream, each in self._limited:
            sources = sources.updated(stream, limits.maxRows(each.limit))
        getattr(self._execution, "uniqueSources_$eq")(sources)


def _is_behind(end: str | None, latest: str | None) -> bool:
    """Say whether more waits than was read; Spark writes the partitions of a topic in any order."""
    return end is not None and latest is not None and json.loads(end) != json.loads(latest)
