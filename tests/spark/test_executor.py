"""Stages executed bucket by bucket give what the engine gives."""

from __future__ import annotations

from collections import Counter, defaultdict

import inline
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headwater import Count, Flow, Session, Sliding, Stream, Tumbling, agg, col, engine, io
from headwater.flow.steps import Apply, Input
from headwater.operators import Operator
from headwater.operators.snapshot import pack_state, unpack_state
from headwater.spark.stages import cut
from properties import examples
from strategies import build, flows, records


def multiset(rows):
    return Counter(repr(sorted(row.items(), key=lambda item: item[0])) for row in rows)


def by_key(rows, *keys):
    kept = defaultdict(list)
    for row in rows:
        kept[tuple(row[key] for key in keys)].append(row)
    return kept


sizes = st.lists(st.integers(0, 9), min_size=1, max_size=5).filter(any)


def forever(numbers):
    while True:
        yield from numbers


def one_each(plan):
    return [(verb, which, 1) for verb, which, _ in plan]


def steps_before(flow, name):
    steps = [flow.steps[given.step] for given in flow.steps[name].inputs]
    return steps + [step for each in steps for step in steps_before(flow, each.name)]


def meets(flow, name):
    return any(len(step.inputs) > 1 for step in steps_before(flow, name))


@examples(150)
@given(flows(), records, sizes, st.integers(1, 4))
def test_generated_flows_give_the_engines_records(plan, rows, batching, buckets):
    expected, made = build(one_each(plan), rows), build(one_each(plan), rows)
    engine.run(expected.flow, workers=1, take=1, policy="min_latency")
    got = inline.run(made.flow, buckets=buckets, batching=forever(batching))
    for name, sink in expected.sinks.items():
        # streams that meet do so in no promised order, and a step with state may then tell something else
        before = steps_before(made.flow, name)
        if not any(step.inputs[0].keys and meets(made.flow, step.name) for step in before if step.inputs):
            assert multiset(got[name]) == multiset(sink.records)
        if not meets(made.flow, name):
            assert by_key(got[name], "key") == by_key(sink.records, "key")


timed = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from(["u", "v"]), st.integers(0, 60), st.integers(-8, 3)),
    max_size=80,
).map(
    lambda rows: [
        {"n": i, "key": k, "site": s, "x": float(x), "at": (i + jump) * 1_000_000}
        for i, (k, s, x, jump) in enumerate(rows)
    ]
)
TIMED = {"n": int, "key": str, "site": str, "x": float, "at": "time"}


def last_of_each(state, record):
    """Tells by its results in which order records of different keys came."""
    return [record["n"]], {**record, "x": float(-1 if state is None else state[0])}


def windows(rows, lateness):
    flow, sinks = Flow("windows"), {}
    stream = flow.read("r", io.Items(rows, TIMED)).event_time("t", "at", lateness=f"{lateness} s")
    for name, window in {
        "tumbling": Tumbling("5 s"),
        "sliding": Sliding("6 s", "2 s"),
        "session": Session("3 s"),
        "count": Count(3),
        "moving": Count(4, 2),
    }.items():
        made = stream.key_by("key").window(name, window, n=agg.count(), x=agg.sum("x"))
        sinks[name] = io.Collect()
        made.write(f"{name} out", sinks[name])
        if name in ("tumbling", "sliding", "session"):
            sinks[f"{name} late"] = io.Collect()
            made.late.write(f"{name} late out", sinks[f"{name} late"])
    again = stream.key_by("key").window("inner", Tumbling("4 s"), x=agg.sum("x"))
    outer = again.key_by().window("outer", Tumbling("8 s"), x=agg.sum("x"), n=agg.count())
    sinks["outer"] = io.Collect()
    outer.write("outer out", sinks["outer"])
    first = stream.key_by("key").process("first", last_of_each)
    second = first.key_by("site").process("second", last_of_each)
    timed_again = second.event_time("again", "at", lateness=f"{lateness} s")
    third = timed_again.key_by("key").window("third", Tumbling("5 s"), x=agg.sum("x"))
    left, right = stream.split("sides", col.site == "u")
    joined = left.key_by("key").join("join", right.key_by("key"), within="2 s")
    last = {"second": second, "third": third, "third late": third.late}
    last |= {"join": joined, "join late": joined.late, "join late right": joined.side("late right")}
    for name, made in last.items():
        sinks[name] = io.Collect()
        made.write(f"{name} out", sinks[name])
    return flow, sinks


