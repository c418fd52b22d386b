"""Kafka, through Spark's own connector: it keeps the offsets, we make records of the values."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from headwater.data.batch import Batch, stamped
from headwater.data.column import Column, Text, column_of
from headwater.errors import FlowError, RunError
from headwater.flow.endpoints import Reject
from headwater.flow.ranges import Sizes
from headwater.io.kafka import Kafka
from headwater.io.mqtt import text_column
from headwater.io.records import JsonDecoder
from headwater.operators.operator import DEAD, rejection_letter
from headwater.spark.envelope import ROW, OfSplit
from headwater.spark.sources.control import SourceControl
from headwater.spark.sources.data_source import Prefix, in_arrow
from headwater.spark.sources.ending import with_end
from headwater.spark.titles import titled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

#: what was seen to work with Spark 4.3, each by itself: 4.3.0 was not published, nor what 4.2.0 says that it depends on, so
#: that `spark.jars.packages` finds no whole set
PACKAGES = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)


class KafkaReading:
    """How Spark reads a topic; the end, which Kafka does not know, comes from a source of nothing else."""

    way = "by Spark's own connector"
    has_end = False
    offsets = 1

    def __init__(self, source: Kafka) -> None:
        self._source = source
        self._ends: dict[str, int] | None = None  # what it held when reading began, by partition
        self._start: str = source.start  # or the offset of each partition

    def check(self) -> None:
        """Raise if the flow cannot have its records, or no broker answers."""
        source = self._source
        source.check_on_spark()
        if source.key is not None:
            raise FlowError(f"the key of {source} is for writing; records that are read have the columns of the schema")
        _check_answers(source)

    def rows(self, spark: SparkSession, step: str, prefix: Prefix, control: SourceControl, sizes: Sizes) -> DataFrame:
        """Return the rows of the topic."""
        source = self._source
        options = {
            "subscribePattern" if source.pattern else "subscribe": source.topic,
            "startingOffsets": self._start,
            "maxOffsetsPerTrigger": str(sizes.batch_records),
            "includeHeaders": str(source.headers is not None).lower(),
            "kafka.isolation.level": "read_committed",  # as on the engine: what a transaction took back is not there
            **source.options,
        }
        values = connected(spark, lambda: spark.readStream.format("kafka").options(**options).load())
        return rows_from(spark, values, step, source, prefix, control)

    def is_read(self, query: StreamingQuery) -> bool:
        """Say, by what Spark tells of a query since its first micro-batch, whether all has been read that was there then."""
        progress = query.lastProgress
        for source in () if progress is None else progress.sources:
            latest, end_offsets = (_offsets(text, self._source) for text in (source.latestOffset, source.endOffset))
            if latest is not None:
                self._ends = latest if self._ends is None else self._ends
                return all((end_offsets or {}).get(partition, 0) >= end for partition, end in self._ends.items())
        return False

    def begin_at(self, position: dict[str, int] | None) -> None:
        """Begin with the offset of each partition; a topic of which nothing was known is begun as it says."""
        if position:
            self._start = json.dumps({self._source.topic: position})

    def position_in(self, lines: list[str]) -> dict[str, int] | None:
        """Return the offset of each partition."""
        if self._source.pattern:
            raise RunError(f"{self._source} is a pattern of topics, and cannot be gone on with elsewhere than on Spark")
        return _offsets(lines[0], self._source)


def rows_from(
    spark: SparkSession, values: DataFrame, step: str, source: Kafka, prefix: Prefix, control: SourceControl
) -> DataFrame:
    """Return the rows of what the connector has read."""
    columns = ["topic", "partition", "offset", "value", "timestamp"]
    columns += ["key"] if source.key_column is not None else []
    columns += ["headers"] if source.headers is not None else []
    run = titled(_reader(step, source, prefix), getattr(prefix, "title", ""))
    outcome = values.select(*columns).mapInArrow(run, ROW)
    return with_end(spark, outcome, step, prefix, control)


def connected(spark: SparkSession, use: Callable[[], Any]) -> Any:
    """Use Spark's connector to Kafka, and say how to get it where it is not there."""
    from pyspark.errors import AnalysisException

    try:
        return use()
    except AnalysisException as error:
        if "kafka" not in str(error).lower():
            raise
        files = ", ".join("{1}-{2}.jar".format(*package.split(":")) for package in PACKAGES)
        raise RunError(
            "Spark's connector to Kafka is not there: before Spark starts, give the setting spark.jars with the paths or "
            f"addresses of {files} (from Maven Central)"
        ) from None


