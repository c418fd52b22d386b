"""History first: a table, and then a stream, give what one stream of all of it does, on Spark and on the engine."""

from __future__ import annotations

import json
import random
from datetime import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater import Flow, agg, engine, io
from headwater import spark as on_spark
from headwater.deploy.takeover import take_over
from headwater.errors import FlowError, RunError
from headwater.flow import Tumbling
from headwater.flow.ranges import Sizes
from headwater.spark.backfilling import Backfill
from headwater.spark.history import Slice, table_of

ROWS, UNTIL = 2000, 1500
SECOND = 1_000_000
FIELDS = {"tank": str, "level": int, "at": "time"}
SLICES = Sizes(2, batch_records=400)


def readings():
    return [{"tank": "abc"[n % 3], "level": n, "at": n * SECOND} for n in range(ROWS)]


def counted(state, record):
    """Number the records of each key: shows whether state is neither lost nor counted twice."""
    state = (state or 0) + 1
    return state, {"tank": record["tank"], "level": record["level"], "n": state}


def built(source, folder):
    flow = Flow("tanks")
    timed = flow.read("levels", source).event_time("time", "at", lateness="5 s")
    numbers = timed.key_by("tank").process("count", counted, out={"tank": str, "level": int, "n": int})
    numbers.write("counted", io.JsonLines(folder / "counted.jsonl"))
    means = timed.key_by("tank").window("minutes", Tumbling("60 s"), n=agg.count(), total=agg.sum("level"))
    means.key_by("n").process("seen", again, out={"n": int, "seen": int}).write("again", io.Csv(folder / "again.csv"))
    means.write("means", io.ParquetTable(folder / "means"))
    return flow


def again(state, record):
    state = (state or 0) + 1
    return state, {"n": record["n"], "seen": state}


def put_on(number, put_out):
    return iter(())


