"""Files at URLs, read as streams by Spark's own means: what is added later comes too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.data.batch import Batch, stamped
from headwater.data.column import Text
from headwater.errors import FlowError, RunError, listed
from headwater.flow.ranges import Sizes
from headwater.io.arrow import batch_of
from headwater.io.mqtt import text_column
from headwater.io.records import JsonDecoder
from headwater.io.spark_table import SparkTable
from headwater.io.urls import path_in
from headwater.operators.operator import DEAD, rejection_letter
from headwater.spark.envelope import ROW, OfSplit
from headwater.spark.frames import SQL, named
from headwater.spark.progress import cause_in
from headwater.spark.relations import Relation
from headwater.spark.sources.control import SourceControl
from headwater.spark.sources.data_source import Prefix, in_arrow
from headwater.spark.sources.ending import with_end
from headwater.spark.sources.frame import nothing_waits
from headwater.spark.sources.table_columns import FORMS, check_columns, columns_by_spark, columns_near
from headwater.spark.storage import Storage
from headwater.spark.titles import titled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamReader, StreamingQuery

_LINES = ("json", "text")  #: of which we make records ourselves: the same as of a file on the engine
_PART, _BROKEN = "_headwater_part", "_headwater_broken"
_NO_CONNECTOR = (
    "at a URL a Delta table needs Delta's own connector, the newest of which, 4.4.0, is for Spark 4.2 and breaks on 4.3; "
    "name a folder that driver and executors see, which needs none, or on a platform whose Spark has a connector that fits, "
    "give a DataFrame of it: spark.start(flow, inputs=df)"
)
#: how a connector is told how much to read at once; where a user says so, in whichever way, ours is left out
_MOST = ("maxFilesPerTrigger", "maxBytesPerTrigger")


class TableReading:
    """How Spark reads files; the end, which they do not know, comes from a source of nothing else."""

    offsets = 1

    def __init__(self, source: SparkTable) -> None:
        self._source = source
        self.has_end = not source.follow
        self.way = f"by Spark itself, as {source.form}"

    @property
    def relation(self) -> Relation | None:
        """Its columns; none of lines, of which we make records, and of CSV, where we look for those that do not fit."""
        return Relation.of_table(self._source.schema) if self._source.form not in (*_LINES, "csv") else None

    def check(self) -> None:
        """Raise if there are no columns, or not those that the form has, or if nothing reads the form there."""
        source = self._source
        if source.form == "delta":  # a folder of this machine would be read by its files
            raise FlowError(f"{source} cannot be read: {_NO_CONNECTOR}")
        if source.form == "text" and len(source.schema) != 1:
            raise FlowError(f"{source} has one text column, the lines; got ({source.schema})")
        if source.form == "text":
            text_column(source.schema, ())
        objects = [name for name, kind in source.schema.fields if kind == "any"]
        if objects and source.form in ("parquet", "orc", "csv"):
            raise FlowError(f"{source} has no columns of any type: read {listed(objects)} as text, or as what it is")
        if self._near is not None:
            self._check_columns(columns_near(self._near, source))

    @property
    def _near(self) -> Path | None:
        """Where its files are, if that is a folder or file of this machine all of which is read."""
        source = self._source
        path = path_in(source.address) if source.options.keys() <= {*_MOST} else None
        return path if source.form in FORMS and path is not None and path.exists() else None

    def _check_columns(self, columns: Mapping[str, str]) -> None:
        if columns:  # else there is no file yet
            check_columns(self._source, columns)

    def frame(self, spark: SparkSession, sizes: Sizes) -> DataFrame:
        """Return its columns."""
        from pyspark.errors import AnalysisException

        if self._source.form in FORMS and self._near is None:
            self._check_columns(columns_by_spark(spark, self._source))
        try:
            return self._loaded(_limited(spark.readStream, self._source, sizes))
        except AnalysisException as error:
            raise RunError(f"cannot read {self._source}: {cause_in(str(error))}") from None

    def rows(self, spark: SparkSession, step: str, prefix: Prefix, control: SourceControl, sizes: Sizes) -> DataFrame:
        """Make records of lines, or of columns some of which may not fit, in Python."""
        from pyspark.sql import functions as F

        columns = ["value"] if self._source.form in _LINES else [*self._source.schema, _BROKEN]
        placed = self.frame(spark, sizes).select(*map(named, columns), F.spark_partition_id().alias(_PART))
        run = titled(_reader(step, self._source, prefix), getattr(prefix, "title", ""))
        return with_end(spark, placed.mapInArrow(run, ROW), step, prefix, control)

    def _loaded(self, reader: DataStreamReader) -> DataFrame:
        source = self._source
        if source.form in _LINES:
            return reader.text(_pattern_of(source.url))
        fields = ", ".join(f"`{name.replace('`', '``')}` {SQL[kind]}" for name, kind in source.schema.fields)
        if source.form == "csv":
            fields += f", {_BROKEN} string"
            reader = reader.option("columnNameOfCorruptRecord", _BROKEN)
        return reader.schema(fields).load(_pattern_of(source.url))

    def is_read(self, query: StreamingQuery) -> bool:
        """Say whether there is nothing to read for the moment."""
        return nothing_waits(query)

    def begin_at(self, position: Any) -> None:
        """Begin at the beginning, which is all that another runner can have left: none but Spark reads it."""
        if position is not None:
            raise RunError(f"{self._source} is read on Spark alone, and cannot be gone on with elsewhere")

    def position_in(self, lines: list[str]) -> Any:
        """Refuse likewise: what Spark notes of it means nothing in another checkpoint."""
        raise RunError(f"{self._source} is read on Spark alone, and cannot be gone on with from another checkpoint")


def _limited(reader: DataStreamReader, source: SparkTable, sizes: Sizes) -> DataStreamReader:
    """Have a micro-batch read about as much as others do, unless the user says how much."""
    options = {"header": "true"} if source.form == "csv" else {}
    if not any(name in source.options for name in _MOST):
        options["maxBytesPerTrigger"] = str(sizes.batch_bytes)
    return reader.format(source.form).options(**{**options, **source.options})


def _pattern_of(url: str) -> str:
    """Return where files are, in a form that Spark takes: it wants folders, and of a file a pattern that only it fits."""
    if not Storage(url).is_file():
        return url
    return f"{url[:-1]}[{url[-1]}]"


def _reader(step: str, source: SparkTable, prefix: Prefix) -> Callable[[Iterator[Any]], Iterator[Any]]:
    schema, form = source.schema, source.form

    def read(tables: Iterator[Any]) -> Iterator[Any]:
        first = next((table for table in tables if table.num_rows), None)
        if first is None:
            return in_arrow(iter(()))
        number = first.column(_PART)[0].as_py()
        make_records = _of_lines(step, source, form == "json") if form in _LINES else _of_columns(step, schema)

        def put_out() -> Iterator[tuple[int, Batch]]:
            yield from make_records(first)
            for table in tables:
                yield from make_records(table)

        # Spark reads large files first, whatever their times: which task has come how far says nothing of the others
        return in_arrow(prefix(number, put_out(), OfSplit(number, in_order=False)))

    return read


def _of_lines(step: str, source: SparkTable, is_json: bool) -> Callable[[Any], Iterator[tuple[int, Batch]]]:
    """Return what makes records of lines, and dead letters of those that are none; empty ones are passed over."""
    schema = source.schema
    decoder = JsonDecoder(schema) if is_json else None

    def records_of(table: Any) -> Iterator[tuple[int, Batch]]:
        lines = [line.as_buffer().to_pybytes() for line in table.column("value")]
        lines = [line for line in lines if line.strip()]
        if decoder is None:
            batch = Batch({text_column(schema, ()): Text.of_bytes(lines)}, len(lines), stamped(len(lines)))
        else:
            letters: list[Batch] = []

            def refuse(number: int, text: bytes, reason: str) -> None:
                letters.append(rejection_letter(step, text.decode(errors="replace"), reason))

            batch = decoder.batch(lines, refuse)
            yield from ((DEAD, letter) for letter in letters)
        if batch.length:
            yield 0, batch

    return records_of


def _of_columns(step: str, schema: Any) -> Callable[[Any], Iterator[tuple[int, Batch]]]:
    """Return what makes records of rows, and dead letters of those that the connector could not read."""

    def records_of(table: Any) -> Iterator[tuple[int, Batch]]:
        broken = table.column(_BROKEN)
        for text in broken.drop_null().to_pylist():
            yield DEAD, rejection_letter(step, text, "its values do not fit the columns")
        table = table.filter(broken.is_null())
        if table.num_rows:
            yield 0, batch_of(table, schema)

    return records_of
