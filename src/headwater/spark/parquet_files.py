"""Parquet files of a file system that every worker sees, as history: the task that works on a piece reads it by itself.

Spark would read the table row by row, and move each row to the task of its piece, for several times what all of the flow
takes. What the files say of the times in their groups of rows tells where a piece is to be found; a piece also reads the
rows of its groups that are not its own, so this is for files that are in order of time, more or less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headwater.cores import whole_cores
from headwater.data.column import Array
from headwater.data.schema import Schema
from headwater.spark.envelope import ROW
from headwater.spark.in_order import AT, in_order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headwater.spark.sources.data_source import Prefix

Edges = tuple[int | None, ...]

_MOST = 4096  #: files of which the ends are read before anything else is
_TAKEN = 2**16  #: rows that are read at once
_BUFFER = 2**20  #: bytes of a column that are read at once; a group of rows may have hundreds of megabytes
#: how many rows a task reads in the time in which Spark looks at one to leave it out, at most, and hands on one
_SKIPPED, _MOVED = 2, 16
#: what Spark before 3.0 wrote of old dates means other days
_OLD = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_NONE = np.zeros(0, np.int64)


class Group(NamedTuple):
    """A group of rows of a file, and the times in it."""

    path: str
    number: int
    rows: int
    first_us: int
    last_us: int
    has_null: bool  #: rows without a time, which belong to the first piece


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """Files of one schema, by the times in their groups of rows."""

    time: str
    groups: tuple[Group, ...]

    @property
    def count(self) -> int:
        """How many rows they have."""
        return sum(group.rows for group in self.groups)

    def is_read_well(self, edges: Edges, records: int) -> bool:
        """Say whether tasks find the pieces of a slice, of about so many records, sooner than Spark does."""
        groups = [self._overlapping(piece) for piece in pairwise(edges)]
        once = sum(group.rows for group in set().union(*groups))
        rows = sum(group.rows for each in groups for group in each)
        return rows <= _SKIPPED * once + _MOVED * min(records, once)

    def rows(self, spark: SparkSession, edges: Edges, schema: Schema, prefix: Prefix) -> DataFrame:
        """Return the rows of a stage that reads the pieces of a slice, each in a task."""
        groups = [self._overlapping(piece) for piece in pairwise(edges)]
        numbers = spark.range(0, len(groups), 1, len(groups))
        return numbers.mapInArrow(_reader(self.time, edges, groups, schema, prefix), ROW)

    def times(self, until_us: int | None, every: int) -> tuple[int, Array]:
        """Return how many rows there are before a moment, or without a time, and the time of every so many of them.

        The last of all is among them.
        """

        def one(group: Group) -> tuple[int, Array]:
            count, some = 0, [_NONE]
            with _opened(group.path) as file:
                for batch in _batches(file, group, [self.time]):
                    at = _at(batch.column(0))
                    count += at.null_count
                    times = (at.drop_null() if at.null_count else at).to_numpy()
                    if until_us is not None and group.last_us >= until_us:
                        times = times[times < until_us]
                    if len(times):
                        count += len(times)
                        some += times[::every].copy(), times.max(keepdims=True)
            return count, np.concatenate(some)

        with ThreadPoolExecutor(whole_cores()) as pool:
            counts, some = zip(*pool.map(one, self.groups), strict=True) if self.groups else ((), ())
        return sum(counts), np.concatenate([_NONE, *some])

    def _overlapping(self, piece: tuple[int | None, int | None]) -> set[Group]:
        first, last = piece
        return {
            group
            for group in self.groups
            if (first is None and group.has_null)
            or ((first is None or group.last_us >= first) and (last is None or group.first_us < last))
        }


def files_of(path: Path, schema: Schema, time: str) -> ParquetFiles | None:
    """Return the files of a table that can be read like this; None where only Spark knows what they mean."""
    import pyarrow as pa

    try:
        files = _files(path)
        if not files or len(files) > _MOST:
            return None
        with ThreadPoolExecutor(whole_cores()) as pool:
            answers = list(pool.map(lambda file: _groups(file, tuple(schema), time), files))
    except (OSError, pa.ArrowException):
        return None
    kinds = {kind for kind, _ in answers}
    if len(kinds) > 1 or None in kinds or any(schema[name] == "any" for name in schema):
        return None
    return ParquetFiles(time, tuple(group for _, groups in answers for group in groups))


def _files(path: Path) -> list[Path]:
    """Return the files that Spark would read; none where a folder below, a log or a pattern says which those are."""
    if any(mark in str(path) for mark in "*?[]{}\\"):
        return []
    if path.is_file():
        return [path]
    every = sorted(path.iterdir()) if path.is_dir() else []
    files = [each for each in every if not each.name.startswith(("_", "."))]
    is_plain = not any(each.is_dir() for each in every) and all(each.suffix == ".parquet" for each in files)
    return files if is_plain else []


def _groups(path: Path, names: Sequence[str], time: str) -> tuple[Any, list[Group]]:
    """Return the types of the columns of a file, None where one is not for us, and its groups of rows."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        metadata, fields = file.metadata, file.schema_arrow
        columns = list(dict.fromkeys([*names, time]))
        meta = metadata.metadata or {}
        if any(name in meta for name in _OLD) or meta.get(b"org.apache.spark.version", b"3").startswith((b"1.", b"2.")):
            return None, []
        if any(fields.names.count(name) != 1 or not _is_plain(fields.field(name).type) for name in columns):
            return None, []
        places = {file.schema.column(i).path: i for i in range(len(file.schema))}
        if any(file.schema.column(places[name]).physical_type == "INT96" for name in columns):
            return None, []
        unit = _micros_of(fields.field(time).type)
        if unit is None:
            return None, []
        groups = []
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            statistics = group.column(places[time]).statistics
            if statistics is None or not statistics.has_min_max or not statistics.has_null_count:
                return None, []
            lowest, highest = statistics.min_raw * unit, statistics.max_raw * unit
            groups.append(Group(str(path), number, group.num_rows, lowest, highest, statistics.null_count > 0))
        return tuple(str(fields.field(name).type) for name in columns), groups


