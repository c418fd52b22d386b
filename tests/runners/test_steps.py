"""Every kind of step gives on Spark what it gives on the engine."""

from __future__ import annotations

import random
from itertools import repeat

import inline
import msgspec
import numpy as np
import pytest
from both import RECORD_BY_RECORD, SMALL, Made, assert_same, by_key, multiset

from headwater import Count, Session, Sliding, Tumbling, agg, col, engine, io
from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.flow.state import Cell
from headwater.operators import Operator
from headwater.spark.pruning import columns_used

SCHEMA = {"n": int, "key": str, "site": int, "x": float, "at": "time"}


def records(count, seed, *, jump_s=0):
    """Make records of six keys; every so often one lacks its key or its value, or comes from far back in time."""
    draw = random.Random(seed)
    rows = []
    for n in range(count):
        second = n / 4 - (draw.randint(0, jump_s) if draw.random() < 0.2 else 0)
        rows.append(
            {
                "n": n,
                "key": None if draw.random() < 0.01 else draw.choice("abcdef"),
                "site": draw.randint(0, 2),
                "x": None if draw.random() < 0.05 else round(draw.uniform(-50, 50), 2),
                "at": int(max(second, 0) * 1_000_000),
            }
        )
    return rows


def shifted(record):
    return {"n": record["n"], "key": record["key"], "share": 100 / (record["n"] % 50)}


def tripled(record):
    return [{"n": record["n"], "copy": i} for i in range(record["n"] % 3)]


def doubled(batch):
    return {"n": batch["n"] * 2}


def numbered(state, record):
    """Number the records of a key: tells loss, doubling and disorder apart."""
    seen = (state or 0) + 1
    if record["n"] % 97 == 0:
        raise ValueError(f"record {record['n']} is cursed")
    return seen, {"n": record["n"], "key": record["key"], "site": record["site"], "seen": seen}


class RunningSum:
    """A scan of a user's own."""

    def __init__(self):
        self.state = {"total": Cell("float64")}

    def run(self, batch, slots, state):
        out = np.empty(batch.length)
        values = np.asarray(batch["n"], np.float64)
        for i, slot in enumerate(slots):
            state["total"][slot] += values[i]
            out[i] = state["total"][slot]
        return {"x": out}


class Odd(Operator):
    """An operator of a user's own, with a second output."""

    def process(self, batch, port):
        odd = batch["n"] % 2 == 1
        return [(0, batch.filter(odd)), (1, batch.filter(~odd))]


def every_kind(source):
    """Build a flow of all steps."""

    def build():
        made = Made("every kind")
        read = made.flow.read("r", source)
        _stateless(made, read)
        _keyed(made, read)
        _timed(made, read)
        made.end("dead", made.flow.dead_letters)
        return made

    return build


