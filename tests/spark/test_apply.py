"""Flows inside a Spark program: DataFrames in, DataFrames out, the same answers as on the engine."""

from __future__ import annotations

import json
import sys
import venv
from datetime import UTC, datetime, timedelta

import pytest

from headwater import Flow, Tumbling, agg, col, engine, io
from headwater import spark as on_spark
from headwater.errors import FlowError, QueryError, RunError
from headwater.flow.steps import Read, Write

EIGHT = datetime(2026, 11, 15, 8, tzinfo=UTC)
FIELDS = {"tank": str, "level": float, "at": "time"}
MINUTE = int(EIGHT.timestamp() * 1e6) + 60_000_000  #: a minute past eight
DDL = "tank string, level double, at timestamp"


def readings(first=0, last=120):
    return [
        {"tank": "abc"[n % 3], "level": float(n % 50), "at": EIGHT + timedelta(seconds=n)} for n in range(first, last)
    ]


def means(levels):
    timed = levels.event_time("timed", "at")
    return timed.key_by("tank").window("means", Tumbling("30 s"), mean=agg.mean("level"))


def flow_of(records, out):
    flow = Flow("tanks")
    means(flow.read("levels", io.Items(records, FIELDS))).write("out", out)
    return flow


def on_the_engine(records):
    out = io.Collect()
    engine.run(flow_of(records, out))
    return in_order(out.records)


def in_order(records):
    return sorted((record["tank"], micros(record["start"]), record["mean"]) for record in records)


def micros(moment):
    return moment if isinstance(moment, int) else round(moment.timestamp() * 1e6)


class Stream:
    """A folder of JSON files that a DataFrame streams, one file in a micro-batch."""

    def __init__(self, spark, folder):
        self.spark, self.folder = spark, folder
        folder.mkdir()

    def put(self, name, records):
        lines = [json.dumps({**r, "at": r["at"].isoformat()}) for r in records]
        (self.folder / f"{name}.json").write_text("\n".join(lines))

    def rows(self):
        return self.spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).json(str(self.folder))


