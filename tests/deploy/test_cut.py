"""A flow that is cut into parts for several sites gives what it gives on one engine."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alike import as_multiset, by_key, keyed_chain, order_matters, straight
from headwater import Flow, Session, Sliding, Tumbling, agg, col, engine, io
from headwater.deploy import Cut, MemoryEnds
from headwater.deploy.engine_only import engine_only
from headwater.errors import PlacementError
from headwater.flow.flow import DEAD_LETTERS
from headwater.flow.steps import EventTime
from headwater.net import pis_and_vm
from headwater.place import Plan
from properties import examples
from strategies import build, flows, options, records
from told import Told
from waiting import PATIENCE_S, wait_until

READINGS = {"n": int, "key": str, "x": float, "at": "time"}


def run_in_parts(flow, sites, **chosen):
    """Run the parts of a flow side by side in this process; return their reports by site."""
    cut, ends = Cut(flow, sites), MemoryEnds()
    runs = {site: engine.start(cut.part(site, ends), **chosen) for site in cut.sites}
    return {site: run.wait(PATIENCE_S) for site, run in runs.items()}


@examples(50)
@given(flows(), records, options, st.integers(1, 2), st.integers(1, 4), st.randoms(use_true_random=False))
def test_generated_flows_cut_anywhere_give_the_same(plan, rows, chosen, sources, sites, random):
    expected, made = build(plan, rows, sources), build(plan, rows, sources)
    engine.run(expected.flow, workers=1)
    steps = made.flow.steps.values()
    reports = run_in_parts(made.flow, {step.name: f"site {random.randrange(sites)}" for step in steps}, **chosen)
    assert all(report.left == report.dead_letters == 0 for report in reports.values())
    for name, sink in made.sinks.items():
        if not order_matters(made.flow):
            assert as_multiset(sink.records) == as_multiset(expected.sinks[name].records)
        if straight(made.flow):
            assert sink.records == expected.sinks[name].records


@examples(20)
@given(records, options)
def test_order_is_kept_for_each_key_from_site_to_site(rows, chosen):
    out = io.Collect()
    flow = keyed_chain(rows, out)
    run_in_parts(flow, {"r": "a", "p0": "b", "p1": "c", "p2": "b", "out": "a"}, **chosen)
    assert by_key(out.records) == by_key(rows)


def windows(rows, sinks):
    flow = Flow("windows")
    read = flow.read("r", io.Items(rows, READINGS)).event_time("t", "at", lateness="2 s")
    results = read.key_by("key").window("tumbling", Tumbling("10 s"), n=agg.count(), x=agg.sum("x"))
    results.write("tumbling out", sinks["tumbling"])
    results.late.write("late out", sinks["late"])
    read.key_by("key").window("sliding", Sliding("20 s", "10 s"), n=agg.count()).write("sliding out", sinks["sliding"])
    read.key_by("key").window("session", Session("3 s"), n=agg.count()).write("session out", sinks["session"])
    halves = read.split("halves", col.n % 2 == 0)
    joined = halves[0].key_by("key").join("joined", halves[1].key_by("key"), within="5 s")
    joined.write("joined out", sinks["joined"])
    return flow


@examples(30)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60)), max_size=60).flatmap(
        lambda drawn: st.sampled_from([drawn, sorted(drawn, key=lambda each: each[1])])
    ),
    st.randoms(use_true_random=False),
    st.sampled_from([1, 4, 256]),
)
def test_event_time_and_late_records_cross(drawn, random, chunk):
    rows = [{"n": n, "key": key, "x": float(n), "at": s * 1_000_000} for n, (key, s) in enumerate(drawn)]
    names = ("tumbling", "late", "sliding", "session", "joined")
    expected, got = ({name: io.Collect() for name in names} for _ in range(2))
    engine.run(windows(rows, expected), workers=1, chunk=1)
    flow = windows(rows, got)
    run_in_parts(flow, {step: f"site {random.randrange(3)}" for step in flow.steps}, chunk=chunk)
    in_time = [s for _, s in drawn] == sorted(s for _, s in drawn)
    for name in (
        names if in_time else names[:-1]
    ):  # which late record a join of two streams still takes is a race anywhere
        assert as_multiset(got[name].records) == as_multiset(expected[name].records), name


def test_windows_close_at_the_other_site_while_the_stream_goes_on():
    rows = [{"n": n, "key": "a", "x": 1.0, "at": n * 1_000_000} for n in range(25)]
    sinks = {name: io.Collect() for name in ("tumbling", "late", "sliding", "session", "joined")}
    flow = windows(rows, sinks)
    cut, ends = (
        Cut(flow, {step: "far" if step in ("tumbling", "tumbling out") else "near" for step in flow.steps}),
        MemoryEnds(),
    )
    (crossing,) = (each for each in cut.crossings if each.target == "far")
    bridge = ends.outlet([crossing])
    run = engine.start(cut.part("far", ends))
    reader = io.Items(rows, READINGS).open(lambda text, why: None)
    bridge.write(reader.read(25, 0))
    bridge.advance(21_000_000)
    while len(sinks["tumbling"].records) < 2:
        assert run.wait(0.01) is None
    bridge.advance(2**63 - 1)
    run.wait(PATIENCE_S)
    assert [row["n"] for row in sinks["tumbling"].records] == [10, 10, 5]


def test_dead_letters_of_all_sites_come_together():
    flow, out, dead = Flow("breaks"), io.Collect(), io.Collect()
    rows = [{"n": n} for n in range(60)]
    read = flow.read("r", io.Items(rows, {"n": int}))
    first = read.map("fifths", lambda r: {"n": r["n"] + 0 * (1 // (r["n"] % 5))}, out={"n": int})
    first.map("sevenths", lambda r: {"n": r["n"] + 0 * (1 // (r["n"] % 7))}, out={"n": int}).write("out", out)
    flow.dead_letters.write("dead", dead)
    reports = run_in_parts(flow, {"r": "a", "fifths": "a", "sevenths": "b", "out": "c", "dead": "c"})
    assert Counter(letter["step"] for letter in dead.records) == {"fifths": 12, "sevenths": 7}
    assert len(out.records) == 41
    assert {site: report.dead_letters for site, report in reports.items()} == {"a": 12, "b": 7, "c": 0}


def test_a_stream_crosses_once_for_all_who_read_it_there():
    flow = Flow("shared")
    read = flow.read("r", io.Items([{"x": 1.0}]))
    for i in range(3):
        read.filter(f"f{i}", col.x > i).write(f"w{i}", io.Collect())
    cut = Cut(flow, {name: "a" if name == "r" else "b" for name in flow.steps})
    assert [str(crossing) for crossing in cut.crossings] == ["shared: r, a → b"]
    assert list(cut.part("a", MemoryEnds()).steps) == ["r", "r (sent)"]


def tanks():
    flow = Flow("tanks")
    flow.read("levels", io.Items([{"x": 1.0}])).filter("low", col.x < 2).write("alarms", io.Discard())
    return flow


def test_a_plan_says_where_to_cut():
    net = pis_and_vm(2)
    site, cloud = net.zones[0], net.zones[-1]
    device = net.device_name(0)
    plan = Plan(flow="tanks.py", net="net.toml", placement={"levels": device, "low": site, "alarms": cloud})
    cut = Cut.of(plan, tanks(), net)
    assert cut.site_of == {"levels": site, "low": site, "alarms": cloud}
    with pytest.raises(PlacementError, match="the plan puts step 'low' on 'nowhere'"):
        Cut.of(replace(plan, placement={**plan.placement, "low": "nowhere"}), tanks(), net)
    with pytest.raises(PlacementError) as told:
        Cut.of(replace(plan, placement={**plan.placement, "low": f"{site}x"}), tanks(), net)
    assert str(told.value).count(f"did you mean '{site}'?") == 1
    with pytest.raises(PlacementError, match="shares step 'low' out as 2 copies, which cannot be deployed yet"):
        Cut.of(replace(plan, copies={"low": 2}), tanks(), net)


def test_what_cannot_be_cut_is_told():
    flow = tanks()
    with pytest.raises(PlacementError, match="nobody said at which site step 'alarms' of flow 'tanks' runs"):
        Cut(flow, {"levels": "a", "low": "b"})
    with pytest.raises(
        PlacementError, match="step 'lwo' is placed, which flow 'tanks' does not have; did you mean 'low'"
    ):
        Cut(flow, {"levels": "a", "lwo": "b", "alarms": "b"})
    with pytest.raises(PlacementError, match="no step of flow 'tanks' is placed at site 'bran'; did you mean 'barn'"):
        Cut(flow, {"levels": "barn", "low": "cloud", "alarms": "cloud"}).part("bran", MemoryEnds())


def test_dead_letters_read_at_several_sites_are_refused():
    flow = tanks()
    flow.dead_letters.filter("bad", col.error != "").write("dead", io.Discard())
    sites = dict.fromkeys(flow.steps, "a") | {"dead": "b", DEAD_LETTERS: "a"}
    with pytest.raises(PlacementError, match="dead letters of flow 'tanks' are read at sites 'a', 'b'; put all steps"):
        Cut(flow, sites)


def bringing(*seconds):
    """Return a source of records at the seconds that it is told."""
    fields = {"key": str, "at": "time"}
    return Told(fields, *seconds, made=lambda second: {"key": "a", "at": second * 1_000_000})


def silent(one, two, out):
    """Return two streams that meet, the second of which may be silent; its records pass a step on their way."""
    flow = Flow("silent")
    first = flow.read("r1", one).event_time("t1", "at")
    second = flow.read("r2", two).event_time("t2", "at", idle="30 ms").filter("f2", col.key != "")
    first.union("both", second).key_by("key").window("w", Tumbling("10 s"), n=agg.count()).write("out", out)
    return flow


@pytest.mark.parametrize("alone", ["c", "b"])  # by two bridges, or by one
def test_a_stream_that_is_silent_at_one_site_holds_nobody_back_at_another_and_comes_back(alone):
    one, two, out = bringing(1, 12), bringing(), io.Collect()
    flow = silent(one, two, out)
    cut, ends = (
        Cut(flow, {"r2": "a", "t2": "a", "f2": alone, **dict.fromkeys(("r1", "t1", "both", "w", "out"), "b")}),
        MemoryEnds(),
    )
    runs = {site: engine.start(cut.part(site, ends)) for site in cut.sites}
    wait_until(lambda: [row["start"] for row in out.records] == [0])  # the first window closes without the silent one
    two.put(13)
    wait_until(lambda: runs["b"].sample().steps["w"].records_in == 3)
    one.put(25)
    wait_until(lambda: len(out.records) == 2)  # it has come back, and is silent again
    assert out.records[1]["n"] == 2
    for each in (one, two):
        each.put(None)
    assert sum(run.wait(PATIENCE_S).late for run in runs.values()) == 0
    assert [row["n"] for row in out.records] == [1, 2, 1]


def test_a_stream_that_has_come_back_is_waited_for_at_another_site():
    one, two, out = bringing(1, 12), bringing(), io.Collect()
    flow = silent(one, two, out)
    flow = Flow.of_steps("silent", [_busy(step) for step in flow.steps.values()])
    cut, ends = Cut(flow, {name: "a" if name in ("r2", "t2", "f2") else "b" for name in flow.steps}), MemoryEnds()
    runs = {site: engine.start(cut.part(site, ends)) for site in cut.sites}
    wait_until(lambda: runs["b"].sample().steps["w"].records_in == 2)
    assert out.records == []  # it may be silent for an hour
    two.put(13)
    wait_until(lambda: [row["n"] for row in out.records] == [1])
    one.put(25)
    wait_until(lambda: runs["b"].sample().steps["w"].records_in == 4)
    assert len(out.records) == 1
    for each in (one, two):
        each.put(None)
    assert sum(run.wait(PATIENCE_S).late for run in runs.values()) == 0
    assert [row["n"] for row in out.records] == [1, 2, 1]


def _busy(step):
    """Return a step that waits an hour for a silent stream where it waited for a moment."""
    timed = isinstance(step.kind, EventTime) and step.kind.idle_us is not None
    return replace(step, kind=replace(step.kind, idle_us=3_600_000_000)) if timed else step


def test_what_a_silent_stream_comes_by_is_for_the_engine_alone():
    flow = silent(bringing(), bringing(), io.Discard())
    assert sorted(engine_only(flow)) == ["both", "f2", "t2"]
    assert "which has idle, to 'both', where it meets others" in engine_only(flow)["f2"]
