"""A checkpoint belongs to one flow, its inputs and one run at a time; others are turned away before Spark starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater import Flow, Tumbling, agg, io
from headwater import spark as on_spark
from headwater.errors import RunError
from headwater.flow.ranges import Sizes
from headwater.spark.checkpoint import Checkpoint
from headwater_bench.riot.sources import MessageFile, Messages

SMALL = Sizes(parallel=2, batch_bytes=3000, batch_records=100, piece_bytes=1000)
SCHEMA = {"n": int}


@pytest.fixture
def no_spark(monkeypatch):
    """Fail where Spark would be started."""

    def started(*given):
        raise AssertionError("Spark was started")

    monkeypatch.setattr("headwater.spark.running.session", started)


def write_lines(path, numbers):
    path.write_text("".join(json.dumps({"n": n}) + "\n" for n in numbers))
    return io.JsonLines(path, SCHEMA)


def copying(source, out):
    flow = Flow("copying")
    flow.read("r", source).write("out", out)
    return flow


def stopped_half_way(flow, **options):
    """Run a flow until it has read something; return how many records that was."""
    running = on_spark.start(flow, sizes=SMALL, **options)
    while running.wait(0.02) is None:
        if running.sample().records_in:
            running.stop()
    read = running.wait().last.records_in
    assert 0 < read < 2000
    return read


def test_another_file_is_not_read_from_where_the_first_was_left(spark, tmp_path, monkeypatch):
    first, out = write_lines(tmp_path / "a.jsonl", range(2000)), io.JsonLines(tmp_path / "out.jsonl")
    kept = {"checkpoint": tmp_path / "kept"}
    read = stopped_half_way(copying(first, out), **kept)

    def refused(source, to, why):
        with monkeypatch.context() as patch:
            patch.setattr("headwater.spark.running.session", lambda *given: pytest.fail("Spark was started"))
            with pytest.raises(RunError, match=why):
                on_spark.run(copying(source, to), **kept)

    other = write_lines(tmp_path / "b.jsonl", range(5000, 9000))
    refused(
        other, out, r"source 'r' is another: it read JsonLines .*a\.jsonl then, and is given JsonLines .*b\.jsonl now"
    )
    refused(
        first, io.JsonLines(tmp_path / "b.jsonl"), r"sink 'out' wrote .*out\.jsonl then, and is given .*b\.jsonl now"
    )
    assert len((tmp_path / "b.jsonl").read_text().splitlines()) == 4000
    write_lines(tmp_path / "a.jsonl", range(5000, 9000))
    refused(first, out, r"has read .* bytes of .*a\.jsonl, and these are not what they were.*begin anew")
    write_lines(tmp_path / "a.jsonl", range(3))
    refused(first, out, r"has read .* bytes of .*a\.jsonl, which has 27 now; was the file replaced")

    write_lines(tmp_path / "a.jsonl", range(2500))  # the same, and it has grown
    assert on_spark.run(copying(first, out), **kept).last.records_in == 2500 - read
    written = [json.loads(line)["n"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted(written) == list(range(2500))


@pytest.mark.parametrize("quoted", [False, True])
def test_a_csv_file_whose_read_part_was_edited_is_refused(spark, tmp_path, quoted):
    path = tmp_path / "in.csv"
    rows = [f'"{n}"' if quoted else str(n) for n in range(2000)]
    path.write_text("\n".join(["n", *rows, ""]))
    kept = {"checkpoint": tmp_path / "kept"}
    stopped_half_way(copying(io.Csv(path, SCHEMA), io.Discard()), **kept)
    text = path.read_text()
    path.write_text(text.replace("7", "8", 1))
    with pytest.raises(RunError, match="these are not what they were"):
        on_spark.run(copying(io.Csv(path, SCHEMA), io.Discard()), **kept)
    path.write_text(text)
    on_spark.run(copying(io.Csv(path, SCHEMA), io.Discard()), **kept)


def parquet(path, numbers):
    pq.write_table(pa.table({"n": numbers}), path)
    return io.Parquet(path)


def other_sources(folder):
    """Pairs of a source and another of its kind, and what is said of the second."""
    (folder / "a.txt").write_text("one\n")
    (folder / "b.txt").write_text("two\n")
    lines = write_lines(folder / "lines.jsonl", [1, 2])
    yield io.Items([{"n": 1}, {"n": 2}]), io.Items([{"n": 3}, {"n": 4}]), "the 2 records that it was given then are not"
    yield io.Kafka("a:1,b:2", "one", SCHEMA), io.Kafka("a:1", "two", SCHEMA), "it read Kafka one then, and is"
    yield io.Kafka("a:1,b:2", "one", SCHEMA), io.Kafka("c:1", "one", SCHEMA), "given Kafka one of c:1 now"
    yield io.Mqtt("h", "one", SCHEMA), io.Mqtt("h", "two", SCHEMA), "it read Mqtt one then, and is given Mqtt two now"
    yield io.Sqlite("a.db", "t", schema=SCHEMA), io.Sqlite("a.db", "u", schema=SCHEMA), "a.db, u now"
    yield Messages("CITY"), Messages("CITY", seed=2), "is not what it was"
    yield MessageFile(folder / "a.txt"), MessageFile(folder / "b.txt"), r"it read MessageFile .*a\.txt then"
    yield parquet(folder / "a.parquet", [1]), parquet(folder / "b.parquet", [1]), "b.parquet now"
    yield io.Items([{"n": 1}]), lines, "it read Items then, and is given JsonLines"


def test_another_source_of_any_kind_is_refused(tmp_path):
    for number, (first, second, why) in enumerate(other_sources(tmp_path)):
        checkpoint = Checkpoint(tmp_path / str(number))
        checkpoint.claim(copying(first, io.Discard()), 2)
        checkpoint.claim(copying(first, io.Discard()), 2)
        with pytest.raises(RunError, match=why):
            checkpoint.claim(copying(second, io.Discard()), 2)


def test_another_window_or_query_is_refused_the_state_of_the_one_before(tmp_path):
    def windowed(size):
        flow = Flow("windowed")
        timed = flow.read("r", io.Items([{"n": 1, "at": 0}], {"n": int, "at": "time"})).event_time("t", "at")
        timed.key_by("n").window("w", Tumbling(size), count=agg.count()).write("out", io.Discard())
        flow.query("q", f"from t#window.time({size}) select sum(n) as n").write("asked", io.Discard())
        return flow

    kept = Checkpoint(tmp_path / "kept")
    kept.claim(windowed("10 s"), 2)
    kept.claim(windowed("10 s"), 2)
    with pytest.raises(RunError, match=r"step 'w' was 'tumbling 10 s by n.*' then, and is 'tumbling 20 s by n"):
        kept.claim(windowed("20 s"), 2)


def test_what_is_the_same_source_with_more_in_it_may_go_on(tmp_path):
    pairs = [
        (io.Items([{"n": 1}]), io.Items([{"n": 1}, {"n": 2}])),
        (io.Kafka("a:1,b:2", "t", SCHEMA), io.Kafka("b:2", "t", SCHEMA)),
        (io.Mqtt("mqtt://me:secret@old", "t", SCHEMA), io.Mqtt("new", "t", SCHEMA)),
        (io.Generate(lambda n: {"n": n}, SCHEMA, 10), io.Generate(lambda n: {"n": n}, SCHEMA, 20, count=9)),
    ]
    for number, (first, second) in enumerate(pairs):
        checkpoint = Checkpoint(tmp_path / str(number))
        checkpoint.claim(copying(first, io.Discard()), 2)
        checkpoint.claim(copying(second, io.Discard()), 2)
        assert "secret" not in (checkpoint.folder / "headwater.json").read_text()


def test_a_file_that_was_rewritten_is_another(tmp_path):
    path = tmp_path / "a.parquet"
    checkpoint = Checkpoint(tmp_path / "kept")
    checkpoint.claim(copying(parquet(path, [1, 2, 3]), io.Discard()), 2)
    with pytest.raises(RunError, match=r"the content of Parquet .*a\.parquet is not what it was then"):
        checkpoint.claim(copying(parquet(path, [1, 2, 4]), io.Discard()), 2)
    lines = write_lines(tmp_path / "a.jsonl", [1, 2])
    replayed = Checkpoint(tmp_path / "replayed")
    replayed.claim(copying(io.Replay(lines, 10), io.Discard()), 2)
    write_lines(tmp_path / "a.jsonl", [1, 3])
    with pytest.raises(RunError, match=r"the content of JsonLines .*a\.jsonl is not what it was"):
        replayed.claim(copying(io.Replay(lines, 20), io.Discard()), 2)


def test_a_checkpoint_that_does_not_fit_is_told_before_spark_starts(tmp_path, no_spark):
    Checkpoint(tmp_path / "kept").claim(copying(io.Items([{"n": 1}]), io.Discard()), 2)
    other = Flow("other")
    other.read("r", io.Items([{"n": 1}])).write("out", io.Discard())
    for flow, options, why in [
        (other, {}, "it belongs to flow 'copying', not to 'other'"),
        (copying(io.Items([{"n": 2}]), io.Discard()), {}, "source 'r' is another"),
        (copying(io.Items([{"n": 1}]), io.Discard()), {"buckets": 3}, "it spreads keys over 2 buckets, not over 3"),
    ]:
        with pytest.raises(RunError, match=why):
            on_spark.run(flow, checkpoint=tmp_path / "kept", **options)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(RunError, match="is no checkpoint of Headwater's"):
        on_spark.run(other, checkpoint=tmp_path / "mine")
    assert os.listdir(tmp_path / "mine") == ["thesis.tex"]


HOLDING = """
import sys, time
from pathlib import Path
from headwater.spark.checkpoint import Checkpoint
Checkpoint(Path(sys.argv[1])).lock()
print("held", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("below", ["", "kept"])
def test_a_file_where_the_folder_is_to_be_is_told(tmp_path, no_spark, below):
    flow = Flow("f")
    flow.read("r", write_lines(tmp_path / "in.jsonl", [1])).write("out", io.Discard())
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=f"{tmp_path / 'file'} is a file, and a folder is needed"):
        on_spark.run(flow, checkpoint=tmp_path / "file" / below)


def test_two_runs_cannot_have_one_checkpoint_and_a_killed_one_gives_it_back(tmp_path, no_spark):
    flow = copying(io.Items([{"n": 1}]), io.Discard())
    command = [sys.executable, "-c", HOLDING, str(tmp_path / "kept")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout.readline() == b"held\n"
            with pytest.raises(
                RunError, match=rf"is in use by process {other.pid} since 20.*; wait until that run has ended"
            ):
                on_spark.run(flow, checkpoint=tmp_path / "kept")
        finally:
            other.send_signal(signal.SIGKILL)
    with pytest.raises(AssertionError, match="Spark was started"):
        on_spark.run(flow, checkpoint=tmp_path / "kept")


def test_a_run_that_is_over_gives_its_checkpoint_back(spark, tmp_path):
    source = write_lines(tmp_path / "in.jsonl", range(2000))
    kept = {"checkpoint": tmp_path / "kept", "sizes": SMALL}
    first = on_spark.start(copying(source, io.Discard()), **kept)
    with pytest.raises(RunError, match=f"is in use by process {os.getpid()} since"):
        on_spark.start(copying(source, io.Discard()), **kept)
    first.stop()
    first.wait()
    on_spark.run(copying(source, io.Discard()), **kept)
