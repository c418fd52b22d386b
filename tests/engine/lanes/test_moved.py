"""What moves between lanes: the columns that somebody uses, and what every lane has to learn."""

from collections import Counter

import numpy as np
import pytest

from headwater import Flow, Tumbling, agg, col, engine, io
from headwater.engine.lanes.layout import laid_out
from headwater.flow.steps import Apply, Input
from headwater.flow.stream import Stream
from headwater.operators import Operator
from headwater.steps import BlockAverage, Kalman

WIDE = {"n": int, "key": str, "x": "float32", "note": str, "at": "time"}


def wide(count=2000, **more):
    """Return a source of records of which few columns matter; `more` replaces columns of the fifth, sixth, seventh."""
    rows = [{"n": n, "key": f"k{n % 7}", "x": n * 0.5, "note": "x" * 20, "at": n * 10_000} for n in range(count)]
    for at, (name, value) in enumerate(more.items(), 5):
        rows[at][name] = value
    return io.Items(rows, WIDE)


def moved(build):
    """Return the columns of each move of a flow."""
    flow = Flow("moved")
    build(flow.read("r", wide()).map("m", lambda record: record))
    return [set(move.columns) for move in laid_out(flow).moves]


def told(build, source, lanes):
    flow, out, letters = Flow("told"), io.Collect(), io.Collect()
    build(flow.read("r", source).map("m", lambda record: record)).write("w", out)
    flow.dead_letters.write("letters", letters)
    report = engine.run(flow, lanes=lanes, chunk=100)
    assert report.left == 0
    return (Counter(tuple(row.items()) for row in rows) for rows in (out.records, letters.records))


def smooth(stream):
    return stream.key_by("key").scan("smooth", Kalman("x")).select("few", "key", "n", "x")


def mean(stream):
    return stream.key_by("key").scan("mean", BlockAverage(5, "x", into="mean"), out={"key": str, "mean": "float32"})


def windows(stream):
    timed = stream.event_time("t", "at")
    return timed.key_by("key").window("win", Tumbling("1 s"), x=agg.max(col.x + 1), note=agg.count())


def together(stream):
    low, high = stream.split("sides", col.n < 100)
    both = low.key_by("key").scan("a", Kalman("x")).union("u", high.key_by("key").scan("b", Kalman("x")))
    return both.select("few", "key", "n")


def test_columns_that_nobody_uses_stay_where_they_are():
    assert moved(lambda r: smooth(r).write("w", io.Discard())) == [{"key", "n", "x"}]
    assert moved(lambda r: mean(r).write("w", io.Discard())) == [{"key", "x"}]
    assert moved(lambda r: windows(r).write("w", io.Discard())) == [{"key", "x", "at"}]
    assert moved(lambda r: together(r).write("w", io.Discard())) == [{"key", "n", "x"}] * 2


def test_what_does_not_say_what_it_reads_is_given_all():
    assert moved(lambda r: r.key_by("key").scan("s", Kalman("x")).write("w", io.Discard())) == [set(WIDE)]
    assert moved(lambda r: r.key_by("key").process("p", lambda s, r: (s, r)).write("w", io.Discard())) == [set(WIDE)]

    def late(r):
        found = windows(r)
        found.write("w", io.Discard())
        found.late.write("late", io.Discard())

    assert moved(late) == [set(WIDE)]


@pytest.mark.parametrize("build", [smooth, mean, windows, together])
def test_results_and_dead_letters_are_those_of_one_lane(build):
    source = wide(key=None, x=None, n=-1)
    for one, two in zip(told(build, source, 1), told(build, source, 2), strict=True):
        assert two == one


class Above(Operator):
    """Passes what lies above a bound, of which it is told."""

    stateless = False
    replicable = True
    bound = -1.0

    def process(self, batch, port):
        if port == 1:
            self.bound = float(batch["x"][-1])
            return None
        return batch.filter(np.asarray(batch["x"]) > self.bound)


def above(records, bounds):
    inputs = tuple(Input(s.step, s.port, s.schema, s.grouping) for s in (records, bounds.to_all()))
    records.flow.add("above", Apply(Above), inputs=inputs, outputs={"out": records.schema})
    return Stream(records.flow, "above")


def test_a_step_that_is_told_the_same_everywhere_runs_in_every_lane():
    flow, out = Flow("above"), io.Collect()
    records = flow.read("r", wide(20_000)).map("m", lambda record: record)
    means = records.key_by("key").scan("mean", BlockAverage(5, "x"), out={"key": str, "x": "float32"})
    above(records, means).write("w", out)
    layout = laid_out(flow)
    assert layout.where["above"] == "blocks"
    assert [move.to_where for move in layout.moves] == ["key", "all", "one"]
    report = engine.run(flow, lanes=2, chunk=100)
    assert report.last.steps["above"].instances == 2
    assert report.last.steps["mean"].records_out == sum(n // 5 for n in _per_key(20_000, 7))
    assert report.left == report.dead_letters == 0
    numbers = [row["n"] for row in out.records]
    assert numbers == sorted(numbers)  # blocks are in order behind it too


def _per_key(count, keys):
    return [len(range(key, count, keys)) for key in range(keys)]


def test_an_input_that_only_teaches_does_not_hold_event_time():
    flow, out = Flow("open"), io.Collect()
    columns = {"key": str, "x": float, "at": "time"}
    made = io.Generate(lambda n: {"key": ["k"] * len(n), "x": n * 1.0, "at": n * 100_000}, columns, rate=1000)
    never = flow.read("never", io.Generate(lambda n: {"x": n * 1.0}, {"x": float}, rate=1e-6))
    timed = flow.read("r", made).event_time("t", "at")
    passed = Stream(flow, above(timed, never).step, time="at")
    passed.key_by("key").window("w", Tumbling("1 s"), n=agg.count()).write("out", out)
    run = engine.start(flow)
    for _ in range(3000):
        if out.records or run.wait(0.01) is not None:
            break
    assert out.records
    run.stop()
    run.wait()
