"""Where a flow is cut, and which flows are refused."""

from __future__ import annotations

import threading

import pytest

from headwater import Count, Flow, Tumbling, agg, col, io, retry
from headwater.errors import RunError
from headwater.flow.state import Cell
from headwater.operators import Operator
from headwater.spark.explain import explained, explanation_text
from headwater.spark.stages import cut
from headwater_bench import riot

ROWS = [{"key": "a", "site": 1, "x": 1.0, "at": 0}]
SCHEMA = {"key": str, "site": int, "x": float, "at": "time"}


def numbered(state, record):
    return (state or 0) + 1, record


class Scan:
    makes = ("x",)

    def __init__(self):
        self.state = {"n": Cell("int64")}

    def run(self, batch, slots, state):
        return {"x": batch["x"]}


class Renaming(Scan):
    makes = ("key",)

    def run(self, batch, slots, state):
        return {"key": batch["key"]}


def started(name="f"):
    flow = Flow(name)
    return flow, flow.read("r", io.Items(ROWS, SCHEMA))


def shape(flow, buckets=4):
    return [(s.level, s.kind, s.keys, tuple(s.steps)) for s in cut(flow, buckets).stages]


def test_a_flow_without_state_is_one_stage():
    flow, read = started()
    low, high = read.filter("f", col.x > 0).split("s", col.x < 5)
    low.union("u", high).map("m", dict).write("out", io.Discard())
    assert shape(flow) == [(0, "source", (), ("r", "f", "s", "u", "m", "out"))]


def test_what_tells_the_state_of_a_flow_is_worked_out_once(monkeypatch):
    """A worker needs it for each bucket of each micro-batch, and a large flow takes milliseconds to describe."""
    flow, read = started()
    read.key_by("key").scan("a", Scan()).write("out", io.Discard())
    layout = cut(flow, 4)
    first = layout.fingerprint
    monkeypatch.setattr(Flow, "to_json", lambda flow: pytest.fail("described again"))
    assert layout.fingerprint == first


def test_steps_of_one_key_share_a_stage_and_the_records_that_enter_it():
    flow, read = started()
    first = read.key_by("key").scan("a", Scan())
    second = first.filter("f", col.x > 0).key_by("key").process("b", numbered)
    third = read.key_by("key").process("c", numbered)
    second.union("u", third).write("out", io.Discard())
    assert shape(flow) == [
        (0, "source", (), ("r",)),
        (1, "key", ("key",), ("a", "c", "f", "b", "u", "out")),
    ]
    assert [(e.stream, e.readers) for e in cut(flow, 4).entries] == [(("r", "out"), [("a", 0), ("c", 0)])]


def test_a_finer_key_stays_where_the_coarser_one_is():
    flow, read = started()
    read.key_by("key").scan("a", Scan()).key_by("key", "site").scan("b", Scan()).write("out", io.Discard())
    assert len(cut(flow, 4).stages) == 2


class Silent(Scan):
    makes = None


@pytest.mark.parametrize("change", ["scan", "silent scan", "process", "select", "map"])
def test_records_move_again_when_the_key_may_have_changed(change):
    flow, read = started()
    keyed = read.key_by("key")
    changed = {
        "scan": lambda: keyed.scan("a", Renaming()),
        "silent scan": lambda: keyed.scan("a", Silent()),
        "process": lambda: keyed.process("a", numbered),
        "select": lambda: keyed.scan("a", Scan()).with_columns("s", key=col.key + "!"),
        "map": lambda: keyed.scan("a", Scan()).map("m", dict),
    }[change]()
    changed.key_by("key").scan("b", Scan()).write("out", io.Discard())
    assert cut(flow, 4).levels == 2


def test_a_renamed_key_is_still_the_key():
    flow, read = started()
    renamed = read.key_by("key").scan("a", Scan()).select("s", "x", tank=col.key)
    renamed.key_by("tank").window("w", Count(2), n=agg.count()).write("o", io.Discard())
    assert cut(flow, 4).levels == 1


