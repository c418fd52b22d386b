"""First steps of a flow as Spark's own operators: the same answers, where they claim to be, and told where they are not."""

from __future__ import annotations

import json
import math
import os
import re
from datetime import UTC, datetime, timedelta
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater import Count, Flow, Session, Sliding, Tumbling, agg, col, engine, io
from headwater import spark as on_spark
from headwater.errors import RunError
from headwater.spark.explain import explained, explanation_text

pytest.importorskip("pyspark", reason="pyspark is not installed")

EIGHT = datetime(2026, 11, 15, 8, tzinfo=UTC)
FIELDS = {"tank": str, "level": float, "n": int, "at": "time", "note": str}
DDL = "tank string, level double, n bigint, at timestamp, note string"


def readings(count=60, seed=1, step_s=3.0):
    """Return records in order of time, of values whose sums are the same in whichever order."""
    random = np.random.default_rng(seed)
    at = EIGHT
    made = []
    for number in range(count):
        at += timedelta(microseconds=int(random.integers(1, int(step_s * 2e6))))
        level = None if random.random() < 0.1 else float(random.integers(0, 200)) / 2
        made.append({"tank": "abc"[random.integers(3)], "level": level, "n": number, "at": at, "note": "x" * 5})
    return made


def micros(value):
    return round(value.timestamp() * 1e6) if isinstance(value, datetime) else value


def rows_of(records):
    """Return records as tuples, in an order of their own; digits behind the tenth do not count, nor does which NaN it is."""
    rows = (record.values() if isinstance(record, dict) else record for record in records)
    return sorted((tuple(map(shown, row)) for row in rows), key=repr)


def shown(value):
    value = micros(value)
    if isinstance(value, float):
        return round(value, 10) if math.isfinite(value) else repr(value)
    return value


def by_engine(build, records, fields=None):
    """Return what each output of a flow is on the engine."""
    flow, outs = Flow("here"), {}
    for name, stream in build(flow.read("r", io.Items(records, fields or FIELDS))).items():
        outs[name] = io.Collect()
        stream.write(f"to {name}", outs[name])
    engine.run(flow)
    return {name: rows_of(out.records) for name, out in outs.items()}


def by_spark(build, table, meaning):
    """Return the same of Spark, by one job for all outputs that have the same columns."""
    from pyspark.sql import functions as F

    made = on_spark.apply(lambda r: {f"to {name}": each for name, each in build(r).items()}, table, meaning=meaning)
    alike = {}
    for name, rows in made.items():
        tagged = rows.select(F.lit(name.removeprefix("to ")).alias("of"), F.struct("*").alias("row"))
        alike.setdefault(str(rows.dtypes), []).append(tagged)
    found = {name.removeprefix("to "): [] for name in made}
    for each in alike.values():
        for row in reduce(lambda a, b: a.union(b), each).collect():
            found[row.of].append(row.row)
    return {name: rows_of(rows) for name, rows in found.items()}


def plan_of(rows):
    return rows._jdf.queryExecution().executedPlan().toString()


def table(spark, records, ddl=DDL):
    return spark.createDataFrame([tuple(record.values()) for record in records], ddl)


def parquet(folder, records):
    folder.mkdir(exist_ok=True)
    at = pa.array([record["at"] for record in records], pa.timestamp("us", "UTC"))
    columns = {name: [record[name] for record in records] for name in FIELDS if name != "at"}
    pq.write_table(pa.table({**columns, "at": at}), folder / f"{len(list(folder.iterdir()))}.parquet")
    return str(folder)


# -- exactly the same ---------------------------------------------------------------------------------------------------


def test_filters_and_columns_go_down_to_the_source_though_python_follows(spark, tmp_path):
    from pyspark.sql import Observation

    records = readings()
    path = parquet(tmp_path / "in", records)

    def low(r):
        kept = (
            r.filter("high", col.level > 60)
            .filter("late", col.at >= micros(EIGHT))
            .select("two", "tank", half=col.level / 2)
        )
        return kept.map("told", lambda record: {**record, "half": record["half"] + 1})

    made = on_spark.apply(low, spark.read.parquet(path))
    plan = plan_of(made)
    assert "GreaterThan(level,60.0)" in plan.split("PushedFilters: ")[1].split("]")[0]
    assert "GreaterThanOrEqual(at,2026-11-15" in plan.split("PushedFilters: ")[1].split("]")[0]
    assert "ReadSchema: struct<tank:string,level:double,at:timestamp>" in plan
    assert rows_of(made.collect()) == by_engine(lambda r: {"out": low(r)}, records)["out"]

    # nothing of Python where nothing is ours
    def high(r):
        return r.filter("high", col.level > 60).select("two", "tank")

    counts = Observation()
    alone = on_spark.apply(high, spark.read.parquet(path), observe=counts)
    assert "MapInArrow" not in plan_of(alone)
    assert "ReadSchema: struct<tank:string,level:double>" in plan_of(alone)
    came = len(alone.collect())
    assert counts.get == {"records_out": came, "dead_letters": 0, "late": 0}


