"""Which columns of a file are read: those that somebody looks at."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater import Flow, Tumbling, agg, col, io
from headwater.errors import FlowError
from headwater.flow.ranges import Sizes
from headwater.io.ranges.rows import RowRanges
from headwater.spark.explain import explained, explanation_text
from headwater.spark.pruning import columns_used

WIDE = {"a": int, "b": float, "c": str, "d": float, "at": "time"}


def used(build):
    flow = Flow("wide")
    build(flow.read("r", io.Items([], WIDE)))
    return columns_used(flow, "r")


def out(stream, name="out"):
    stream.write(name, io.Discard())


def test_filters_splits_and_selects_are_looked_through():
    assert used(lambda r: out(r.select("s", "c", y=col.b * 2))) == ("b", "c")
    assert used(lambda r: out(r.filter("f", col.d > 0).select("s", "a"))) == ("a", "d")
    assert used(lambda r: out(r.with_columns("w", b=col.a + 1).select("s", "b", "c"))) == ("a", "c")
    assert used(lambda r: out(r.select("s", one=col.a * 0 + 1).with_columns("w", two=col.one + 1))) == ("a",)

    def split(r):
        low, high = r.split("sides", col.b < 0)
        out(low.select("low", "a"), "low out")
        out(high.select("high", "c"), "high out")

    assert used(split) == ("a", "b", "c")
    assert used(lambda r: out(r.filter("f", col.a > 0).select("s", "a").filter("g", col.a < 9))) == ("a",)


def test_a_step_that_is_no_expression_gets_all_columns():
    assert used(out) == tuple(WIDE)
    assert used(lambda r: out(r.filter("f", col.a > 0))) == tuple(WIDE)
    assert used(lambda r: out(r.map("m", lambda record: record))) == tuple(WIDE)

    def two(r):
        out(r.select("s", "a"))
        out(r.event_time("t", "at").key_by("c").window("w", Tumbling("1 s"), n=agg.count()), "windows")

    assert used(two) == tuple(WIDE)


def test_what_could_break_keeps_the_whole_record_for_its_dead_letter():
    assert used(lambda r: out(r.select("s", y=col.a**-1))) == tuple(WIDE)
    assert used(lambda r: out(r.select("s", y=col.c.cast("int")))) == tuple(WIDE)
    assert used(lambda r: out(r.select("s", y=col.b.cast("int")))) == ("b",)


def test_nobody_uses_any_column():
    assert used(lambda r: out(r.select("s", one=col.a.is_null()).filter("f", col.one))) == ("a",)
    flow = Flow("alone")
    flow.read("r", io.Items([], WIDE))
    assert columns_used(flow, "r") == ("a",)


def test_some_columns_of_a_file_are_read_and_shown(tmp_path):
    pq.write_table(pa.table({"a": [1, 2], "b": [0.5, None], "c": ["x", "y"]}), tmp_path / "r.parquet")
    ranges = RowRanges(io.Parquet(tmp_path / "r.parquet"), Sizes(1), ("c", "b"))
    (batch,) = ranges.batches((0, 2), print)
    assert batch.rows() == [{"c": "x", "b": 0.5}, {"c": "y", "b": None}]
    with pytest.raises(FlowError, match=r"r\.parquet"):
        RowRanges(io.Parquet(tmp_path / "r.parquet"), Sizes(1), ("c", "other"))
    flow = Flow("some")
    out(flow.read("r", io.Parquet(tmp_path / "r.parquet")).filter("f", col.b > 0).select("s", "a"))
    assert "read in parallel, by ranges, 2 of 3 columns: a, b" in explanation_text(explained(flow))
