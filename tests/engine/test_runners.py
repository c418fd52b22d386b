"""What every runner on this machine must do with every flow."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from alike import as_multiset, by_key, keyed_chain, order_matters, straight
from headwater import Flow, Session, Sliding, Tumbling, agg, col, engine, io
from headwater.engine import profiler
from headwater.flow import Batch
from one_by_one import OneByOne
from properties import examples
from strategies import build, flows, options, records

RUNNERS = ["engine", "threads"]


@examples(150)
@given(flows(), records, options, st.integers(1, 2))
@example(
    [("union", 0, 2), ("process", 0, 2)],
    [{"n": i, "key": "a", "x": 1.0} for i in range(40)],
    {"on": "engine"},
    2,
)
def test_no_record_is_lost_or_doubled(plan, rows, chosen, sources):
    expected, made = build(plan, rows, sources), build(plan, rows, sources)
    engine.run(expected.flow, workers=1, take=1, policy="min_latency")
    report = engine.run(made.flow, **chosen)
    assert report.left == 0
    assert report.dead_letters == 0
    for name, sink in made.sinks.items():
        wanted, got = expected.sinks[name].records, sink.records
        if not order_matters(made.flow):
            assert as_multiset(got) == as_multiset(wanted)
        if straight(made.flow):
            assert got == wanted
        assert report.last.records_out[name] == len(got)


@given(records, options)
def test_order_is_kept_for_each_key_through_parallel_keyed_steps(rows, chosen):
    out = io.Collect()
    flow = keyed_chain(rows, out)
    engine.run(flow, **chosen)
    assert by_key(out.records) == by_key(rows)


@given(records, options)
def test_what_comes_in_goes_out_or_is_a_dead_letter(rows, chosen):
    flow, out, dead = Flow("breaks"), io.Collect(), io.Collect()

    def breaks(record):
        return {"n": record["n"], "x": 1 / (record["n"] % 5)}

    read = flow.read("r", io.Items(rows, {"n": int, "key": str, "x": float}))
    read.map("breaks", breaks, out={"n": int, "x": float}, parallel=2).write("out", out)
    flow.dead_letters.write("dead", dead)
    report = engine.run(flow, **chosen)
    assert report.last.records_in == len(rows)
    assert len(out.records) + len(dead.records) == len(rows)
    assert report.dead_letters == len(dead.records) == sum(r["n"] % 5 == 0 for r in rows)
    assert all(letter["step"] == "breaks" and "ZeroDivisionError" in letter["error"] for letter in dead.records)


@pytest.mark.parametrize("on", RUNNERS)
def test_windows_of_event_time_close_for_every_key_when_the_stream_ends(on):
    rows = [{"k": i % 5, "x": i, "at": i * 1_000_000} for i in range(100)]
    flow = Flow("windows")
    sinks = {name: io.Collect() for name in ("tumbling", "sliding", "session")}
    stream = flow.read("r", io.Items(rows, {"k": int, "x": int, "at": "time"})).event_time("t", "at", parallel=1)
    windows = {"tumbling": Tumbling("10 s"), "sliding": Sliding("20 s", "10 s"), "session": Session("30 s")}
    for name, window in windows.items():
        stream.key_by("k").window(name, window, n=agg.count(), parallel=2).write(f"{name} out", sinks[name])
    engine.run(flow, on=on)
    assert sum(r["n"] for r in sinks["tumbling"].records) == 100
    assert sum(r["n"] for r in sinks["sliding"].records) == 200
    assert sorted(r["n"] for r in sinks["session"].records) == [20] * 5


@pytest.mark.parametrize("on", RUNNERS)
def test_late_records_go_to_their_own_stream(on):
    rows = [{"k": "a", "at": second * 1_000_000} for second in (1, 15, 30, 2, 31)]
    flow, out, late = Flow("late"), io.Collect(), io.Collect()
    stream = flow.read("r", io.Items(rows, {"k": str, "at": "time"})).event_time("t", "at")
    window = stream.key_by("k").window("w", Tumbling("10 s"), n=agg.count())
    window.write("out", out)
    window.late.write("late out", late)
    engine.run(flow, on=on, chunk=1)
    assert [(r["start"] // 1_000_000, r["n"]) for r in out.records] == [(0, 1), (10, 1), (30, 2)]
    assert late.records == [{"k": "a", "at": 2_000_000}]


@pytest.mark.parametrize("on", RUNNERS)
def test_a_join_pairs_records_of_two_sources(on):
    left = [{"k": i % 3, "a": i, "at": i * 1_000_000} for i in range(30)]
    right = [{"k": i % 3, "b": i, "at": i * 1_000_000} for i in range(30)]
    flow, out = Flow("join"), io.Collect()
    one = flow.read("l", io.Items(left, {"k": int, "a": int, "at": "time"})).event_time("lt", "at", lateness="1 min")
    two = flow.read("r", io.Items(right, {"k": int, "b": int, "at": "time"})).event_time("rt", "at", lateness="1 min")
    one.key_by("k").join("j", two.key_by("k"), within="3 s", parallel=2).write("out", out)
    engine.run(flow, on=on)
    wanted = {(a, b) for a in range(30) for b in range(30) if a % 3 == b % 3 and abs(a - b) <= 3}
    assert {(r["a"], r["b"]) for r in out.records} == wanted
    assert len(out.records) == len(wanted)


@pytest.mark.parametrize("on", RUNNERS)
def test_a_window_behind_a_join_gets_every_pair(on):
    schema = {"k": str, "at": "time"}
    left = io.Items([{"k": "a", "at": 10_000_000}], schema)
    right = OneByOne([{"k": "b", "at": 10_900_000}, {"k": "a", "at": 11_000_000}, {"k": "b", "at": 30_000_000}], schema)
    flow, out = Flow("pairs"), io.Collect()
    lefts = flow.read("lefts", left).event_time("left", "at").key_by("k")
    rights = flow.read("rights", right).event_time("right", "at").key_by("k")
    pairs = lefts.join("pairs", rights, within="1 s")  # a pair is as old as its left record
    pairs.key_by("k").window("halves", Tumbling("500 ms"), n=agg.count()).write("out", out)
    report = engine.run(flow, on=on)
    assert [(row["start"], row["n"]) for row in out.records] == [(10_000_000, 1)]
    assert not report.late


@pytest.mark.parametrize("on", RUNNERS)
def test_measurements_add_up(on):
    rows = [{"x": float(i)} for i in range(5000)]
    flow = Flow("measured")
    flow.read("r", io.Items(rows)).filter("f", col.x >= 1000).map("m", lambda r: r).write("w", io.Discard())
    document = engine.run(flow, on=on).to_json()
    steps = {step["name"]: step for step in document["steps"]}
    assert (steps["f"]["in"], steps["f"]["out"], steps["m"]["in"], steps["w"]["in"]) == (
        5000,
        4000,
        4000,
        4000,
    )
    assert document["records_out"] == {"w": 4000}
    assert all(0 <= step["utilisation"] <= 1 for step in document["steps"])
    assert document["latency_ms"]["p50"] <= document["latency_ms"]["p99"]
    assert document["emit_latency_ms"]["p50"] <= document["latency_ms"]["p50"] * 1.1


def test_a_profile_tells_slow_python_from_expressions():
    flow = Flow("profiled")
    stream = flow.read("r", io.Items([{"x": float(i)} for i in range(3000)]))
    stream.filter("f", col.x >= 1500).map("m", lambda r: r).write("w", io.Discard())
    measured = profiler.profile(flow, records=3000)
    assert measured.steps["f"].form == "expressions"
    assert measured.steps["m"].form == "python"
    assert measured.steps["f"].selectivity == {"out": 0.5}


def test_a_source_with_a_backlog_is_asked_for_more_at_once():
    class Backlog(io.Items):
        def open(self, reject):
            self.asked, self._left = [], 9_000
            return self

        def read(self, limit, timeout_s):
            self.asked.append(limit)
            count = min(limit, self._left)
            self._left -= count
            rows = [{"n": 1}] * count
            return Batch.of_rows(rows, self.schema) if rows else None

        def close(self):
            pass

    source, out = Backlog([{"n": 1}]), io.Collect()
    flow = Flow("backlog")
    flow.read("numbers", source).write("out", out)
    assert engine.run(flow, chunk=300).last.records_out == {"out": 9_000}
    assert source.asked[:6] == [300, 600, 1_200, 2_000, 2_000, 2_000]
    assert source.asked[6:] in ([2_000, 1_100], [2_000, 300])  # the last batch was not full, and it was read on or not
