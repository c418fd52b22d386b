"""Runs over files that have an end, without a checkpoint: jobs in place of a stream, and nothing else differs."""

from __future__ import annotations

import json
import time

import pytest
from counting import counting

from headwater import Flow, Tumbling, agg, io
from headwater import spark as on_spark
from headwater.errors import RunError
from headwater.flow.ranges import Sizes
from headwater.spark.finite import FiniteRun, fits
from headwater.spark.options import SparkOptions
from waiting import PATIENCE_S

pytest.importorskip("pyspark", reason="pyspark is not installed")

SCHEMA = {"n": int, "city": str}
SMALL = Sizes(2, batch_bytes=8_000, piece_bytes=3_000)


def lines(path, count):
    path.write_text("".join(json.dumps({"n": n, "city": f"c{n % 7}"}) + "\n" for n in range(count)))
    return io.JsonLines(path, SCHEMA)


def test_state_goes_from_job_to_job(spark, tmp_path):
    out = io.Collect()
    run = on_spark.start(counting(lines(tmp_path / "in.jsonl", 2000), out), sizes=SMALL)
    assert isinstance(run, FiniteRun)
    report = run.wait()
    assert report.last.records_in == 2000
    assert report.extra["spark"]["batches"] > 3
    assert "2,000 records" in run.status_line()
    for city in range(7):
        mine = [row["place"] for row in out.records if row["city"] == f"c{city}"]
        assert mine == list(range(1, len(mine) + 1))
    assert sum(1 for _ in out.records) == 2000
    assert not run.checkpoint.folder.exists()


def test_a_bucket_without_records_keeps_its_state(spark, tmp_path):
    path = tmp_path / "in.jsonl"
    cities = ["a"] * 300 + ["b"] * 300 + ["a"] * 300  # in spans longer than a job reads
    path.write_text("".join(json.dumps({"n": n, "city": city}) + "\n" for n, city in enumerate(cities)))
    out = io.Collect()
    report = on_spark.run(counting(io.JsonLines(path, SCHEMA), out), sizes=SMALL, buckets=5)
    assert report.extra["spark"]["batches"] > 2
    assert max(row["place"] for row in out.records if row["city"] == "a") == 600


def test_windows_that_are_open_at_the_end_come_out(spark, tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"at": n * 1_000_000, "x": 1}) + "\n" for n in range(95)))
    flow, out = Flow("windows"), io.Collect()
    read = flow.read("r", io.JsonLines(path, {"at": "time", "x": int})).event_time("t", "at")
    read.key_by().window("w", Tumbling("10 s"), n=agg.count()).write("out", out)
    assert fits(flow, SparkOptions())
    on_spark.run(flow, sizes=SMALL)
    assert sorted(row["n"] for row in out.records) == [5] + [10] * 9


def test_a_run_that_is_stopped_ends_with_what_it_has_read(spark, tmp_path):
    out = io.Collect()
    run = on_spark.start(counting(lines(tmp_path / "in.jsonl", 20_000), out), sizes=SMALL)
    while not run.sample().records_out.get("out"):
        assert run.wait(0.02) is None
    run.stop()
    report = run.wait(PATIENCE_S)
    assert 0 < len(out.records) == report.last.records_in < 20_000


def test_a_run_that_is_aborted_ends_at_once(spark, tmp_path):
    run = on_spark.start(counting(lines(tmp_path / "in.jsonl", 20_000), io.Collect()), sizes=SMALL)
    time.sleep(0.5)
    run.abort()
    assert run.wait(PATIENCE_S).last.records_in < 20_000


def test_what_breaks_is_told(spark, tmp_path):
    path = tmp_path / "in.jsonl"
    lines(path, 10)

    class Torn(io.JsonLines):
        def open(self, given, position=None, end=None):
            if position is not None:
                raise ValueError("as if the disk were gone")
            return super().open(given, position, end)

    flow = Flow("f")
    flow.read("r", Torn(path, SCHEMA)).write("out", io.Collect())
    with pytest.raises(RunError, match="source 'r' broke: ValueError: as if the disk were gone"):
        on_spark.run(flow)


@pytest.mark.parametrize(
    ("options", "is_stream"),
    [({}, False), ({"checkpoint": "kept"}, True), ({"seconds": 3.0}, True), ({"target": "2 s"}, True)],
)
def test_whoever_goes_on_later_or_stops_by_the_clock_streams(tmp_path, options, is_stream):
    flow = counting(lines(tmp_path / "in.jsonl", 10), io.Collect())
    assert fits(flow, SparkOptions(**options)) is not is_stream


def test_what_has_no_end_streams(tmp_path):
    path = tmp_path / "in.jsonl"
    lines(path, 10)
    assert not fits(counting(io.JsonLines(path, SCHEMA, follow=True), io.Collect()), SparkOptions())
    assert not fits(counting(io.Items([], SCHEMA), io.Collect()), SparkOptions())
