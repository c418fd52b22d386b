"""The life of a run on Spark: ending, stopping, going on from a checkpoint, and what is said when something is wrong."""

from __future__ import annotations

import json
import time
import urllib.request

import pytest

from headwater import Batch, Flow, Schema, Tumbling, agg, col, io
from headwater import spark as on_spark
from headwater.errors import InputError, RunError
from headwater.flow.ranges import Sizes
from headwater.io.table import ParquetTable
from headwater.spark.checkpoint import Checkpoint
from headwater.spark.progress import cause_in
from headwater.web.prometheus import serve
from waiting import PATIENCE_S

SCHEMA = {"n": int, "key": str, "at": "time"}
SMALL = Sizes(parallel=2, batch_bytes=6000, batch_records=150, piece_bytes=2000)


def written(path, first, last):
    with path.open("a") as file:
        for n in range(first, last):
            file.write(json.dumps({"n": n, "key": "abc"[n % 3], "at": n * 100_000}) + "\n")


def numbered(state, record):
    seen = (state or 0) + 1
    return seen, {"n": record["n"], "key": record["key"], "seen": seen}


def counting(source, out, windows):
    flow = Flow("counting")
    read = flow.read("r", source)
    made = read.key_by("key").process("number", numbered, out={"n": int, "key": str, "seen": int})
    made.write("out", out)
    timed = read.event_time("t", "at").key_by("key").window("w", Tumbling("1 s"), n=agg.count())
    timed.write("windows", windows)
    return flow


def test_how_often_how_long_and_how_wide_are_said_on_the_command_line(spark, tmp_path, typed, monkeypatch):
    written(tmp_path / "in.jsonl", 0, 30)
    (tmp_path / "own.py").write_text(
        "from headwater import Flow, Tumbling, agg, io\nflow = Flow('own')\n"
        "read = flow.read('r', io.JsonLines('in.jsonl', {'n': int, 'key': str, 'at': 'time'}, follow=True))\n"
        "read.event_time('t', 'at').key_by('key').window('w', Tumbling('1 s'), n=agg.count())"
        ".write('out', io.JsonLines('out.jsonl'))\n"
    )
    begun = []
    start = on_spark.start
    monkeypatch.setattr(on_spark, "start", lambda *given, **named: begun.append(start(*given, **named)) or begun[0])
    words = ("run", "own.py", "--on", "spark", "--json", "--checkpoint", "kept")
    code, out, err = typed(*words, "--every", "1500ms", "--available-now", "--buckets", "3")
    assert code == 0, err  # and it ends, though it follows the file
    assert json.loads(out)["records_in"] == 30
    assert Checkpoint(tmp_path / "kept").buckets() == 3
    assert begun[0].options.every == "1.5 seconds"
    code, _, err = typed(*words, "--available-now", "--buckets", "4")
    assert (code, "it spreads keys over 3 buckets, not over 4" in err) == (2, True), err


def test_prometheus_reads_a_run_on_spark(spark):
    flow = Flow("scraped")
    flow.read("r", io.Items([{"x": float(i)} for i in range(100)])).filter("f", col.x >= 40).write("w", io.Discard())
    run = on_spark.start(flow)
    run.wait()
    server = serve(run, 0, "127.0.0.2")
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.2:{server.server_address[1]}/metrics", timeout=PATIENCE_S
        ) as answer:
            text = answer.read().decode()
    finally:
        server.shutdown()
        server.server_close()
    assert 'headwater_records_in_total{flow="scraped",step="f"} 100.0' in text
    assert 'headwater_records_out_total{flow="scraped",step="f"} 60.0' in text