def ran(rows, checkpoint):
    """Take all that a stream has for now; return that, and the query."""
    found = []
    query = (
        rows.writeStream.foreachBatch(lambda batch, number: found.extend(batch.collect()))
        .option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    return found, query


def test_a_table_gives_what_the_engine_gives_whatever_order_its_rows_have(spark):
    from pyspark.sql import Observation

    shuffled = spark.createDataFrame(readings()[::-1], DDL).repartition(3)
    counts = Observation()
    made = on_spark.apply(flow_of([], io.Collect()), shuffled, observe=counts)
    assert made.dtypes == [("tank", "string"), ("start", "timestamp"), ("end", "timestamp"), ("mean", "double")]
    assert in_order(made.collect()) == on_the_engine(readings())
    assert counts.get["late"] == 0
    assert counts.get["means"]["records_in"] == 120


def test_a_stream_keeps_its_state_in_the_checkpoint_of_who_writes_it(spark, tmp_path):
    stream = Stream(spark, tmp_path / "in")
    stream.put("a", readings(0, 40))
    stream.put("b", readings(40, 70))
    first, _ = ran(on_spark.apply(means, stream.rows(), buckets=2), tmp_path / "kept")
    closed = on_the_engine(readings())
    assert in_order(first) == [mean for mean in closed if mean[1] < MINUTE]
    stream.put("c", [*readings(70, 120), readings(5, 6)[0]])  # the last one is long late
    second, query = ran(on_spark.apply(means, stream.rows(), buckets=2), tmp_path / "kept")
    assert in_order(second) == [mean for mean in closed if MINUTE <= mean[1] < MINUTE + 30_000_000]
    told = query.lastProgress.observedMetrics["means"]
    assert (told["late"], told["means"]["late"], told["dead_letters"]) == (1, 1, 0)
    stream.put("d", readings(120, 125))
    with pytest.raises(Exception, match="over 2 buckets, not over 3; give buckets=2"):
        ran(on_spark.apply(means, stream.rows(), buckets=3), tmp_path / "kept")


def test_several_inputs_and_outputs_have_names(spark):
    flow = Flow("watch")
    levels = flow.read("levels", io.Items([], {"tank": str, "level": float, "at": "time"}))
    names = flow.read("names", io.Items([], {"tank": str, "name": str}))
    known = names.map("shout", lambda r: {"tank": r["tank"], "name": r["name"].upper()})
    known.write("known", io.Discard())
    levels.filter("is low", col.level < 2).write("low", io.Discard())
    levels.map("one over", lambda r: {"x": 1 / r["level"]}, out={"x": float}).write("x", io.Discard())
    flow.dead_letters.write("broken", io.Discard())
    given = {
        "names": spark.createDataFrame([("a", "north"), ("b", None)], "tank string, name string"),
        "levels": spark.createDataFrame(readings(0, 4), DDL),
    }
    made = on_spark.apply(flow, given)
    assert set(made) == {"known", "low", "x", "broken"}
    assert [tuple(row) for row in made["known"].collect()] == [("a", "NORTH")]
    assert sorted(row.level for row in made["low"].collect()) == [0, 1]
    assert sorted(row.step for row in made["broken"].collect()) == ["one over", "shout"]


def test_outputs_may_hang_on_different_outputs_of_one_step(spark):
    def parts(levels):
        low, rest = levels.split("is low", col.level < 2)
        counts = low.event_time("timed", "at").key_by("tank").window("counts", Tumbling("30 s"), n=agg.count())
        return {"few": counts.filter("few", col.n < 2), "late": counts.late, "rest": rest}

    made = on_spark.apply(parts, spark.createDataFrame(readings(0, 60), DDL))
    assert set(made) == {"few", "late", "rest"}  # a step may be called as its output
    assert sorted((row.tank, micros(row.start)) for row in made["few"].collect()) == [
        ("a", MINUTE - 60_000_000), ("a", MINUTE - 30_000_000), ("b", MINUTE - 60_000_000), ("c", MINUTE - 30_000_000),
    ]  # fmt: skip
    assert made["late"].columns == ["tank", "level", "at"]
    assert made["late"].collect() == []  # a table is taken in order of time
    assert sorted(row.level for row in made["rest"].collect()) == sorted(n % 50 for n in range(60) if n % 50 > 1)


def above(limits):
    """Return a flow of levels that are above the limit of their tank at the time."""
    flow = Flow("limits")
    levels = flow.read("levels", io.Items([], FIELDS)).event_time("of levels", "at")
    known = flow.read("limits", limits).event_time("of limits", "since")
    both = levels.key_by("tank").join("both", known.key_by("of"), within="1 h")
    both.filter("above", col.level > col.limit).write("out", io.Discard())
    flow.dead_letters.write("broken", io.Discard())
    return flow


LIMITS = [{"of": tank, "limit": 10.0 * n, "since": EIGHT} for n, tank in enumerate("abc", 2)]
FIELDS_OF_LIMITS = {"of": str, "limit": float, "since": "time"}


def on_the_engine_above(limits):
    flow, out = above(limits), io.Collect()
    flow = flow.replaced({"levels": Read(io.Items(readings(), FIELDS)), "out": Write(out)})
    engine.run(flow)
    return sorted((record["tank"], record["level"], record["limit"]) for record in out.records)


def limits_in(tmp_path, kind):
    """Return limits as a source, one line of which is no limit in a file."""
    if kind == "list":
        return io.Items(LIMITS, FIELDS_OF_LIMITS)
    lines = [json.dumps({**limit, "since": EIGHT.isoformat()}) for limit in LIMITS]
    (tmp_path / "limits.jsonl").write_text("\n".join([*lines[:2], "no limit", lines[2]]) + "\n")
    return io.JsonLines(tmp_path / "limits.jsonl", FIELDS_OF_LIMITS)


@pytest.mark.parametrize("kind", ["list", "file"])
def test_a_source_that_is_given_no_dataframe_is_read_to_its_end_beside_a_table(spark, tmp_path, kind):
    limits = limits_in(tmp_path, kind)
    made = on_spark.apply(above(limits), {"levels": spark.createDataFrame(readings(), DDL)})
    found = sorted((row.tank, row.level, row.limit) for row in made["out"].collect())
    assert found == on_the_engine_above(limits)
    assert len(found) > 10
    assert [row.step for row in made["broken"].collect()] == ["limits"] * (kind == "file")


@pytest.mark.parametrize("kind", ["list", "file"])
def test_a_source_that_is_given_no_dataframe_streams_beside_a_stream(spark, tmp_path, kind):
    limits = limits_in(tmp_path, kind)
    stream, found = Stream(spark, tmp_path / "in"), []
    for name, first in (("a", 0), ("b", 50)):  # the second query goes on where the first was
        stream.put(name, readings(first, 50 if first == 0 else 120))
        made = on_spark.apply(above(limits), {"levels": stream.rows()})["out"]
        writer = made.writeStream.foreachBatch(lambda batch, number: found.extend(batch.collect()))
        query = writer.option("checkpointLocation", str(tmp_path / "kept")).start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()
    assert sorted((row.tank, row.level, row.limit) for row in found) == on_the_engine_above(limits)


@pytest.mark.parametrize(
    ("source", "streams", "said"),
    [
        (io.Kafka("h:1", "limits", FIELDS_OF_LIMITS), True, "give a DataFrame of it, from spark.readStream"),
        (io.SparkTable("s3a://lake/limits", FIELDS_OF_LIMITS), False, "give a DataFrame of it, from spark.read$"),
        (io.Mqtt("h:1", "limits", FIELDS_OF_LIMITS), True, r"into a log .* spark.start\(flow, inputs={…}\)"),
        (io.Generate(dict, FIELDS_OF_LIMITS, 10), False, "has no end, and the DataFrames are tables"),
    ],
)
def test_a_source_that_cannot_be_read_beside_dataframes_is_told_with_what_can_be_done(
    spark, tmp_path, source, streams, said
):
    rows = Stream(spark, tmp_path / "in").rows() if streams else spark.createDataFrame(readings(0, 3), DDL)
    with pytest.raises(FlowError, match=f"source 'limits' of flow 'limits', which is given no DataFrame, .*{said}"):
        on_spark.apply(above(source), {"levels": rows})


@pytest.mark.parametrize(
    ("ddl", "said"),
    [
        ("tank string, level double", "has no column 'at'; columns are 'level', 'tank'"),
        ("tank string, level string, at timestamp", "column 'level' is string in the DataFrame, and float is expected"),
        ("tank string, level double, at timestamp, at timestamp", None),
    ],
)  # fmt: skip
def test_columns_that_do_not_fit_are_told_before_anything_runs(spark, ddl, said):
    rows = spark.createDataFrame([], ddl)
    with pytest.raises(FlowError, match=said or "more than one column 'at'"):
        on_spark.apply(flow_of([], io.Collect()) if said else means, rows)


def test_wrong_names_and_mixtures_are_told(spark, tmp_path):
    rows = spark.createDataFrame(readings(0, 3), DDL)
    with pytest.raises(FlowError, match="has no source 'level'; its sources are 'levels'; did you mean 'levels'"):
        on_spark.apply(flow_of([], io.Collect()), {"level": rows})
    stream = Stream(spark, tmp_path / "in").rows()
    with pytest.raises(FlowError, match="'b' is a stream and 'a' is not"):
        on_spark.apply(lambda a, b: a.union("both", b), {"a": rows, "b": stream})
    with pytest.raises(FlowError, match="source 'levels' of flow 'tanks' is given no DataFrame"):
        on_spark.apply(flow_of([], io.Collect()))
    with pytest.raises(FlowError, match=r"bytes \(binary\); cast them"):
        on_spark.apply(means, rows.selectExpr("cast(tank as binary) as bytes"))
    with pytest.raises(FlowError, match="must be a DataFrame of Spark's; got str"):
        on_spark.apply(means, "levels.parquet")
    with pytest.raises(FlowError, match="must be a DataFrame of Spark's; got DataFrame of pandas; make one of it"):
        on_spark.apply(means, rows.toPandas())
    with pytest.raises(FlowError, match="must return a stream, or a mapping of several by name; got Schema"):
        on_spark.apply(lambda rows: {"out": rows.schema}, rows)


@pytest.mark.parametrize(
    ("build", "options", "said"),
    [
        (lambda a, b: a, {}, "takes 'a', 'b'; got one DataFrame .*as {'a': …, 'b': …}"),
        (lambda: None, {}, "takes none; got one DataFrame"),
        (means, {"inputs": None}, "means is given a stream for each input, and takes 'levels'; got none"),
        (means, {"inputs": {"level": "…"}}, "takes 'levels'; got the inputs 'level'"),
        (5, {}, "a flow, or a function that makes one of streams, is expected; got int"),
        (means, {"buckets": 0}, "buckets must be a whole number of at least 1; got 0"),
        (means, {"buckets": "x"}, "buckets must be a whole number of at least 1; got 'x'"),
    ],
)
def test_what_cannot_be_applied_is_told_in_our_words(build, options, said):
    with pytest.raises((FlowError, RunError), match=said):
        on_spark.apply(build, **{"inputs": "levels.parquet", **options})


RISING = """
partition with (tank of stream)
begin
    from every e1=stream[level < 2] -> e2=stream[level > e1.level + 40] within 1 min
    select e1.tank as tank, e1.level as low, e2.level as high
end
"""


def test_a_pattern_is_found_in_a_table_and_in_a_stream(spark, tmp_path):
    flow, out = Flow("rising"), io.Collect()
    flow.read("readings", io.Items(readings(), FIELDS)).event_time("stream", "at")
    flow.query("rising", RISING).write("out", out)
    engine.run(flow)
    expected = sorted(tuple(record.values()) for record in out.records)
    assert expected
    table = spark.createDataFrame(readings(), DDL)
    assert sorted(map(tuple, on_spark.query(table, RISING).collect())) == expected
    stream = Stream(spark, tmp_path / "in")
    stream.put("a", readings(0, 35))
    stream.put("b", readings(35, 120))
    found, _ = ran(on_spark.query(stream.rows(), RISING, time="at", buckets=2), tmp_path / "kept")
    assert sorted(map(tuple, found)) == expected
    with pytest.raises(QueryError, match="nowhere"):
        on_spark.query(table, "from nowhere select tank")
    two = table.withColumn("received", table.at)
    with pytest.raises(FlowError, match="has the timestamps 'at', 'received'; say which is event time"):
        on_spark.query(two, RISING)


def test_a_flow_is_where_a_streaming_dataframe_is_written(spark, tmp_path):
    stream = Stream(spark, tmp_path / "in")
    stream.put("a", readings(0, 50))
    stream.put("b", readings(50, 120))
    out = io.Collect()
    report = on_spark.run(flow_of([], out), stream.rows(), available_now=True, checkpoint=tmp_path / "kept")
    assert report.last.records_in == 120
    assert in_order(out.records) == on_the_engine(readings())
    with pytest.raises(RunError, match="has come to its end"):
        on_spark.run(flow_of([], out), stream.rows(), checkpoint=tmp_path / "kept")
    with pytest.raises(FlowError, match="no stream cannot be run as one"):
        on_spark.run(flow_of([], out), spark.createDataFrame(readings(), DDL))


def test_workers_without_headwater_are_told_before_anything_runs(spark, tmp_path, monkeypatch):
    venv.create(tmp_path / "bare", symlinks=True)
    python = str(tmp_path / "bare" / "bin" / "python3")
    rows = spark.createDataFrame(readings(0, 10), DDL)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", python)
    for tried in (lambda: on_spark.apply(means, rows), lambda: on_spark.run(flow_of([], io.Collect()))):
        with pytest.raises(RunError, match=r"in which there is no headwater: .*PYSPARK_PYTHON") as told:
            tried()
        assert "\n" not in str(told.value)
        assert repr(python) in str(told.value)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(tmp_path / "nowhere"))
    with pytest.raises(RunError, match="which cannot be started"):
        on_spark.apply(means, rows)
    (tmp_path / "other").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tmp_path / "other").chmod(0o700)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(tmp_path / "other"))
    assert on_spark.apply(means, rows).count()  # the same by another name
