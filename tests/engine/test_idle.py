"""Streams that are silent hold nobody back; windows of processing time close by the clock."""

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from headwater import Batch, Flow, Schema, Session, Sliding, Tumbling, agg, engine, io
from headwater.data.batch import NO_WATERMARK
from headwater.engine.lanes import idleness as idle_lanes
from headwater.engine.lanes.inlet import Inlet
from headwater.engine.lanes.ring import THE_END, Bell, Message, Shortcut, idle_word
from headwater.engine.options import Options
from headwater.engine.timekeeper import Timekeeper
from headwater.engine.workers import WorkerPool
from headwater.errors import FlowError
from headwater.operators import build
from told import Told
from waiting import wait_until

RUNNERS = ["engine", "threads"]
SCHEMA = Schema.of({"k": str, "at": "time"})
S = 1_000_000


def bringing(*rows):
    """Return a source of the rows that it is told."""
    return Told(SCHEMA, *rows)


def row(k, second):
    return {"k": k, "at": second * S}


def united(a, b, out, *, idle="30 ms", parallel=1):
    flow = Flow("united")
    streams = [
        flow.read(f"r{name}", source).event_time(f"t{name}", "at", idle=idle if name == "b" else None)
        for name, source in (("a", a), ("b", b))
    ]
    both = streams[0].map("m", lambda record: record).union("u", streams[1])
    both.key_by("k").window("w", Tumbling("10 s"), n=agg.count(), parallel=parallel).write("out", out)
    return flow


