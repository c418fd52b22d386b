"""Tables that hold what a stream would have brought: read in order of time, slice by slice, each on all cores.

A slice is a span of time that fits into memory, cut into pieces of which each is one task's. Where one ends is fixed before
anything is read, so that a slice that has to be read once more has the same records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np

from headwater.data.schema import Schema
from headwater.errors import FlowError, listed, suggestion
from headwater.flow.flow import Flow
from headwater.io.delta import FOLDER
from headwater.io.delta.log import DeltaTable, Folder, TablePlace
from headwater.spark.envelope import ROW
from headwater.spark.frames import SQL, check_columns, event_time_of, named
from headwater.spark.in_order import AT, in_order
from headwater.spark.parquet_files import ParquetFiles, files_of
from headwater.spark.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from headwater.spark.sources.data_source import Prefix

PIECE = 2**19  #: records of a piece, about
_SAMPLED = 1_000  #: records of a piece by which it is told where that ends
_PART = "_headwater_part"
_FORMATS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".orc": "orc"}


#: tells, of a moment and how many records a piece has: how many there are up to the moment, it or the one behind the last
#: record, and where pieces begin
Planner = Callable[[int | None, int], tuple[int, int, list[int]]]


@dataclass(frozen=True, slots=True)
class Table:
    """What a source would have brought, and the column by which it is put in order."""

    rows: DataFrame
    time: str
    schema: Schema  #: of the source
    files: ParquetFiles | None = None  #: where tasks can read them without Spark

    def at(self) -> Column:
        """Return the time of a row in microseconds."""
        from pyspark.sql import functions as F

        kind = dict(self.rows.dtypes)[self.time]
        if kind in ("bigint", "int"):
            return named(self.time).cast("bigint")
        if kind not in ("timestamp", "timestamp_ntz", "date"):
            raise FlowError(f"column {self.time!r}, by which the table is put in order, is {kind}; it must be a time")
        return F.unix_micros(named(self.time).cast("timestamp"))

    def slice(self, edges: Slice, columns: tuple[str, ...], prefix: Prefix) -> DataFrame:
        """Return the rows of a stage that reads one slice."""
        from pyspark.sql import functions as F

        if self.files is not None and self.files.is_read_well(edges.edges, edges.pieces * PIECE):
            return self.files.rows(self.rows.sparkSession, edges.edges, self.schema.only(columns), prefix)
        placed = self.rows.where(self._is_in(edges)).select(*map(named, columns), self.at().alias(AT))
        pieces = placed.select("*", edges.piece(F.col(AT)).alias(_PART)).repartitionById(edges.pieces, F.col(_PART))
        return pieces.mapInArrow(_reader(self.schema.only(columns), prefix), ROW)

    def _is_in(self, edges: Slice) -> Column:
        """Say whether a row is in a slice, by the column itself: Spark then leaves out files that have no such times."""
        from pyspark.sql import functions as F

        kind = dict(self.rows.dtypes)[self.time]
        if kind in ("timestamp", "timestamp_ntz"):
            return edges.holds(named(self.time), lambda at_us: F.timestamp_micros(F.lit(at_us)).cast(kind))
        return edges.holds(self.at())


@dataclass(frozen=True, slots=True)
class Slice:
    """A span of time in microseconds, and where its pieces end; None of the first and the last edge is no bound."""

    edges: tuple[int | None, ...]

    @property
    def pieces(self) -> int:
        """How many there are."""
        return len(self.edges) - 1

    def holds(self, at: Column, moment: Callable[[int], Any] = int) -> Column:
        """Say whether a moment is in it, or none, which the first has; `moment` makes of an edge what `at` is."""
        from pyspark.sql import functions as F

        first, last = self.edges[0], self.edges[-1]
        before = F.lit(True) if last is None else at < moment(last)
        return (at.isNull() | before) if first is None else (at >= moment(first)) & before

    def piece(self, at: Column) -> Column:
        """Return in which piece a moment is."""
        from pyspark.sql import functions as F

        inner = (F.when(at >= edge, 1).otherwise(0) for edge in self.edges[1:-1])
        return sum(inner, F.lit(0))


def table_of(spark: SparkSession, table: Any, flow: Flow, source: str, time: str | None) -> Table:
    """Return a table in place of a source: a DataFrame, the path or URL of files, or the name of a table of Spark's."""
    schema = flow.steps[source].outputs["out"]
    column = time or event_time_of(flow, source)
    if column is None:
        raise FlowError(
            f"history is put in order by event time, which source {source!r} of flow {flow.name!r} has no column for; say "
            "which column of the table is its time (--order-by, or order_by=)"
        )
    rows = table if hasattr(table, "isStreaming") else _read(spark, str(table), schema, column)
    what = f"the table for source {source!r}"
    if rows.isStreaming:
        raise FlowError(f"{what} is a streaming DataFrame; give a table, which has an end")
    check_columns(rows, schema, what)
    if column not in rows.columns:
        raise FlowError(
            f"{what} has no column {column!r}; columns are {listed(rows.columns)}{suggestion(column, rows.columns)}"
        )
    return Table(rows, column, schema, _files(table, schema, column))


