"""How Java hands over the rows of a micro-batch: with few words, of which each takes as long as some hundred rows.

pyspark's own `foreachBatch` and `toArrow` make a session, read settings and a schema for each micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter

_PACKAGE = "org.apache.spark.sql.execution.streaming.sources"


class _ForeachBatch:
    """What Java calls with each micro-batch."""

    def __init__(self, take: Callable[[list[Any], int], None]) -> None:
        self._take = take

    def call(self, rows: Any, batch_id: int) -> None:
        """Take the rows, a DataFrame of Java's, of a micro-batch."""
        self._take(_collected(rows), batch_id)

    class Java:
        """What it is to Java."""

        implements = (f"{_PACKAGE}.PythonForeachBatchFunction",)


def foreach_batch(spark: SparkSession, writer: DataStreamWriter, take: Callable[[list[Any], int], None]) -> None:
    """Have each micro-batch of a query taken: its rows as Arrow batches, and its number."""
    from pyspark.java_gateway import ensure_callback_server_started

    gateway = spark.sparkContext._gateway
    ensure_callback_server_started(gateway)
    helper = getattr(gateway.jvm, f"{_PACKAGE}.PythonForeachBatchHelper")
    helper.callForeachBatch(writer._jwrite, _ForeachBatch(take))


def _collected(rows: Any) -> list[Any]:
    """Run the query on a micro-batch, and return its rows."""
    from pyspark.errors.exceptions.captured import unwrap_spark_exception
    from pyspark.sql.pandas.serializers import ArrowCollectSerializer
    from pyspark.util import _load_from_socket

    port, secret, server = rows.collectAsArrowToPython()
    try:
        with _load_from_socket((port, secret), ArrowCollectSerializer()) as batches:
            return list(batches)
    finally:
        with unwrap_spark_exception():
            server.getResult()  # waits for Java to be through, and raises what broke there