def test_a_run_reads_what_its_first_steps_leave_and_spark_calls_its_parts_by_their_steps(spark, tmp_path):
    records = readings()
    flow, out = Flow("high levels"), io.Collect()
    read = flow.read("r", io.SparkTable(parquet(tmp_path / "in", records), FIELDS))
    kept = read.filter("high", col.level > 60).select("two", "tank", "level")
    kept.key_by("tank").process("seen", lambda n, record: (None, record)).write("out", out)
    run = on_spark.start(flow)
    report = run.wait()
    expected = [r for r in records if (r["level"] or 0) > 60]
    assert sorted((r["tank"], r["level"]) for r in out.records) == sorted((r["tank"], r["level"]) for r in expected)
    steps = report.last.steps
    assert (steps["high"].records_in, steps["high"].records_out) == (len(records), len(expected))
    assert (steps["two"].records_in, steps["seen"].records_in) == (len(expected), len(expected))
    assert run._query.name == "high levels"
    plan = run._query._jsq.explainInternal(True)
    assert "MapInArrow r(" in plan
    assert "seen, out(" in plan
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    told = [jobs.apply(number).description().toString() for number in range(jobs.size())]
    assert any(each.startswith("Some(high levels\n") and each.endswith("batch = 0)") for each in told)


# -- what Spark means ---------------------------------------------------------------------------------------------------

AGGREGATES = {
    "count": agg.count(), "total": agg.sum("level"), "whole": agg.sum(col.n * 2), "mean": agg.mean("level"),
    "spread": agg.std("level"), "low": agg.min("level"), "high": agg.max("level"), "kinds": agg.distinct("note"),
    "first": agg.first("n"), "last": agg.last("n"), "till": agg.max("at"),
}  # fmt: skip


def windows(r):
    timed = r.filter("some", col.n % 7 != 3).event_time("timed", "at", lateness="1 s")
    kept = timed.with_columns("more", note=col.note + col.tank)
    keyed = kept.key_by("tank")
    made = {
        "tumbling": keyed.window("tumbling", Tumbling("10 s"), **AGGREGATES),
        "sliding": keyed.window("sliding", Sliding("10 s", "4 s"), **AGGREGATES),
        "session": keyed.window("session", Session("5 s"), **AGGREGATES),
    }
    return made | {
        "all": kept.key_by().window("all", Tumbling("7 s"), count=agg.count()).filter("several", col.count > 2)
    }


def test_windows_of_records_in_order_are_the_same(spark):
    # each data set has keys of its own, so that none moves the time of another
    sets = [[{**r, "tank": f"{seed}{r['tank']}"} for r in readings(80, seed)] for seed in (1, 2, 3)]
    records = sorted((record for each in sets for record in each), key=lambda record: record["at"])
    assert by_spark(windows, table(spark, records[::-1]), "spark") == by_engine(windows, records)


def test_windows_run_in_spark_and_what_it_has_not_in_python_behind_them(spark):
    records = readings()

    def build(r):
        timed = r.filter("some", col.n * col.n > 4).event_time("timed", "at")
        means = timed.key_by("tank").window("means", Tumbling("30 s"), mean=agg.mean("level"))
        return means.filter("there", ~col.mean.is_null()).map("shout", lambda m: {**m, "tank": m["tank"].upper()})

    made = on_spark.apply(build, table(spark, records), meaning="spark")
    plan = plan_of(made)
    assert plan.index("MapInArrow") < plan.index("HashAggregate")  # the first is what comes last
    assert rows_of(made.collect()) == by_engine(lambda r: {"out": build(r)}, records)["out"]
    analyzed = made._jdf.queryExecution().analyzed().toString()
    assert all(f"SubqueryAlias {step}" in analyzed for step in ("some", "means", "there"))


