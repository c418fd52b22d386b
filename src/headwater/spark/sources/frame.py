"""A streaming DataFrame of somebody's program, as a source of a flow that Headwater runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headwater.errors import FlowError, RunError
from headwater.flow.ranges import Sizes
from headwater.spark.frames import Frame
from headwater.spark.relations import Relation
from headwater.spark.sources.control import SourceControl
from headwater.spark.sources.data_source import Prefix

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


class FrameReading:
    """How Spark reads a DataFrame: as it says itself; limits on a micro-batch are those of its own sources."""

    way = "by Spark, as a DataFrame"
    has_end = False

    def __init__(self, source: Frame) -> None:
        self._source = source

    @property
    def offsets(self) -> int:
        """As many as it has sources that stream."""
        leaves = self._source.rows._jdf.queryExecution().analyzed().collectLeaves()
        return sum(leaves.apply(number).isStreaming() for number in range(leaves.size()))

    @property
    def relation(self) -> Relation:
        """Its columns."""
        return Relation.of_frame(self._source.rows, self._source.schema)

    def check(self) -> None:
        """Raise if it cannot be part of a stream that this process runs."""
        rows = self._source.rows
        if not hasattr(rows, "_jdf"):
            raise FlowError(
                "a DataFrame of Spark Connect cannot be run by Headwater, which needs Java in its own process; "
                "use spark.apply(flow, df), and write what it returns"
            )
        if not rows.isStreaming:
            raise FlowError(
                "a DataFrame that is no stream cannot be run as one; use spark.apply(flow, df), or read it with "
                "spark.readStream"
            )

    def frame(self, spark: SparkSession, sizes: Sizes) -> DataFrame:
        """Return itself."""
        return self._source.rows

    def rows(self, spark: SparkSession, step: str, prefix: Prefix, control: SourceControl, sizes: Sizes) -> DataFrame:
        """Refuse: it has columns."""
        raise AssertionError(step)

    def is_read(self, query: StreamingQuery) -> bool:
        """Say whether there is nothing to read for the moment."""
        return nothing_waits(query)

    def begin_at(self, position: Any) -> None:
        """Refuse: the engine reads no DataFrames."""
        raise RunError("a DataFrame is read on Spark alone, and cannot be gone on with elsewhere")

    def position_in(self, lines: list[str]) -> Any:
        """Refuse likewise."""
        raise RunError("a DataFrame is read on Spark alone, and cannot be gone on with elsewhere")


def nothing_waits(query: StreamingQuery) -> bool:
    """Say whether a query that has begun has nothing to read for the moment."""
    status = query.status
    return query.lastProgress is not None and not status["isDataAvailable"] and not status["isTriggerActive"]