def _files(table: Any, schema: Schema, time: str) -> ParquetFiles | None:
    """Return the files of a table that tasks can read by themselves."""
    if hasattr(table, "isStreaming") or "://" in str(table):
        return None
    path = Path(str(table)).absolute()
    is_parquet = _FORMATS.get(path.suffix, "parquet") == "parquet"
    return files_of(path, schema, time) if is_parquet and path.exists() else None


def _read(spark: SparkSession, address: str, schema: Schema, time: str) -> DataFrame:
    from pyspark.errors import AnalysisException

    path = Path(address)
    url = f"file://{path.absolute()}" if "://" not in address and path.exists() else address
    form = _FORMATS.get(Path(address.rstrip("/")).suffix, "parquet")
    reader = spark.read.format(form)
    if form in ("csv", "json"):
        fields = [f"`{name}` {SQL[kind]}" for name, kind in schema.fields]
        fields += [] if time in schema else [f"`{time}` timestamp"]
        reader = reader.schema(", ".join(fields)).option("header", "true").option("mode", "FAILFAST")
    try:
        if "/" not in url and "." not in path.suffix:
            return spark.table(address)
        place = _delta_place(path, url)
        if place is not None:  # of a Delta table, the files that count
            names = [f"{url.rstrip('/')}/{unquote(name)}" for name in DeltaTable(place).files]
            return reader.option("basePath", url).load(names) if names else reader.load(url).limit(0)
        return reader.load(url)
    except AnalysisException as error:
        raise FlowError(f"cannot read table {address}: {str(error).splitlines()[0]}") from None


def _delta_place(path: Path, url: str) -> TablePlace | None:
    """Return where a Delta table is; None of what is no such table."""
    if (path / FOLDER).is_dir():
        return Folder(path.absolute())
    place = Storage(url)
    return place if "://" in url and place.exists(FOLDER) else None


def sliced(tables: Mapping[str, Table], until_us: int | None, slice_records: int) -> tuple[list[Slice], int, int]:
    """Return the slices of tables up to a moment, how many records they have, and the moment.

    Where none is said, it is that behind the last record: what is written later is the stream's to bring.
    """
    files = [table.files for table in tables.values() if table.files is not None]
    tell = _told_by_files(files) if len(files) == len(tables) else _told_by_spark(tables)
    count, until, edges = tell(until_us, min(PIECE, slice_records))
    bounds: list[int | None] = [None, *(edge for edge in edges if edge < until), until]
    each = max(1, slice_records // min(PIECE, slice_records))
    starts = range(0, len(bounds) - 1, each)
    return [Slice(tuple(bounds[start : start + each + 1])) for start in starts], count, until


def _told_by_files(tables: Sequence[ParquetFiles]) -> Planner:
    def tell(until_us: int | None, piece: int) -> tuple[int, int, list[int]]:
        every = max(1, min(piece, sum(files.count for files in tables)) // _SAMPLED)
        counts, times = zip(*(files.times(until_us, every) for files in tables), strict=True)
        count, some = sum(counts), np.sort(np.concatenate(times))
        until = until_us if until_us is not None else int(some[-1]) + 1 if len(some) else 0
        pieces = max(1, -(-count // piece))
        return count, until, sorted({int(some[len(some) * i // pieces]) for i in range(1, pieces) if len(some)})

    return tell


def _told_by_spark(tables: Mapping[str, Table]) -> Planner:
    from pyspark.sql import functions as F

    def tell(until_us: int | None, piece: int) -> tuple[int, int, list[int]]:
        frames = [table.rows.select(table.at().alias(AT)) for table in tables.values()]
        times = reduce(lambda a, b: a.union(b), frames)
        if until_us is not None:
            times = times.where(F.col(AT).isNull() | (F.col(AT) < until_us))
        count, last = times.agg(F.count(F.lit(1)), F.max(AT)).first()
        until = until_us if until_us is not None else 0 if last is None else last + 1
        pieces = max(1, -(-count // piece))
        if pieces == 1:
            return count, until, []
        share = _SAMPLED * pieces / count
        some = times if share >= 1 else times.sample(fraction=share, seed=7)
        places = [i / pieces for i in range(1, pieces)]
        [edges] = some.agg(F.percentile_approx(AT, places, 100 * pieces)).first()
        return count, until, sorted(set(edges or []))

    return tell


def _reader(schema: Schema, prefix: Prefix) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def read(tables: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        from headwater.spark.sources.data_source import in_arrow

        batches = [table for table in tables if table.num_rows]
        if not batches:
            return in_arrow(iter(()))
        number = batches[0].column(_PART)[0].as_py()
        rows = pa.Table.from_batches(batches).drop_columns([_PART])
        batches.clear()
        return in_order(number, rows, schema, prefix)

    return read