def test_a_stopped_run_goes_on_where_it_was(spark, tmp_path):
    written(tmp_path / "in.jsonl", 0, 600)
    source = io.JsonLines(tmp_path / "in.jsonl", SCHEMA)
    out, windows = io.JsonLines(tmp_path / "out.jsonl"), io.Csv(tmp_path / "windows.csv")
    options = {"checkpoint": tmp_path / "kept"}
    tiny = Sizes(parallel=2, batch_bytes=1200, batch_records=30, piece_bytes=600)  # far from the end when it is stopped
    first = on_spark.start(counting(source, out, windows), sizes=tiny, **options)
    while first.wait(0.05) is None:
        if first.sample().records_in:
            first.stop()
    report = first.wait()
    read = report.last.records_in
    assert 0 < read < 600
    second = on_spark.run(counting(source, out, windows), **options)
    assert read + second.last.records_in == 600
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted(line["n"] for line in lines) == list(range(600))
    assert all(line["seen"] == line["n"] // 3 + 1 for line in lines)
    counts = [line.split(",") for line in (tmp_path / "windows.csv").read_text().splitlines()[1:]]
    assert sum(int(count) for *_, count in counts) == 600
    assert len(counts) == 3 * 60
    with pytest.raises(RunError, match="is of a run that has come to its end"):
        on_spark.run(counting(source, out, windows), **options)


def test_an_endless_source_is_stopped_and_its_windows_close(spark):
    flow, out = Flow("endless"), io.Collect()
    ticks = io.Generate(lambda numbers: {"n": numbers}, {"n": int, "at": "time"}, 2000, time="at")
    read = flow.read("ticks", ticks).event_time("t", "at", ahead="1 h")
    read.key_by().window("w", Tumbling("1 h"), n=agg.count()).write("out", out)
    running = on_spark.start(flow)
    while running.wait(0.05) is None:
        if running.sample().records_in:
            running.stop()
    report = running.wait()
    assert sum(record["n"] for record in out.records) == report.last.records_in
    assert report.last.latency.count == len(out.records)
    assert report.last.emit_latency.largest < 3600e9  # though what closes the window is a mark, which nobody emitted
    assert report.left == 0


def test_all_that_was_due_in_the_time_that_a_run_is_given_is_read(spark):
    flow, out = Flow("timed"), io.Collect()
    ticks = io.Generate(lambda numbers: {"n": numbers}, {"n": int}, 500)
    flow.read("ticks", ticks).write("out", out)
    report = on_spark.run(flow, seconds=1.0)
    assert report.last.records_in >= 500
    assert [record["n"] for record in out.records] == list(range(report.last.records_in))


def test_tasks_write_a_partitioned_table(spark, tmp_path):
    import pyarrow.dataset as ds

    written(tmp_path / "in.jsonl", 0, 600)
    flow = Flow("table")
    read = flow.read("r", io.JsonLines(tmp_path / "in.jsonl", SCHEMA))
    table = ParquetTable(tmp_path / "table", by=["key"])
    read.key_by("key").process("number", numbered, out={"n": int, "key": str, "seen": int}).write("table", table)
    report = on_spark.run(flow, sizes=SMALL)
    rows = ds.dataset(tmp_path / "table", partitioning="hive").to_table().to_pylist()
    assert sorted(row["n"] for row in rows) == list(range(600))
    assert {row["key"] for row in rows} == {"a", "b", "c"}
    assert report.last.records_out == {"table": 600}


def test_records_that_a_table_cannot_hold_are_dead_letters_and_the_others_are_there(spark, tmp_path):
    import pyarrow.dataset as ds

    keys = ["x" * 400 if n % 50 == 7 else ["a/b", "", None][n % 3] for n in range(600)]
    rows = [json.dumps({"n": n, "key": key}) for n, key in enumerate(keys)]
    (tmp_path / "in.jsonl").write_text("\n".join(rows))
    flow, letters = Flow("table"), io.Collect()
    read = flow.read("r", io.JsonLines(tmp_path / "in.jsonl", SCHEMA))
    read.write("table", ParquetTable(tmp_path / "table", by="key"))
    read.write("lines", io.JsonLines(tmp_path / "out.jsonl"))
    flow.dead_letters.write("dead", letters)
    report = on_spark.run(flow, sizes=SMALL)
    found = ds.dataset(tmp_path / "table", partitioning="hive").to_table().to_pylist()
    assert sorted(row["n"] for row in found) == [n for n in range(600) if n % 50 != 7]
    assert {row["key"] for row in found} == {"a/b", "__EMPTY__", None}
    assert report.last.records_out == {"table": 588, "lines": 600, "dead": 12}
    assert report.dead_letters == 12
    assert all("at most 251 fit" in letter["error"] for letter in letters.records)


class Overrun:
    """A source that drops three records with each batch that it reads."""

    schema = Schema.of({"n": int})

    def open(self, reject):
        self.given = self.dropped = 0
        return self

    def read(self, limit, timeout_s):
        if self.given == 10:
            return None
        self.given += 1
        self.dropped += 3
        return Batch.of({"n": [self.given]}, self.schema)

    def close(self):
        self.dropped += 1  # came after it was read for the last time


def test_what_a_reader_had_no_room_for_is_in_the_report(spark):
    flow, kept = Flow("overrun"), io.Collect()
    flow.read("in", Overrun()).write("out", kept)
    document = on_spark.run(flow).to_json()
    assert (document["records_in"], document["records_out"], document["shed"]) == (41, {"out": 10}, 31)
    assert document["shed_by"] == {"buffer of 'in' full": 31}


def broken_sink():
    class Broken:
        def open(self, schema):
            return self

        def write(self, batch):
            raise InputError("the disk is full")

        def close(self):
            pass

    return Broken()


def test_what_a_sink_cannot_take_are_dead_letters(spark):
    flow, letters = Flow("full"), io.Collect()
    flow.read("r", io.Items([{"n": 1}, {"n": 2}])).write("out", broken_sink())
    flow.dead_letters.write("dead", letters)
    report = on_spark.run(flow)
    assert [letter["error"] for letter in letters.records] == ["InputError: the disk is full"] * 2
    assert report.dead_letters == 2
    assert report.last.records_out == {"out": 0, "dead": 2}


def test_a_flow_that_breaks_in_a_worker_says_why_in_one_line(spark):
    class Unpackable:
        pass

    flow = Flow("objects")
    read = flow.read("r", io.Items([{"n": 1}]))
    read.map("m", lambda record: {"n": record["n"], "o": Unpackable()}, out={"n": int, "o": object}).write(
        "out", io.Collect()
    )
    with pytest.raises(RunError, match=r"Spark stopped the flow: column 'o'.*Unpackable") as error:
        on_spark.run(flow)
    assert "\n" not in str(error.value)


def test_wrong_checkpoints_are_turned_away(tmp_path):
    flow = counting(io.Items([], SCHEMA), io.Discard(), io.Discard())
    Checkpoint(tmp_path / "c").claim(flow, 4)
    Checkpoint(tmp_path / "c").claim(flow, 4)
    other = Flow("other")
    other.read("r", io.Items([], SCHEMA)).write("out", io.Discard())
    changed = counting(io.Items([], {**SCHEMA, "key": int}), io.Discard(), io.Discard())
    longer = counting(io.Items([], SCHEMA), io.Discard(), io.Discard())
    longer.dead_letters.write("dead", io.Discard())
    for wrong, buckets, why in [
        (other, 4, "it belongs to flow 'counting', not to 'other'"),
        (
            changed,
            4,
            r"step 'r' gave \(n: int, key: text, at: time\) then, and gives \(n: int, key: int, at: time\) now",
        ),
        (longer, 4, "flow 'counting' had no step 'dead letters' then"),
        (flow, 8, "it spreads keys over 4 buckets, not over 8"),
    ]:
        with pytest.raises(RunError, match=why):
            Checkpoint(tmp_path / "c").claim(wrong, buckets)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(RunError, match="is no checkpoint of Headwater's, and not empty"):
        Checkpoint(tmp_path / "mine").claim(flow, 4)
    (tmp_path / "c" / "headwater.json").write_text("{")
    with pytest.raises(RunError, match="cannot read checkpoint"):
        Checkpoint(tmp_path / "c").claim(flow, 4)


def test_the_cause_is_found_in_what_spark_says():
    told = "[FAILED] Traceback (most recent call last):\n  File\nZeroDivisionError: division by zero\n\tat org.apache"
    assert cause_in(told) == "ZeroDivisionError: division by zero"
    placed = 'Traceback:\n  File "a.py", line 1, in f\n  File "b.py", line 22, in g\nValueError: no\n\tat org.apache'
    assert cause_in(placed) == "ValueError: no (b.py:22)"
    assert cause_in("nothing known\nmore") == "nothing known"
    called = "py4j.protocol.Py4JJavaError: An error occurred while calling o148.getResult.\n"
    java = (
        ": org.apache.spark.SparkException: Job aborted.\n\tat org.apache\nCaused by: java.io.IOException: no route\n"
    )
    assert cause_in(f"Traceback:\n{called}{java}") == "java.io.IOException: no route"
    full = ": org.apache.spark.SparkException: Job aborted.\nCaused by: java.io.IOException: No space left on device\n"
    assert cause_in(f"Traceback:\n{called}{full}").startswith(
        "the disk is full: free some space where the checkpoint is"
    )


def test_a_missing_file_is_told_before_spark_does_anything(spark, tmp_path):
    flow = Flow("missing")
    flow.read("r", io.JsonLines(tmp_path / "no.jsonl", SCHEMA)).filter("f", col.n > 0).write("out", io.Discard())
    with pytest.raises(InputError, match=r"no\.jsonl"):
        on_spark.run(flow)


def test_what_came_too_late_or_found_no_room_is_in_the_report(spark):
    class Crowded:
        """Hands out records of two windows, the first once more when it is over, and had no room for three others."""

        schema = Schema.of(SCHEMA)
        dropped = 0

        def open(self, reject):
            self.left = [[0, 1, 70], [2, 3]]
            return self

        def read(self, limit, timeout_s):
            if not self.left:
                return None
            self.dropped = 3
            rows = [{"n": n, "key": "a", "at": n * 1_000_000} for n in self.left.pop(0)]
            return Batch.of_rows(rows, self.schema)

        def close(self):
            pass

    flow, out = Flow("crowded"), io.Collect()
    read = flow.read("r", Crowded()).event_time("t", "at")
    read.key_by("key").window("w", Tumbling("1 min"), n=agg.count()).write("out", out)
    report = on_spark.run(flow)
    assert [record["n"] for record in out.records] == [2, 1]
    told = report.to_json()
    assert (told["records_in"], told["late"], told["shed"], told["left"]) == (8, 2, 3, 0)
    assert told["shed_by"] == {"buffer of 'r' full": 3}


def test_a_run_that_breaks_tells_what_it_had_done(spark):
    flow = Flow("broken")

    class Burning:
        schema = Schema.of({"n": int})

        def open(self, reject):
            self.left = 3
            return self

        def read(self, limit, timeout_s):
            self.left -= 1
            if not self.left:
                time.sleep(2)
                raise InputError("the sensor caught fire")
            return Batch.of_rows([{"n": 1}, {"n": 2}], self.schema)

        def close(self):
            pass

    flow.read("r", Burning()).write("out", io.Discard())
    with pytest.raises(RunError, match="source 'r' stopped: the sensor caught fire") as error:
        on_spark.run(flow)
    assert error.value.report.to_json()["flow"] == "broken"
    assert error.value.report.last.steps["r"].records_in in (0, 2, 4)
