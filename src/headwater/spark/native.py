"""What Spark reads and writes with means of its own: the one place that knows types.

A source or sink that is not registered here is read and written through what it declares. A package may register its
own, before a flow is run::

    @reads.register
    def _(source: Pulsar) -> NativeSource:
        return PulsarReading(source)
"""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING, Any, Protocol, cast

from headwater.data.schema import Schema
from headwater.flow.endpoints import Ledger, NumberedWriter
from headwater.flow.ranges import RangeRequest, Sizes, ranges_of
from headwater.io.jdbc import Jdbc
from headwater.io.kafka import Kafka
from headwater.io.memory import Discard
from headwater.io.parquet import Parquet
from headwater.io.spark_table import SparkTable
from headwater.spark.frames import Frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from headwater.spark.relations import Relation
    from headwater.spark.sources.control import SourceControl
    from headwater.spark.sources.data_source import Prefix


class NativeSource(Protocol):
    """A source that a connector of Spark's reads, which cannot tell its end: it ends when it is told to."""

    way: str  #: how it is read, in words
    has_end: bool  #: whether it is to end when nothing more waits, however it is run

    @property
    def offsets(self) -> int:
        """How many lines its connector writes in Spark's log of offsets, before that of what ends it."""

    def check(self) -> None:
        """Raise what is wrong with it, before Java has to be started."""

    def rows(self, spark: SparkSession, step: str, prefix: Prefix, control: SourceControl, sizes: Sizes) -> DataFrame:
        """Return its rows, as `sources.data_source.rows_of` does."""

    def is_read(self, query: StreamingQuery) -> bool:
        """Say whether all has been read that was there when reading began."""

    def begin_at(self, position: Any) -> None:
        """Have a query that is new begin where a reader on the engine was; raises RunError where there is no such reader."""

    def position_in(self, lines: list[str]) -> Any:
        """Return what the connector's lines in Spark's log of offsets mean, as a reader on the engine tells it."""


class NativeTable(NativeSource, Protocol):
    """A source of which Spark has columns before Python has records, so that operators of its own may come first."""

    @property
    def relation(self) -> Relation:
        """What these columns are; None in one that has none after all."""

    def frame(self, spark: SparkSession, sizes: Sizes) -> DataFrame:
        """Return them."""


class NativeSink(Protocol):
    """A sink that Spark writes itself."""

    way: str  #: who writes it, in words

    @property
    def guarantee(self) -> str:
        """What holds after a kill, in words."""

    def check(self, schema: Schema, key: tuple[str, ...]) -> None:
        """Raise what is wrong with it, before Java has to be started; records are grouped by `key`."""

    def open(self, schema: Schema, ledger: Ledger, key: tuple[str, ...]) -> NumberedWriter:
        """Start writing."""


@singledispatch
def reads(source: Any) -> NativeSource | None:
    """Return how Spark itself reads a source; None for one that declares how it is read."""
    return None


def table_in(source: NativeSource | None) -> NativeTable | None:
    """Return a source as one of which Spark has columns; None where we make its records."""
    return None if getattr(source, "relation", None) is None else cast("NativeTable", source)


@singledispatch
def writes(sink: Any) -> NativeSink | None:
    """Return how Spark itself writes a sink; None for one that declares how it is written."""
    return None


@singledispatch
def read_by_driver(source: Any) -> Any:
    """Return what the driver reads of a source that is read through its log: itself, unless only Java can read it."""
    return source


@read_by_driver.register
def _(source: Jdbc) -> Any:
    from headwater.spark.sources.jdbc import JdbcRows

    return JdbcRows(source)


@singledispatch
def as_table(source: Any) -> SparkTable | None:
    """Return the table as which Spark could read a source that is read in Python; None for one that it could not."""
    return None


@as_table.register
def _(source: Parquet) -> SparkTable | None:
    from headwater.io.arrow import ARROW, parquet

    try:
        schema = parquet().read_schema(source.path)
    except OSError:
        return None  # which is told when it is read
    kinds = [field.type for field in schema]
    plain = all(kind in ARROW.values() for kind in kinds) and "any" not in dict(source.schema.fields).values()
    return SparkTable(str(source.path), source.schema, form="parquet") if plain else None


@reads.register
def _(source: Kafka) -> NativeSource:
    from headwater.spark.sources.kafka import KafkaReading

    return KafkaReading(source)


@reads.register
def _(source: Frame) -> NativeSource:
    from headwater.spark.sources.frame import FrameReading

    return FrameReading(source)


@reads.register
def _(source: SparkTable) -> NativeSource | None:
    if ranges_of(source, RangeRequest(Sizes(1))) is not None:  # a Delta table, for which no connector is needed
        return None
    from headwater.spark.sources.table import TableReading

    return TableReading(source)


@writes.register
def _(sink: Kafka) -> NativeSink:
    from headwater.spark.sinks.kafka import KafkaWriting

    return KafkaWriting(sink)


@writes.register
def _(sink: Jdbc) -> NativeSink:
    from headwater.spark.sinks.jdbc import JdbcWriting

    return JdbcWriting(sink)


@writes.register
def _(sink: SparkTable) -> NativeSink:
    from headwater.spark.sinks.table import TableWriting

    return TableWriting(sink)


@writes.register
def _(sink: Discard) -> NativeSink:
    from headwater.spark.sinks.discard import Discarding

    return Discarding()