def _stateless(made, read):
    made.end("filter", read.filter("filter", (col.x > 0) | (col.site == 1)), "key")
    made.end("select", read.select("select", "n", y=col.x * 2 + col.site, z=col.key.upper()))
    with_ = read.with_columns("with", half=col.n // 2, part=col.x / 3, missing=col.x.is_null())
    made.end("with", with_, "key")
    made.end("map", read.map("map", shifted, out={"n": int, "key": str, "share": float}), "key")
    made.end("flat_map", read.flat_map("flat_map", tripled, out={"n": int, "copy": int}))
    made.end("map_batches", read.map_batches("map_batches", doubled), "key")
    low, high = read.split("split", col.x < 0)
    made.end("low", low, "key")
    made.end("union", high.union("union", low))
    odd = read.apply("odd", Odd, sides={"even": SCHEMA})
    made.end("odd", odd, "key")
    made.end("even", odd.side("even"), "key")


def _keyed(made, read):
    out = {"n": int, "key": str, "site": int, "seen": int}
    first = read.key_by("key").process("process", numbered, out=out)
    made.end("process", first, "key")
    # by another key: the order of records that met by the first one must still be the source's
    made.end("rekeyed", first.key_by("site").process("again", numbered, out=out), "site")
    summed = read.key_by("key").scan("scan", RunningSum())
    made.end("scan", summed, "key")
    made.end("both keys", summed.key_by("key", "site").scan("scan both", RunningSum()), "key", "site")
    made.end("all", read.key_by().process("one place", numbered, out=out), "key")
    made.end("count", read.key_by("key").window("count", Count(4), n=agg.count(), x=agg.mean("x")), "key")
    made.end("moving", read.key_by("site").window("moving", Count(5, 2), low=agg.min("x"), last=agg.last("n")), "site")


def _timed(made, read):
    timed = read.event_time("time", "at", lateness="3 s")
    for name, window in {
        "tumbling": Tumbling("10 s"),
        "sliding": Sliding("9 s", "3 s"),
        "session": Session("2 s"),
    }.items():
        windowed = timed.key_by("key").window(name, window, n=agg.count(), x=agg.sum("x"), first=agg.first("n"))
        made.end(name, windowed, "key")
        made.end(f"{name} late", windowed.late, "key")
    tumbled = timed.key_by("key").window("per key", Tumbling("5 s"), n=agg.count())
    made.end("of windows", tumbled.key_by().window("of windows", Tumbling("20 s"), n=agg.sum("n"), keys=agg.count()))
    left, right = timed.split("sides", col.site == 0)
    joined = left.key_by("key").join("join", right.key_by("key"), within="1 s")
    # which pairs there are depends on the records alone; a key's pairs come in the order in which the two inputs are read,
    # one record in turn on this engine, a batch in turn elsewhere
    made.end("join", joined.select("pair", "n", "key", other=col.sides_n))
    made.end("join late", joined.late, "key")
    made.end("join late right", joined.side("late right"), "key")


def in_file(path, rows):
    """Write records as JSON Lines, with some lines that are none: a file can be read in small ranges."""
    lines = [msgspec.json.encode(row) for row in rows]
    lines[100:100] = [b"{not JSON", b'{"n": "text", "key": "a"}']
    path.write_bytes(b"\n".join(lines) + b"\n")
    return io.JsonLines(path, SCHEMA)


@pytest.mark.parametrize(("size", "buckets"), [(1000, 2), (20, 3)])
def test_stages_one_after_the_other_in_this_process(size, buckets):
    build = every_kind(io.Items(records(800, seed=2, jump_s=30), SCHEMA))
    expected = build()
    engine.run(expected.flow, **RECORD_BY_RECORD)
    got = inline.run(build().flow, buckets=buckets, batching=repeat(size))
    for name, sink in expected.sinks.items():
        assert multiset(got[f"{name} end"]) == multiset(sink.records), name
        keys = expected.keys[name]
        assert not keys or by_key(got[f"{name} end"], keys) == by_key(sink.records, keys), name


@pytest.mark.usefixtures("spark")
def test_every_kind_of_step_in_many_small_micro_batches(tmp_path):
    source = in_file(tmp_path / "r.jsonl", records(500, seed=1))
    report, got = assert_same(every_kind(source), sizes=SMALL, buckets=3)
    assert report.extra["spark"]["batches"] > 2
    assert {letter["step"] for letter in got["dead"]} >= {"r", "map", "process", "scan", "tumbling", "join"}
    assert report.extra["spark"]["watermarks"] == {"time": "1970-01-01T00:02:01.750000Z"}  # the last record, less 3 s
    assert report.extra["spark"]["state_of_steps"].keys() >= {"process", "scan", "count", "tumbling", "join"}


@pytest.mark.usefixtures("spark")
def test_columns_that_nobody_uses_make_no_difference(tmp_path):
    file = io.Parquet(tmp_path / "r.parquet")
    writer = file.open(Schema.of(SCHEMA))
    writer.write(Batch.of_rows(records(500, seed=4), Schema.of(SCHEMA)))
    writer.close()

    def build():
        made = Made("few columns")
        read = made.flow.read("r", file)
        some = read.filter("some", (col.x > -20) | col.x.is_null()).with_columns("more", twice=col.x * 2)
        made.end("kept", some.select("kept", "key", "twice"), "key")
        low, _ = read.split("sides", col.site == 0)
        made.end("low", low.select("low", "key", far=col.x.abs() > 30), "key")
        made.end("dead", made.flow.dead_letters)
        return made

    assert columns_used(build().flow, "r") == ("key", "site", "x")
    assert_same(build, sizes=SMALL, buckets=3)


@pytest.mark.usefixtures("spark")
def test_late_records_and_one_large_micro_batch():
    source = io.Items(records(1000, seed=2, jump_s=30), SCHEMA)
    report, got = assert_same(every_kind(source))
    assert got["tumbling late"]
    assert report.extra["spark"]["batches"] == 1


@pytest.mark.usefixtures("spark")
def test_nothing_at_all():
    _, got = assert_same(every_kind(io.Items([], SCHEMA)))
    assert not any(got.values())


def test_whole_numbers_that_do_not_fit_are_the_same_dead_letters(spark):
    def build():
        made = Made("whole numbers")
        rows = [
            {"n": n, "key": "ab"[n % 2], "a": a} for n, a in enumerate([1, 2**62, -(2**63), 5, 2**62, 2**62, 7, -7] * 5)
        ]
        read = made.flow.read("rows", io.Items(rows, {"n": int, "key": str, "a": int}))
        made.end("doubled", read.with_columns("double", b=col.a * 2), "key")
        sums = read.key_by("key").window("sum", Count(4), total=agg.sum("a"), other=agg.sum(-col.a))
        made.end("sums", sums, "key")
        made.end("letters", made.flow.dead_letters.select("names", "step", "error"))
        return made

    report, got = assert_same(build, sizes=SMALL)
    assert report.dead_letters > 20
    assert {row["step"] for row in got["letters"]} == {"double", "sum"}