@examples(100)
@given(timed, st.integers(0, 6), sizes, st.integers(1, 4))
def test_windows_and_late_records_are_the_engines(rows, lateness, batching, buckets):
    flow, expected = windows(rows, lateness)
    engine.run(flow, workers=1, take=1, chunk=1, policy="min_latency")
    got = inline.run(windows(rows, lateness)[0], buckets=buckets, batching=forever(batching))
    for name, sink in expected.items():
        mine = got[f"{name} out"]
        assert multiset(mine) == multiset(sink.records), name
        if name == "join":
            # pairs, late ones too, depend on the records alone; in which order a key's pairs come depends on how the
            # join's two inputs interleave, which is record by record only where batches hold one record
            continue
        keys = [key for key in ("key", "site") if sink.records and key in sink.records[0]]
        if name != "second":
            assert by_key(mine, *keys) == by_key(sink.records, *keys), name
        else:
            assert by_key(mine, "site") == by_key(sink.records, "site")


class Scaled(Operator):
    """Multiplies rows (input 0) by the latest factor (input 1), as a model is applied that comes by itself."""

    stateless = False
    replicable = True

    def __init__(self):
        self.factor = 0.0

    def process(self, batch, port):
        if port == 1:
            self.factor = float(batch["factor"][-1])
            return None
        return batch.with_columns({"x": batch["x"] * self.factor})

    def snapshot(self, select=None):
        return pack_state("scaled", {"factor": self.factor})

    def restore(self, data):
        self.factor = unpack_state("scaled", data)["factor"]


def test_what_goes_to_all_reaches_every_copy_of_a_step():
    flow, out = Flow("models"), io.Collect()
    rows = flow.read("rows", io.Items([{"n": n, "x": 1.0} for n in range(90)]))
    factors = flow.read("factors", io.Items([{"factor": 2.0}, {"factor": 3.0}]))
    inputs = (
        Input(rows.step, rows.port, rows.schema),
        Input(factors.step, factors.port, factors.schema, grouping="all"),
    )
    flow.add("scale", Apply(Scaled), inputs=inputs, outputs={"out": rows.schema})
    Stream(flow, "scale").write("out", out)
    assert [(stage.kind, stage.buckets) for stage in cut(flow, 4).stages] == [("source", 1), ("source", 1), ("even", 4)]
    got = inline.run(flow, buckets=4, batching=forever([5]))["out"]
    assert [record["n"] for record in got] == list(range(90))  # in the source's order, though spread over buckets
    assert all(record["x"] == 3.0 for record in got[15:])


class Latest(Operator):
    """Tells for each row (input 0) the last one that came by the other way (input 1)."""

    stateless = False

    def __init__(self):
        self.told = -1

    def process(self, batch, port):
        if port == 1:
            self.told = int(batch["n"][-1])
            return None
        return batch.with_columns({"x": np.full(batch.length, float(self.told))})

    def snapshot(self, select=None):
        return pack_state("latest", {"told": self.told})

    def restore(self, data):
        self.told = unpack_state("latest", data)["told"]


def test_a_step_learns_from_one_input_soon_after_what_the_other_told():
    flow, count = Flow("in turn"), 5000
    rows = flow.read("rows", io.Items([{"n": n, "key": "abc"[n % 3], "x": 0.0} for n in range(count)]))
    told = rows.key_by("key").process("told", last_of_each)
    inputs = (Input(rows.step, rows.port, rows.schema), Input(told.step, told.port, told.schema))
    flow.add("latest", Apply(Latest), inputs=inputs, outputs={"out": rows.schema})
    Stream(flow, "latest").write("out", io.Collect())
    got = inline.run(flow, buckets=2)["out"]  # one micro-batch
    assert [record["n"] for record in got] == list(range(count))
    assert all(0 <= record["n"] - record["x"] <= 600 for record in got)


def test_a_source_that_has_ended_holds_nothing_back_when_state_is_loaded_again():
    def made():
        flow, sink = Flow("two"), io.Collect()
        rows = [{"n": i, "key": "ab"[i % 2], "site": "u", "x": 1.0, "at": i * 1_000_000} for i in range(60)]
        short, long = (
            flow.read(name, io.Items(given, TIMED)).event_time(f"{name} time", "at")
            for name, given in (("short", rows[:5]), ("long", rows))
        )
        counts = short.union("both", long).key_by("key").window("w", Tumbling("5 s"), n=agg.count())
        counts.select("shown", "key", "n", "start").write("out", sink)
        return flow, sink

    flow, sink = made()
    engine.run(flow)
    assert multiset(inline.run(made()[0], batching=forever([3]))["out"]) == multiset(sink.records)