def _check_answers(source: Kafka) -> None:
    """Ask whether any broker listens, for which the client would wait for minutes."""
    troubles = []
    for server in source.servers.split(","):
        host, _, port = server.strip().rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
        except (OSError, ValueError) as error:
            troubles.append(f"{server}: {getattr(error, 'strerror', None) or error}")
        else:
            return
    raise RunError(f"no broker of {source} answers ({'; '.join(troubles)}); is it running?")


def _offsets(text: str | None, source: Kafka) -> dict[str, int] | None:
    """Return the offsets of a topic, by partition, in what a source of Spark's says; None of another source.

    Those of a pattern are by topic and partition.
    """
    try:
        document = json.loads(text or "")
    except ValueError:
        return None
    if not isinstance(document, dict):
        return None
    if source.pattern:
        if not all(
            isinstance(offsets, dict) and re.fullmatch(source.topic, topic) for topic, offsets in document.items()
        ):
            return None
        return {f"{topic}/{partition}": at for topic, offsets in document.items() for partition, at in offsets.items()}
    offsets = document.get(source.topic)
    return offsets if isinstance(offsets, dict) else None


def _reader(step: str, source: Kafka, prefix: Prefix) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def read(tables: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        first = next((table for table in tables if table.num_rows), None)
        split = None  # by what its records say: with `minPartitions`, several tasks read one partition
        if first is not None:
            split = OfSplit("/".join(str(first.column(name)[0].as_py()) for name in ("topic", "partition")))
            tables = chain([first], tables)
        return in_arrow(prefix(context.partitionId(), records(step, source, tables), split))

    return read


def records(step: str, source: Kafka, tables: Iterator[Any]) -> Iterator[tuple[int, Batch]]:
    """Make batches of the values of Arrow tables, and dead letters of what is no record."""
    decoder = None if source.payload == "text" else JsonDecoder(source.fields)
    for table in tables:
        letters: list[tuple[str, str]] = []
        batch = _batch(table, source, decoder, lambda text, error, to=letters: to.append((text, error)))  # type: ignore[misc]
        yield from ((DEAD, rejection_letter(step, text, error)) for text, error in letters)
        if batch.length:
            yield 0, batch


def _batch(table: Any, source: Kafka, decoder: JsonDecoder | None, reject: Reject) -> Batch:
    places = [table.column(name).to_pylist() for name in ("topic", "partition", "offset")]
    values = [value or b"" for value in table.column("value").to_pylist()]

    def refuse(number: int, text: bytes, reason: str) -> None:
        topic, partition, offset = (place[number] for place in places)
        reject(text.decode(errors="replace"), f"{topic} partition {partition} offset {offset}: {reason}")

    if decoder is None:
        rows = [number for number, value in enumerate(values) if _is_text(number, value, refuse)]
        columns: dict[str, Any] = {text_column(source.fields, ()): Text.of_bytes([values[number] for number in rows])}
    else:
        decoded = decoder.decode_each(values, refuse)
        rows = [number for number, _ in decoded]
        columns = decoder.batch_of([record for _, record in decoded]).columns
    columns |= _beside(table, source, rows)
    columns = {name: columns[name] for name in source.schema}
    arrived = table.column("timestamp").cast("int64").to_numpy(zero_copy_only=False)  # microseconds
    return Batch(columns, len(rows), stamped(len(rows), arrived[rows].astype(np.int64) * 1000))


def _beside(table: Any, source: Kafka, rows: list[int]) -> dict[str, Column]:
    """Return what records have beside their values: a key, and headers."""
    columns: dict[str, Column] = {}
    if source.key_column is not None:
        keys = table.column("key").to_pylist()
        texts = [None if keys[row] is None else keys[row].decode(errors="replace") for row in rows]
        columns[source.key_column] = column_of(texts, "text", name=source.key_column)
    if source.topic_column is not None:
        topics = table.column("topic").to_pylist()
        columns[source.topic_column] = column_of([topics[row] for row in rows], "text", name=source.topic_column)
    if source.headers is not None:
        headers = table.column("headers").to_pylist()
        columns[source.headers] = column_of([_headers(headers[row]) for row in rows], "any", name=source.headers)
    return columns


def _headers(headers: list[dict[str, Any]] | None) -> dict[str, str | None] | None:
    if not headers:
        return None
    return {each["key"]: None if each["value"] is None else each["value"].decode(errors="replace") for each in headers}


def _is_text(number: int, value: bytes, refuse: Callable[[int, bytes, str], None]) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        refuse(number, value, "not UTF-8 text")
        return False
    return True