def test_a_stream_closes_windows_in_the_micro_batch_after_its_watermark(spark, tmp_path):
    records = readings(90, step_s=1.0)
    path = parquet(tmp_path / "in", records[:30])
    parquet(tmp_path / "in", records[30:60])
    parquet(tmp_path / "in", records[60:])
    stream = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(path)

    def counts(r):
        return r.event_time("timed", "at").key_by("tank").window("counts", Tumbling("5 s"), n=agg.count())

    found = []
    query = (
        on_spark.apply(counts, stream, meaning="spark").writeStream
        .foreachBatch(lambda batch, number: found.extend(batch.collect()))
        .option("checkpointLocation", str(tmp_path / "kept")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    seen = micros(records[59]["at"])
    expected = by_engine(lambda r: {"out": counts(r)}, records)["out"]
    assert rows_of(found) == [row for row in expected if row[2] <= seen]


def test_a_record_that_comes_exactly_a_gap_later_begins_a_session(spark, tmp_path):
    def sessions(r):
        return r.event_time("timed", "at").key_by("tank").window("sessions", Session("3 s"), n=agg.count())

    # b moves time to just before a's session can end, in a micro-batch before that of a's last record in it
    seen = [("a", 0), ("a", 3e6), ("a", 5_500_001), ("b", 8.5e6), ("a", 8.5e6), ("a", 8.5e6), ("b", 99e6)]
    records = [
        {"tank": tank, "level": 1.0, "n": n, "at": EIGHT + timedelta(microseconds=us), "note": ""}
        for n, (tank, us) in enumerate(seen)
    ]
    expected = by_engine(lambda r: {"out": sessions(r)}, records)["out"]
    assert [row[3] for row in expected] == [1, 4, 1, 1]
    assert rows_of(on_spark.apply(sessions, table(spark, records), meaning="spark").collect()) == expected
    for number, each in enumerate((records[:4], records[4:5], records[5:6], records[6:])):
        path = parquet(tmp_path / "in", each)
        os.utime(f"{path}/{number}.parquet", (number, number))  # Spark reads them by age
    flow, out = Flow("sessions"), io.Collect()
    options = {"maxFilesPerTrigger": "1"}
    sessions(flow.read("r", io.SparkTable(path, FIELDS, options=options))).write("out", out)
    assert told(flow)[0] == ["timed", "sessions"]
    on_spark.run(flow, meaning="spark", checkpoint=tmp_path / "kept")
    assert rows_of(out.records) == expected


def joined(a, b):
    left = a.event_time("timed a", "at", lateness="1 s").filter("some", col.level > 10)
    right = b.event_time("timed b", "at").select("few", "tank", "at", "n")
    return (
        left.key_by("tank")
        .join("pairs", right.key_by("tank"), within="4 s")
        .select("two", "tank", "n", other=col.few_n)
    )


def pairs_by_engine(records, others):
    flow, out = Flow("here"), io.Collect()
    read = (flow.read(name, io.Items(given, FIELDS)) for name, given in (("a", records), ("b", others)))
    joined(*read).write("out", out)
    engine.run(flow)
    assert out.records
    return rows_of(out.records)


def test_a_join_of_records_in_order_has_the_same_pairs(spark, tmp_path):
    records, others = readings(50, 1, 2.0), readings(40, 2, 2.0)
    expected = pairs_by_engine(records, others)
    given = {"a": table(spark, records), "b": table(spark, others)}
    made = on_spark.apply(joined, given, meaning="spark")
    assert "MapInArrow" not in plan_of(made)
    assert rows_of(made.collect()) == expected
    flow, out = Flow("pairs"), io.Collect()
    b = flow.read("b", io.SparkTable(parquet(tmp_path / "b", others), FIELDS))
    a = flow.read("a", io.SparkTable(parquet(tmp_path / "a", records), FIELDS))
    joined(a, b).map("told", dict).write("out", out)
    assert told(flow)[0] == ["timed a", "some", "pairs", "two", "timed b", "few"]
    report = on_spark.run(flow, meaning="spark")
    assert rows_of(out.records) == expected
    assert report.last.records_in == len(records) + len(others)


# -- what runs where ----------------------------------------------------------------------------------------------------


def reading(source=None):
    flow = Flow("levels")
    return flow, flow.read("r", source or io.SparkTable("lake/levels", FIELDS))


def told(flow, meaning="spark"):
    """Return which steps Spark runs itself, and which one does not and why."""
    (head,) = explained(flow, meaning=meaning)["by_spark"]
    return [step["name"] for step in head["steps"]], head["stopped"] and (
        head["stopped"]["step"],
        head["stopped"]["why"],
    )


def test_what_spark_runs_itself_is_told_and_why_the_next_step_is_not():
    flow, r = reading()
    timed = r.filter("high", col.level > 2).event_time("timed", "at", lateness="5 s")
    means = timed.key_by("tank").window("means", Tumbling("30 s"), mean=agg.mean("level"))
    means.map("shout", dict).write("out", io.Discard())
    steps, (stopped, why) = told(flow, "headwater")
    assert (steps, stopped) == (["high"], "timed")
    assert "exact for each record here" in why
    steps, (stopped, why) = told(flow)
    assert (steps, stopped) == (["high", "timed", "means"], "shout")
    assert "no operator of its own" in why
    text = explanation_text(explained(flow, meaning="spark"))
    assert "means  tumbling 30 s by tank: mean = mean(col.level)  (Spark's window and aggregates)" in text
    assert "and then Python: shout: Spark has no operator of its own for it" in text
    assert "(read by Spark itself, as parquet, behind 'means')" in text


def counted(stream, window=None, **keys):
    return stream.key_by(*keys.get("by", ("tank",))).window(
        "w", window or Tumbling("1 s"), n=keys.get("n", agg.count())
    )


@pytest.mark.parametrize(
    ("build", "steps", "stopped", "why"),
    [
        (lambda t: counted(t, Count(3)), ["f"], "timed", "'w' is told event time by it.*number of records"),
        (lambda t: counted(t, n=agg.custom(len, "n")), ["f"], "timed", "is a function of Python's"),
        (lambda t: counted(t, Session("1 s"), by=()), ["f"], "timed", "sessions by key alone"),
        (lambda t: counted(t, Session("1 us")), ["f"], "timed", "has no shorter gap"),
        (
            lambda t: counted(t).key_by().window("v", Tumbling("9 s"), n=agg.sum("n")),
            ["f"], "timed", "'v' behind it goes by event time",
        ),
        (lambda t: counted(t).filter("g", col.n // col.n > 1), ["f", "timed", "w"], "g", "rounds towards zero"),
        (lambda t: t.union("u", t), ["f"], "timed", "puts several streams together"),
    ],
)  # fmt: skip
def test_a_step_that_spark_cannot_run_is_named_with_the_reason(build, steps, stopped, why):
    flow, r = reading()
    build(r.filter("f", col.level > 0).event_time("timed", "at")).write("out", io.Discard())
    found, (step, reason) = told(flow)
    assert (found, step) == (steps, stopped)
    assert re.search(why, reason)


def test_late_records_that_are_read_and_sources_of_ours_keep_steps_in_python():
    flow, r = reading()
    counts = r.event_time("timed", "at").key_by("tank").window("counts", Tumbling("1 s"), n=agg.count())
    counts.write("out", io.Discard())
    counts.late.write("late", io.Discard())
    steps, (stopped, why) = told(flow)
    assert (steps, stopped) == ([], "timed")
    assert "somebody reads its late records" in why
    flow, r = reading(io.Items([], FIELDS))
    r.filter("f", col.level > 0).write("out", io.Discard())
    assert told(flow) == ([], ("r", "it is read in Python, not by Spark"))
    assert explained(flow)["by_spark"] == []
    flow, r = reading()
    r.filter("f", col.level > 0).write("out", io.Discard())
    r.filter("g", col.level < 0).write("other", io.Discard())
    steps, (stopped, why) = told(flow, "headwater")
    assert (steps, stopped) == ([], "r")
    assert "'f', 'g' read it" in why
    with pytest.raises(RunError, match=r"there is no meaning 'sparks'.*did you mean 'spark'"):
        on_spark.SparkOptions(meaning="sparks")


FLOW = """
from headwater import Flow, Session, agg, col, io

flow = Flow("levels")
read = flow.read("levels", io.Parquet("in.parquet"))
timed = read.filter("high", col.level > 2).event_time("timed", "at", lateness="5 s")
sessions = timed.key_by("tank").window("sessions", Session("3 s"), n=agg.count(), mean=agg.mean("level"))
sessions.map("told", dict).write("out", io.JsonLines("out.jsonl"))
"""


def test_the_command_line_shows_both_meanings_and_runs_close_all_windows_at_their_end(spark, typed, tmp_path):
    (tmp_path / "flow.py").write_text(FLOW)
    parquet(tmp_path, readings())
    (tmp_path / "1.parquet").rename(tmp_path / "in.parquet")
    code, out, _ = typed("show", "flow.py", "--on", "spark", "--meaning", "spark")
    assert code == 0
    assert "Spark's own operators, behind source levels:" in out
    assert "timed     event time at  (Spark's watermark, 5 s behind)" in out
    code, _, err = typed("show", "flow.py", "--meaning", "spark")
    assert (code, "say --on spark too" in err) == (2, True)
    code, _, err = typed("run", "flow.py", "--meaning", "spark")
    assert (code, "--meaning" in err) == (2, True)
    code, _, err = typed("run", "flow.py", "--on", "spark", "--meaning", "sprak")
    assert (code, "did you mean 'spark'" in err) == (2, True)
    on = ("run", "flow.py", "--on", "spark", "--checkpoint", "kept", "--json")
    code, out, err = typed(*on, "--meaning", "spark")
    assert code == 0, err
    steps = {step["name"]: step for step in json.loads(out)["steps"]}
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert typed("run", "flow.py", "--json")[0] == 0
    expected = (tmp_path / "out.jsonl").read_text().splitlines()
    assert sorted(lines) == sorted(expected)
    assert (steps["levels"]["in"], steps["sessions"]["out"]) == (60, len(lines))
    code, _, err = typed(*on)
    assert (code, "its run had meaning='spark', and this has 'headwater'" in err) == (2, True)
