"""Parquet files that tasks read by themselves have the pieces that Spark reads; what only Spark knows is left to it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater import Flow, io
from headwater.data.schema import Schema
from headwater.spark.history import Slice, sliced, table_of
from headwater.spark.parquet_files import _piece, files_of

SCHEMA = Schema.of({"tank": str, "level": float, "full": bool, "at": "time"})
FIRST, ROWS = 1_700_000_000_000_000, 600


UTC_TIME = pa.timestamp("us", "UTC")


def written(folder, kind=UTC_TIME, **options):
    """Write rows in two files: about in order of time, some of one moment, and some without a time."""
    folder.mkdir()
    for number in range(2):
        of = range(number * ROWS // 2, (number + 1) * ROWS // 2)
        order = [n + 7 - 2 * (n % 8) for n in of]
        columns = {
            "level": pa.array([None if n % 11 == 0 else n * 7 % 31 / 2 for n in order]),
            "tank": [None if n % 13 == 0 else "abc"[n % 3] for n in order],
            "full": [n % 2 == 0 for n in order],
            "at": pa.array([None if n % 50 == 0 else FIRST + n // 3 * 1_000_000 for n in order], pa.int64()).cast(
                pa.timestamp("us") if pa.types.is_timestamp(kind) else kind
            ),
        }
        rows = pa.table(columns)
        rows = rows.set_column(3, "at", rows["at"].cast(kind))
        pq.write_table(rows, folder / f"{number}.parquet", **{"row_group_size": 64, **options})
    return folder


def flow():
    made = Flow("tanks")
    made.read("levels", io.Items([], SCHEMA)).event_time("time", "at").write("out", io.Discard())
    return made


@pytest.mark.parametrize(
    "kind", [UTC_TIME, pa.timestamp("ms", "Europe/Berlin"), pa.timestamp("us"), pa.int64()], ids=str
)
@pytest.mark.parametrize("until", [None, FIRST + 150_500_000])
def test_pieces_are_the_same_as_those_that_spark_reads(spark, tmp_path, kind, until):
    by_tasks = table_of(spark, written(tmp_path / "table", kind), flow(), "levels", "at")
    assert by_tasks.files is not None
    by_spark = replace(by_tasks, files=None)
    slices, count, until_us = sliced({"levels": by_tasks}, until, 300)
    assert (count, until_us) == sliced({"levels": by_spark}, until, 300)[1:]

    def told(number, put_out, split=None):
        for at, (_, batch) in enumerate(put_out):
            yield number, -1, at, json.dumps(batch.rows(), default=str).encode()

    read = [[], []]
    edges = Slice(tuple(sorted({edge for each in slices for edge in each.edges[1:-1]})))
    whole = Slice((None, FIRST + 40_000_000, FIRST + 41_000_000, *edges.edges, until_us))
    assert by_tasks.files.is_read_well(whole.edges, count)
    for rows, table in zip(read, (by_tasks, by_spark), strict=True):
        for each in (*slices, whole):
            rows.append(sorted(map(tuple, table.slice(each, tuple(SCHEMA), told).collect())))
    assert read[0] == read[1]
    assert sum(len(json.loads(row[3])) for row in read[0][-1]) == count


def test_a_large_group_of_rows_is_not_held_in_memory(tmp_path):
    count = 2_000_000
    rows = {"level": np.random.default_rng(1).random(count), "at": FIRST + np.arange(count)}
    pq.write_table(pa.table(rows), tmp_path / "large.parquet", row_group_size=count, compression="none")
    files = files_of(tmp_path / "large.parquet", Schema.of({"level": float, "at": "time"}), "at")
    assert len(files.groups) == 1
    read = pa.proxy_memory_pool(pa.default_memory_pool())
    before = pa.default_memory_pool()
    pa.set_memory_pool(read)
    try:
        assert files.times(None, 1000)[0] == count
    finally:
        pa.set_memory_pool(before)
    assert read.max_memory() < 8 * 2**20 < (tmp_path / "large.parquet").stat().st_size


def test_what_tells_pieces_apart_is_read_without_spark(tmp_path):
    files = files_of(written(tmp_path / "table"), SCHEMA, "at")
    assert files.count == ROWS
    assert {group.rows for group in files.groups} == {64, 44}
    first = min(group.first_us for group in files.groups)
    assert datetime.fromtimestamp(first / 1e6, UTC) == datetime.fromtimestamp(FIRST / 1e6, UTC)
    assert files.is_read_well((None, FIRST + 100_000_000, FIRST + 10**9), ROWS)


def test_files_are_read_together_of_which_one_says_that_a_column_never_lacks_a_value(tmp_path):
    for number, nullable in enumerate((True, False)):
        fields = [
            pa.field("at", pa.int64(), nullable=nullable),
            pa.field("level", pa.float64(), metadata={"n": str(number)}),
        ]
        rows = {"at": [FIRST + number], "level": [number / 2]}
        pq.write_table(pa.table(rows, pa.schema(fields)), tmp_path / f"{number}.parquet")
    files = files_of(tmp_path, schema := Schema.of({"at": "time", "level": float}), "at")
    read = _piece(files.groups, schema, "at", (None, None))
    assert read.select(["at", "level"]).to_pydict() == {"at": [FIRST, FIRST + 1], "level": [0.0, 0.5]}


def test_files_in_no_order_of_time_are_left_to_spark(tmp_path):
    files = files_of(written(tmp_path / "table", row_group_size=ROWS), SCHEMA, "at")
    edges = (None, *(FIRST + n * 3_000_000 for n in range(15)))
    assert not files.is_read_well(edges, 90)
    assert files.is_read_well(edges, ROWS)  # Spark would have to move as many
    assert files.is_read_well((None, FIRST + 45_000_000), 90)


def _in_a_folder_below(folder):
    (folder / "day=1").mkdir()
    (folder / "0.parquet").rename(folder / "day=1" / "0.parquet")


def _with_a_log(folder):
    (folder / "_delta_log").mkdir()


def _with_another_file(folder):
    (folder / "2.csv").write_text("tank\n")


def _without_statistics(folder):
    pq.write_table(pq.read_table(folder / "0.parquet"), folder / "0.parquet", write_statistics=False)


def _of_another_type(folder):
    rows = pq.read_table(folder / "0.parquet")
    pq.write_table(rows.set_column(0, "level", rows["level"].cast(pa.float32())), folder / "0.parquet")


def _of_96_bits(folder):
    for path in folder.iterdir():
        pq.write_table(pq.read_table(path), path, use_deprecated_int96_timestamps=True)


def _of_an_old_spark(folder):
    for path in folder.iterdir():
        rows = pq.read_table(path)
        pq.write_table(rows.replace_schema_metadata({"org.apache.spark.version": "2.4.8"}), path)


def _broken(folder):
    (folder / "0.parquet").write_bytes(b"PAR1")


CHANGES = [
    _in_a_folder_below, _with_a_log, _with_another_file, _without_statistics, _of_another_type, _of_96_bits,
    _of_an_old_spark, _broken,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_what_only_spark_knows_to_read_is_left_to_it(tmp_path, change):
    folder = written(tmp_path / "table")
    change(folder)
    assert files_of(folder, SCHEMA, "at") is None


def test_dates_and_json_are_left_to_spark(tmp_path):
    folder = written(tmp_path / "table")
    assert files_of(folder, Schema.of({"tank": "any"}), "at") is None
    assert files_of(folder, SCHEMA, "full") is None
    assert files_of(tmp_path / "nowhere", SCHEMA, "at") is None