def live(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return io.JsonLines(path, FIELDS)


@pytest.fixture
def table(tmp_path):
    """All readings, in no order, in two files."""
    rows = readings()
    random.Random(3).shuffle(rows)
    (tmp_path / "table").mkdir()
    for number in range(2):
        some = pa.Table.from_pylist(rows[number::2])
        some = some.set_column(2, "at", some["at"].cast(pa.timestamp("us", "UTC")))
        pq.write_table(some, tmp_path / "table" / f"{number}.parquet")
    return tmp_path / "table"


@pytest.fixture
def rest(tmp_path):
    """A stream that begins where history ends."""
    return live(tmp_path / "rest.jsonl", readings()[UNTIL:])


def written(folder):
    means = pq.read_table(folder / "means").sort_by([("tank", "ascending"), ("start", "ascending")])
    return (
        sorted((folder / "counted.jsonl").read_text().splitlines()),
        sorted((folder / "again.csv").read_text().splitlines()),
        means.select(["tank", "start", "n", "total"]).to_pylist(),
    )


@pytest.fixture
def all_at_once(tmp_path):
    """What one stream of all readings gives."""
    folder = tmp_path / "at-once"
    folder.mkdir()
    engine.run(built(live(tmp_path / "all.jsonl", readings()), folder))
    return written(folder)


def until():
    return "1970-01-01T00:25:00Z"  # second 1500


@pytest.mark.parametrize(("goes_on", "read_by"), [("engine", "tasks"), ("spark", "tasks"), ("spark", "spark")])
def test_a_stream_goes_on_from_history(spark, tmp_path, table, rest, all_at_once, goes_on, read_by):
    flow, kept = built(rest, tmp_path), tmp_path / "kept"
    said = until() if goes_on == "engine" else datetime.fromisoformat(until())
    given = table if read_by == "tasks" else spark.read.parquet(str(table))
    told = on_spark.backfill(flow, given, until=said, checkpoint=kept, sizes=SLICES)
    assert told.last.records_in == UNTIL
    assert told.extra["backfill"] == {
        "done": True, "records": UNTIL, "slices": 4, "slices_done": 4, "until": "1970-01-01T00:25:00.000000Z",
    }  # fmt: skip
    assert told.late == 0
    if goes_on == "spark":
        assert on_spark.run(flow, checkpoint=kept).last.records_in == ROWS - UNTIL
    else:
        take_over(flow, kept, tmp_path / "there")
        assert engine.run(flow, checkpoint=tmp_path / "there").last.records_in == ROWS - UNTIL
    assert written(tmp_path) == all_at_once


def test_history_that_was_cut_off_goes_on_where_it_was(spark, tmp_path, table, rest, all_at_once, monkeypatch):
    flow, given = built(rest, tmp_path), {"until": until(), "checkpoint": tmp_path / "kept", "sizes": SLICES}
    whole = Backfill._read

    def cut_off(run, edges, number):
        whole(run, edges, number)
        if number == 1:  # in the sinks, and not noted yet
            raise OSError("the power is gone")

    with monkeypatch.context() as patch:
        patch.setattr(Backfill, "_read", cut_off)
        with pytest.raises(RunError, match="the power is gone"):
            on_spark.backfill(flow, table, **given)
    with pytest.raises(RunError, match="begins with history, which was not read to its end: run the same command"):
        on_spark.run(flow, checkpoint=tmp_path / "kept")
    with pytest.raises(RunError, match=r"has begun with other history: levels=.*table until .* then, and levels=else"):
        on_spark.backfill(flow, "else", checkpoint=tmp_path / "kept")
    on_spark.backfill(flow, table, **given)
    assert on_spark.backfill(flow, table, **given).last.records_in == 0  # it is there
    on_spark.run(flow, checkpoint=tmp_path / "kept")
    assert written(tmp_path) == all_at_once


def test_the_command_reads_history_and_goes_on(spark, tmp_path, table, all_at_once, typed):
    (tmp_path / "flow.py").write_text(
        "import sys; sys.path.insert(0, {here!r})\nfrom pathlib import Path\nfrom test_backfill import *\n"
        "flow = built(io.JsonLines({rest!r}, FIELDS), Path({out!r}))\n".format(
            here=str(__file__).rpartition("/")[0], rest=str(tmp_path / "rest.jsonl"), out=str(tmp_path)
        )
    )
    live(tmp_path / "rest.jsonl", readings()[UNTIL:])
    command = ["run", "flow.py", "--on", "spark", "--backfill", table, "--until", until(), "--json"]
    code, _, err = typed(*command)
    assert (code, "--backfill is about checkpoints" in err) == (2, True)
    code, _, err = typed(*command, "--checkpoint", "kept", "--history-only", "--prometheus", "9100")
    assert (code, "--prometheus shows a stream, and --history-only ends before" in err) == (2, True)
    code, out, err = typed(*command, "--checkpoint", "kept", "--history-only")
    assert code == 0, err
    assert json.loads(out)["records_in"] == UNTIL
    code, out, err = typed(*command, "--checkpoint", "kept")
    assert code == 0, err
    assert json.loads(out)["records_in"] == ROWS - UNTIL
    assert written(tmp_path) == all_at_once


def test_what_is_no_history_is_told(spark, tmp_path, table, rest):
    kept = {"checkpoint": tmp_path / "kept"}
    plain = Flow("plain")
    plain.read("levels", rest).write("out", io.Discard())
    with pytest.raises(RunError, match="history leaves state for a stream to go on from: say where"):
        on_spark.backfill(plain, table)
    with pytest.raises(FlowError, match=r"put in order by event time, which source 'levels' .* has no column for"):
        on_spark.backfill(plain, table, **kept)
    with pytest.raises(FlowError, match=r"has no source 'level'; .*did you mean 'levels'"):
        on_spark.backfill(plain, {"level": table}, **kept)
    with pytest.raises(FlowError, match="until is a moment such as 2026"):
        on_spark.backfill(plain, table, until="yesterday", **kept)
    with pytest.raises(FlowError, match=r"cannot read table .*nowhere.parquet: .*PATH_NOT_FOUND"):
        on_spark.backfill(plain, tmp_path / "nowhere.parquet", order_by="at", **kept)
    frame = spark.read.parquet(str(table)).selectExpr("tank", "level", "at", "'x' AS word")
    with pytest.raises(FlowError, match="column 'word', by which the table is put in order, is string; it must be a"):
        on_spark.backfill(plain, frame, order_by="word", **kept)


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_what_a_file_says_of_its_times_is_used_to_leave_it_out(spark, tmp_path, table, rest, kind):
    flow, path = built(rest, tmp_path), str(tmp_path / "typed")
    spark.read.parquet(str(table)).selectExpr("tank", "level", f"CAST(at AS {kind}) at").write.parquet(path)
    found = table_of(spark, spark.read.parquet(path), flow, "levels", None)
    rows = found.slice(Slice((100 * SECOND, 200 * SECOND)), ("tank", "level", "at"), put_on)
    plan = rows._jdf.queryExecution().executedPlan().toString()
    assert "GreaterThanOrEqual(at,1970-01-01" in plan.partition("PushedFilters:")[2]
    assert found.rows.where(found._is_in(Slice((100 * SECOND, 200 * SECOND)))).count() == 100


def test_a_table_without_rows_leaves_a_stream_that_begins(spark, tmp_path, table):
    rows = live(tmp_path / "rest.jsonl", readings()[:10])
    flow, out = Flow("few"), io.JsonLines(tmp_path / "out.jsonl")
    flow.read("levels", rows).event_time("time", "at").write("out", out)
    on_spark.backfill(flow, table, until="0", checkpoint=tmp_path / "kept")
    on_spark.run(flow, checkpoint=tmp_path / "kept")
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 10