def _is_plain(kind: Any) -> bool:
    import pyarrow.types as t

    return bool(
        t.is_signed_integer(kind)
        or t.is_float32(kind)
        or t.is_float64(kind)
        or t.is_boolean(kind)
        or t.is_string(kind)
        or (t.is_timestamp(kind) and kind.unit in ("ms", "us"))
    )


def _micros_of(kind: Any) -> int | None:
    """Return how many microseconds one is in a column of times; None of what is no time."""
    import pyarrow.types as t

    if t.is_timestamp(kind):
        return {"ms": 1000, "us": 1}[kind.unit]
    return 1 if t.is_int64(kind) or t.is_int32(kind) else None


def _opened(path: str) -> Any:
    """Open a file such that no more of it is in memory than a part of each column that is read."""
    import pyarrow.parquet as pq

    return pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False)


def _batches(file: Any, group: Group, columns: list[str]) -> Iterator[Any]:
    batches: Iterator[Any] = file.iter_batches(_TAKEN, row_groups=[group.number], columns=columns, use_threads=False)
    return batches


def _at(column: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz))
    return column.cast(pa.int64())


def _reader(
    time: str, edges: Edges, groups_of: list[set[Group]], schema: Schema, prefix: Prefix
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def read(tables: Iterator[Any]) -> Iterator[Any]:
        for table in tables:
            for number in table.column(0).to_pylist():
                yield from rows_of(number, sorted(groups_of[number]), edges[number : number + 2])

    def rows_of(number: int, groups: Sequence[Group], piece: Edges) -> Iterator[Any]:
        from headwater.spark.sources.data_source import in_arrow

        rows = _piece(groups, schema, time, piece)
        return in_arrow(iter(())) if rows is None else in_order(number, rows, schema, prefix)

    return read


def _piece(groups: Sequence[Group], schema: Schema, time: str, edges: Edges) -> Any:
    """Return the rows of a piece and their times in the column AT; None if there are none."""
    import pyarrow as pa

    pieces = []
    for path, several in groupby(groups, key=attrgetter("path")):
        with _opened(path) as file:
            for group in several:
                for batch in _batches(file, group, list(dict.fromkeys([*schema, time]))):
                    rows = _rows_in(batch.append_column(AT, _at(batch.column(time))), group, edges)
                    if rows.num_rows:
                        pieces.append(pa.Table.from_batches([rows]).select([*schema, AT]))
    # of a column that may lack values in one file, another may say that it never does
    return pa.concat_tables(pieces, promote_options="default") if pieces else None


def _rows_in(rows: Any, group: Group, edges: Edges) -> Any:
    """Return those rows of a group that are in a piece; those without a time are in the first."""
    import pyarrow.compute as pc

    first, last = edges
    at = rows.column(AT)
    if first is not None and (group.first_us < first or group.has_null):
        rows = rows.filter(pc.greater_equal(at, first))
        at = rows.column(AT)
    if last is not None and group.last_us >= last:
        rows = rows.filter(pc.fill_null(pc.less(at, last), True))
    return rows