def test_windows_of_windows_and_event_time_after_a_key():
    flow, read = started()
    timed = read.event_time("t", "at")
    inner = timed.key_by("key").window("inner", Tumbling("1 s"), n=agg.count())
    inner.key_by().window("outer", Tumbling("2 s"), n=agg.sum("n")).write("out", io.Discard())
    late = timed.key_by("key").process("p", numbered).event_time("again", "at")
    late.key_by("key").window("w", Tumbling("1 s"), n=agg.count()).write("out 2", io.Discard())
    assert shape(flow)[2:] == [(2, "one", (), ("outer", "out")), (2, "one", (), ("again", "w", "out 2"))]
    assert "put event_time before key_by" in explanation_text(explained(flow))


def test_dead_letters_are_handled_where_they_are_written():
    flow, read = started()
    read.map("m", dict).key_by("key").process("p", numbered).write("out", io.Discard())
    flow.dead_letters.filter("worst", col.error != "").write("dead", io.Discard())
    assert shape(flow) == [
        (0, "source", (), ("r", "m", "dead letters", "worst", "dead")),
        (1, "key", ("key",), ("p", "out", "dead letters", "worst", "dead")),
    ]


def test_the_benchmark_flows_move_their_records_as_seldom_as_they_can():
    assert [cut(riot.flow_named(name), 4).levels for name in ("etl", "stats", "pred")] == [2, 1, 2]


class Forgetful(Operator):
    stateless = False

    def process(self, batch, port):
        return batch


def test_state_that_cannot_be_saved_is_refused():
    flow, read = started()
    read.apply("memory", Forgetful).write("out", io.Discard())
    with pytest.raises(RunError, match=r"step 'memory' cannot run on Spark: it keeps state that it cannot save"):
        cut(flow, 4)


@pytest.mark.parametrize("policy", ["stop", retry(times=2)])
def test_what_only_the_engine_does_about_trouble_is_refused(policy):
    flow = Flow("f")
    flow.read("r", io.Items(ROWS, SCHEMA)).map("m", lambda record: record, on_error=policy).write("w", io.Discard())
    with pytest.raises(RunError, match=r"step 'm' cannot run on Spark: its on_error is '(stop|retry 2 times.*)'"):
        cut(flow, 2)


def test_windows_that_close_by_a_clock_are_refused():
    flow = Flow("f")
    windows = (
        flow.read("r", io.Items(ROWS, SCHEMA))
        .key_by("key")
        .window("w", Tumbling("1 s", time="processing"), n=agg.count())
    )
    windows.write("out", io.Discard())
    with pytest.raises(RunError, match=r"step 'w' cannot run on Spark: its windows close by a machine's clock"):
        cut(flow, 2)


def test_a_silence_that_others_would_have_to_hear_of_is_refused():
    flow = Flow("f")
    one, two = (
        flow.read(f"r{i}", io.Items(ROWS, SCHEMA)).event_time(f"t{i}", "at", idle=idle)
        for i, idle in ((1, None), (2, "30 s"))
    )
    one.union("both", two).write("out", io.Discard())
    with pytest.raises(
        RunError, match=r"step 't2' cannot run on Spark: its stream meets others in 'both', and has idle"
    ):
        cut(flow, 2)
    alone, read = started()
    windows = read.event_time("t", "at", idle="30 s").key_by("key").window("w", Tumbling("1 s"), n=agg.count())
    windows.write("out", io.Discard())
    cut(alone, 2)  # nobody waits for it


def test_copies_of_records_are_refused():
    flow, read = started()
    read.to_all().filter("f", col.x > 0, parallel=3).write("out", io.Discard())
    with pytest.raises(RunError, match=r"step 'f' cannot run on Spark: all records go to each of its 3 instances"):
        cut(flow, 4)


@pytest.mark.usefixtures("spark")
def test_what_cannot_be_sent_is_refused_with_the_step(spark):
    from headwater.spark.broadcast import broadcast

    lock = threading.Lock()
    flow, read = started()
    read.map("locked", lambda record: record if lock.locked() else None).write("out", io.Discard())
    with pytest.raises(RunError, match=r"step 'locked' cannot run on Spark: what it uses cannot be sent"):
        broadcast(spark, cut(flow, 4))