@pytest.mark.parametrize("on", RUNNERS)
@pytest.mark.parametrize("parallel", [1, 2])
def test_a_silent_source_does_not_hold_back_time_and_comes_back(on, parallel):
    a, b, out = bringing(row("a", 1), row("a", 12)), bringing(), io.Collect()
    run = engine.start(united(a, b, out, parallel=parallel), on=on)
    wait_until(lambda: [r["start"] for r in out.records] == [0])  # b is idle: the first window closes without it
    b.put(row("b", 13))
    wait_until(lambda: run.sample().steps["w"].records_in == 3)
    a.put(row("a", 25))
    wait_until(lambda: len(out.records) >= 2)  # b has come back, and is idle again
    a.put(None)
    b.put(None)
    report = run.wait()
    assert sorted((r["k"], r["start"] // S, r["n"]) for r in out.records) == [
        ("a", 0, 1),
        ("a", 10, 1),
        ("a", 20, 1),
        ("b", 10, 1),
    ]
    assert report.late == 0


@pytest.mark.parametrize("on", RUNNERS)
def test_what_comes_after_a_silence_and_is_too_late_is_counted(on):
    a, b, out = bringing(row("a", 1), row("a", 12)), bringing(), io.Collect()
    run = engine.start(united(a, b, out), on=on)
    wait_until(lambda: out.records)
    b.put(row("b", 2))
    a.put(None)
    b.put(None)
    report = run.wait()
    assert report.late == report.to_json()["late"] == 1
    assert [r["k"] for r in out.records] == ["a", "a"]


@pytest.mark.parametrize("on", RUNNERS)
def test_without_idle_all_wait_for_a_silent_source(on):
    a, b, out = bringing(row("a", 1), row("a", 12)), bringing(), io.Collect()
    run = engine.start(united(a, b, out, idle=None), on=on)
    wait_until(lambda: run.sample().steps["w"].records_in == 2)
    assert not out.records
    b.put(row("b", 2))  # watermarks are those of each source, so this is not late
    a.put(None)
    b.put(None)
    assert run.wait().late == 0
    assert sorted((r["k"], r["n"]) for r in out.records) == [("a", 1), ("a", 1), ("b", 1)]


@pytest.mark.parametrize("on", RUNNERS)
def test_a_join_does_not_wait_for_a_silent_side(on):
    a, b, out, late = bringing(row("x", 1)), bringing(row("x", 1)), io.Collect(), io.Collect()
    flow = Flow("join")
    left = flow.read("ra", a).event_time("ta", "at")
    right = flow.read("rb", b).event_time("tb", "at", idle="30 ms")
    joined = left.key_by("k").join("j", right.key_by("k"), within="1 s")
    joined.write("out", out)
    joined.late.write("late", late)
    run = engine.start(flow, on=on)
    wait_until(lambda: len(out.records) == 1)
    a.put(row("x", 100))
    task = next(task for task in run.tasks if task.name == "j")
    wait_until(lambda: task.watermark == 100 * S)  # nobody waits for b
    a.put(row("x", 50))
    wait_until(lambda: len(late.records) == 1)
    a.put(None)
    b.put(None)
    assert run.wait().late == 1


@pytest.mark.parametrize("on", RUNNERS)
def test_idle_is_in_a_checkpoint(on, tmp_path):
    a, b, out = bringing(row("a", 1), row("a", 12)), bringing(), io.Collect()
    run = engine.start(united(a, b, out), on=on, checkpoint=tmp_path / "state", every="20 ms")
    wait_until(lambda: out.records)
    made = run.checkpointer.made
    complete = made.complete
    wait_until(lambda: made.complete > complete + 1)
    run.stop()
    run.wait()
    a, b, out = bringing(row("a", 25)), bringing(), io.Collect()
    # idle is an hour now: only what the checkpoint says can let time pass b
    run = engine.start(united(a, b, out, idle="1 h"), on=on, checkpoint=tmp_path / "state")
    wait_until(lambda: [r["start"] // S for r in out.records] == [10])
    a.put(None)
    b.put(None)
    run.wait()


def seen(path):
    """Return what lanes have written so far: key and count."""
    lines = path.read_text().splitlines() if path.exists() else []
    return sorted((r["k"], r["n"]) for r in map(json.loads, lines))


def test_in_lanes_a_silent_source_holds_nobody_back_and_comes_back(tmp_path):
    a, b, out = bringing(row("a", 1), row("a", 12)), bringing(), tmp_path / "out.jsonl"
    run = engine.start(united(a, b, io.JsonLines(out)), lanes=2)
    wait_until(lambda: seen(out) == [("a", 1)])  # b is idle: the first window closes without it
    b.put(row("b", 13))
    wait_until(lambda: run.sample().steps["w"].records_in == 3)
    a.put(row("a", 25))
    wait_until(lambda: len(seen(out)) == 3)  # b has come back, and is idle again
    a.put(None)
    b.put(None)
    assert run.wait().late == 0
    assert seen(out) == [("a", 1), ("a", 1), ("a", 1), ("b", 1)]


def test_in_lanes_time_that_passed_a_silent_source_goes_on_behind_other_keys(tmp_path):
    a, b, out = bringing(row("a", 1), row("a", 12)), bringing(row("b", 1)), tmp_path / "out.jsonl"
    flow = Flow("twice")
    counted = [
        flow.read(f"r{name}", source).event_time(f"t{name}", "at", idle=idle).key_by("k")
        .window(f"w{name}", Tumbling("1 s"), n=agg.count())
        for name, source, idle in (("a", a, None), ("b", b, "30 ms"))
    ]  # fmt: skip
    both = counted[0].union("u", counted[1])
    both.key_by("n").window("w", Tumbling("10 s"), k=agg.last("k")).write("out", io.JsonLines(out))
    run = engine.start(flow, lanes=2)
    a.put(row("a", 25))
    wait_until(lambda: len(seen(out)) == 2)  # though of b, nothing has come for longer, in any lane
    a.put(None)
    b.put(None)
    run.wait()


def test_in_lanes_idle_is_in_a_checkpoint(tmp_path):
    a, b, out = bringing(row("a", 1), row("a", 12)), bringing(), tmp_path / "out.jsonl"
    run = engine.start(united(a, b, io.JsonLines(out)), lanes=2, checkpoint=tmp_path / "state", every="20 ms")
    wait_until(lambda: seen(out) == [("a", 1)])
    run.stop()
    run.wait()
    a, b = bringing(row("a", 25)), bringing()
    run = engine.start(
        united(a, b, io.JsonLines(out), idle="1 h"), lanes=2, checkpoint=tmp_path / "state", every="20 ms"
    )
    wait_until(lambda: len(seen(out)) == 2)
    a.put(None)
    b.put(None)
    run.wait()


def test_in_lanes_a_source_of_which_something_is_on_its_way_is_not_silent(monkeypatch):
    monkeypatch.setattr(idle_lanes, "time", clock := SimpleNamespace(monotonic=lambda: clock.now_s, now_s=100.0))
    handed = idle_lanes.SourceActivity()
    idleness = idle_lanes.Idleness(handed, 30.0)
    idleness.broken()
    clock.now_s = 129.0
    assert not idleness.lasts(0)
    handed.blocks(1)
    clock.now_s = 131.0
    assert not idleness.lasts(0)  # the first block has not come
    handed.busy(155.0)
    clock.now_s = 180.0
    assert not idleness.lasts(1)  # the source had records then
    clock.now_s = 186.0
    assert idleness.lasts(1)


def test_an_inlet_waits_for_no_lane_that_is_idle():
    bells = Bell(), Bell()
    paths = {lane: Shortcut(*bells) for lane in (0, 1)}
    reader = Inlet(SCHEMA, paths, bells[0]).open(lambda *_: None)

    def after(lane, message):
        paths[lane].push(message)
        return reader.read(10, 0).watermark, reader.idle

    assert after(0, Message(None, 50)) == (NO_WATERMARK, False)
    assert after(1, idle_word(True)) == (50, False)
    assert after(0, idle_word(True)) == (NO_WATERMARK, True)
    assert after(1, Message(Batch.of_rows([row("a", 1)], SCHEMA), NO_WATERMARK)) == (NO_WATERMARK, False)
    assert after(1, Message(None, 60)) == (60, False)
    assert after(1, THE_END) == (NO_WATERMARK, True)  # what the other has is not at its end
    assert after(0, idle_word(False)) == (50, False)
    for bell in bells:
        bell.close()


def pool(flow):
    """A run that was never started, for a clock that a test moves."""
    return WorkerPool(flow, Options())


def words(run, look, *moments):
    told = []
    run.put_back = lambda deliveries, first=False: told.extend(
        (run.tasks[d.to].name, d.control.kind) for d in deliveries
    )
    counts = []
    for at in moments:
        look(at)
        counts.append(len(told))
    return told, counts


def test_who_is_silent_for_long_is_told_so_by_a_clock_that_nobody_sets():
    flow = united(bringing(), bringing(), io.Collect(), idle="30 s")
    run = pool(flow)
    keeper = Timekeeper(run)
    assert keeper.every_s == 1.0
    start = 10**6
    told, counts = words(run, keeper.look, start, start + 29, start + 31, start + 40, start + 62)
    assert counts == [0, 0, 1, 1, 2]  # and again: words may get lost with a run
    assert set(told) == {("tb", "idle")}


def test_who_is_held_back_or_at_work_is_not_silent():
    flow = united(bringing(), bringing(), io.Collect(), idle="30 s")
    run = pool(flow)
    keeper = Timekeeper(run)
    keeper.look(10**6)
    source = next(s for s in run.sources if s.task.name == "rb")
    source.held = 5
    _, counts = words(run, keeper.look, 10**6 + 31)
    source.held = 0
    _, more = words(run, keeper.look, 10**6 + 60, 10**6 + 62)
    assert (counts, more) == ([0], [0, 1])


@pytest.mark.parametrize("on", [*RUNNERS, "lanes"])
def test_windows_of_processing_time_close_although_nothing_comes(on):
    source, out = bringing(row("a", 1), row("a", 10**9), row("b", 1)), io.Collect()
    flow = Flow("processing")
    windows = flow.read("r", source).key_by("k").window("w", Tumbling("50 ms", time="processing"), n=agg.count())
    windows.write("out", out)
    run = engine.start(flow, lanes=2) if on == "lanes" else engine.start(flow, on=on)
    if on != "lanes":  # what a lane collects is there at the end
        wait_until(lambda: sum(r["n"] for r in out.records) == 3)
    source.put(None)
    report = run.wait()
    assert sum(r["n"] for r in out.records) == 3
    assert all(r["end"] - r["start"] == 50_000 for r in out.records)
    assert (report.late, report.dead_letters) == (0, 0)


class Hand:
    """Clocks that a test moves: one that is set, back too, and one that nobody sets."""

    now_us = start_us = 1_900_000_000 * S
    steady_us = 5 * S

    def passes(self, seconds):
        self.now_us += seconds * S
        self.steady_us += seconds * S

    def is_set(self, seconds):
        self.now_us += seconds * S

    def operator(self, step):
        operator: Any = build(step)
        operator._clock, operator._steady = lambda: self.now_us, lambda: self.steady_us
        operator._last_us = self.steady_us
        return operator


@pytest.mark.parametrize(
    ("window", "spans"),
    [
        (Tumbling("10 s", time="processing"), [(0, 10, 2), (10, 20, 1)]),
        (Sliding("20 s", "10 s", time="processing"), [(-10, 10, 2), (0, 20, 3), (10, 30, 1)]),
        (Session("10 s", time="processing"), [(0, 13, 2), (14, 24, 1)]),
    ],
)
def test_windows_of_processing_time_go_by_a_clock_that_never_runs_back(window, spans):
    clock = Hand()
    step = processing(window)
    operator = clock.operator(step)
    start, found = clock.start_us, []

    def take(result):
        for port, batch in result if isinstance(result, list) else [(0, result)] if result is not None else []:
            assert port == 0
            found.extend(batch.rows())

    one = Batch.of_rows([row("a", 5)], SCHEMA)
    take(operator.process(one, 0))
    clock.passes(3)
    take(operator.process(one, 0))
    clock.is_set(-3600)
    take(operator.tick())
    clock.passes(11)
    saved = operator.snapshot()
    operator = clock.operator(step)
    clock.is_set(3600)
    operator.restore(saved)
    take(operator.process(one, 0))
    take(operator.advance(2**62))  # event time is not theirs
    clock.passes(86)
    take(operator.tick())
    assert [((r["start"] - start) // S, (r["end"] - start) // S, r["n"]) for r in found] == spans


def test_windows_of_processing_time_go_on_closing_after_a_clock_was_set_forward_and_back():
    clock = Hand()
    operator = clock.operator(processing(Tumbling("10 s", time="processing")))
    one = Batch.of_rows([row("a", 5)], SCHEMA)
    operator.process(one, 0)
    clock.is_set(3600)
    operator.process(one, 0)
    clock.is_set(-3600)
    ends = []
    for _ in range(3):
        clock.passes(10)
        ends += [r["end"] for _, batch in operator.process(one, 0) for r in batch.rows()]
    assert [(end - clock.start_us) // S for end in ends] == [3610, 3620, 3630]


def processing(window):
    flow = Flow("f")
    flow.read("r", io.Items([], SCHEMA)).key_by("k").window("w", window, n=agg.count()).write("out", io.Discard())
    return flow.steps["w"]


def test_mistakes_are_told_while_building():
    stream = Flow("f").read("r", io.Items([], SCHEMA))
    with pytest.raises(FlowError, match="a window is of time 'event', 'processing'; got 'procesing'; did you mean"):
        Tumbling("10 s", time="procesing")
    with pytest.raises(FlowError, match="idle is how long a stream may be silent, above 0; got '0 s'"):
        stream.event_time("t", "at", idle="0 s")
    with pytest.raises(FlowError, match='or say time="processing"'):
        stream.key_by("k").window("w", Tumbling("10 s"), n=agg.count())


@pytest.mark.parametrize("on", RUNNERS)
def test_a_clock_that_is_not_set_yet_kills_no_record(on, monkeypatch, caplog):
    from headwater.operators import time as event_time

    monkeypatch.setattr(
        event_time, "latest_ns", lambda: 0
    )  # 1970, as a device without a battery has it after power comes back
    at = int(np.datetime64("2026-06-01", "us").astype(np.int64))
    rows = [{"k": "a", "at": at + n} for n in range(300)]
    flow = Flow("boot")
    flow.read("r", io.Items(rows, SCHEMA)).event_time("t", "at").write("w", io.Discard())
    report = engine.run(flow, on=on)
    assert (report.dead_letters, report.last.records_out["w"]) == (0, 300)
    assert caplog.text.count("this machine's clock is not set") == 1
