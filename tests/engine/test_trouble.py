"""Bad input, full queues, lost sinks and interruptions: the flow goes on or stops with one message, and counts add up."""

import errno
import json
import os
import platform
import threading

import numpy as np
import pytest

from headwater import Batch, Flow, Schema, Session, Tumbling, agg, col, engine, io
from headwater.engine.memory import keep_freed, share_arenas
from headwater.errors import InputError, RunError
from headwater.flow.state import Cell
from headwater.operators import Operator
from waiting import wait_until

RUNNERS = ["engine", "threads"]
SCHEMA = Schema.of({"n": int})


class Endless:
    """A source of numbers that never ends by itself."""

    schema = SCHEMA

    def __init__(self, limit=None):
        self.given, self.limit = 0, limit

    def open(self, reject):
        return self

    def read(self, limit, timeout_s):
        if self.limit is not None and self.given >= self.limit:
            return None
        batch = Batch.of({"n": np.arange(self.given, self.given + 100)}, SCHEMA)
        self.given += 100
        return batch

    def close(self):
        pass


class Gate(Operator):
    """Holds every batch back until it is opened."""

    def __init__(self, opened):
        self._opened = opened

    def process(self, batch, port):
        self._opened.wait()
        return batch


def held_up(source, opened):
    flow, out = Flow("held up"), io.Collect()
    flow.read("r", source).apply("gate", lambda: Gate(opened)).write("w", out)
    return flow, out


def accounted(report):
    """In = out + dead letters + shed + left, for a flow that passes every record on."""
    document = report.to_json()
    return sum(document["records_out"].values()) + document["dead_letters"] + document["shed"] + document["left"]


@pytest.mark.parametrize("on", RUNNERS)
def test_a_full_flow_blocks_its_source_and_loses_nothing(on):
    opened, source = threading.Event(), Endless(limit=5000)
    flow, out = held_up(source, opened)
    run = engine.start(flow, on=on, queue_records=500)
    wait_until(lambda: run.throttle.held)
    held_at = source.given
    assert held_at < 5000
    opened.set()
    report = run.wait()
    assert [r["n"] for r in out.records] == list(range(5000))
    assert report.last.backpressure_s > 0
    assert report.last.records_in == accounted(report) == 5000


@pytest.mark.parametrize("on", RUNNERS)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_pipeline_that_is_held_up_does_not_hold_up_another(on, workers):
    opened, other = threading.Event(), Endless(limit=20_000)
    flow, out = held_up(Endless(limit=5000), opened)
    flow.read("other r", other).write("other w", io.Discard())
    run = engine.start(flow, on=on, queue_records=500, workers=workers)
    try:
        wait_until(lambda: run.throttle.held)
        wait_until(lambda: run.sample().records_out["other w"] == 20_000)
        assert run.sample().records_out["w"] == 0
    finally:
        opened.set()
        run.wait()
    assert len(out.records) == 5000


@pytest.mark.parametrize("on", RUNNERS)
def test_dead_letters_that_nobody_takes_hold_up_only_those_they_come_from(on):
    opened = threading.Event()
    flow = Flow("dead letters")
    flow.read("bad", Endless(limit=20_000)).map("breaks", lambda r: r["missing"]).write("w", io.Discard())
    flow.read("good", Endless(limit=20_000)).write("good w", io.Discard())
    flow.dead_letters.apply("gate", lambda: Gate(opened)).write("dead", io.Discard())
    run = engine.start(flow, on=on, queue_records=500, workers=2)
    try:
        wait_until(lambda: run.throttle.held)
        wait_until(lambda: run.sample().records_out["good w"] == 20_000)
        assert run.sample().steps["bad"].records_in < 20_000
    finally:
        opened.set()
        report = run.wait()
    assert report.dead_letters == 20_000 == report.last.records_out["dead"]


@pytest.mark.parametrize("on", RUNNERS)
def test_a_full_flow_sheds_what_it_is_told_to_and_counts_it(on):
    opened = threading.Event()
    flow, out = held_up(Endless(limit=20_000), opened)
    run = engine.start(flow, on=on, queue_records=500, when_full="shed")
    wait_until(lambda: run.sources[0].task.counters.shed > 0)
    opened.set()
    report = run.wait()
    kept = [r["n"] for r in out.records]
    assert kept == sorted(kept)
    assert sum(report.shed.values()) > 0
    assert "queue of 'gate' full" in report.shed
    assert report.last.records_in == accounted(report) == 20_000


@pytest.mark.parametrize("on", RUNNERS)
def test_a_full_flow_spills_to_disk_in_order(on, tmp_path):
    opened, source = threading.Event(), Endless(limit=20_000)
    flow, out = held_up(source, opened)
    run = engine.start(flow, on=on, queue_records=500, when_full="spill", spill_dir=str(tmp_path))
    wait_until(lambda: source.given == 20_000)
    assert run.sample().steps["r"].queue > 10_000
    opened.set()
    report = run.wait()
    assert [r["n"] for r in out.records] == list(range(20_000))
    assert report.last.records_in == accounted(report) == 20_000
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


@pytest.mark.parametrize("on", RUNNERS)
@pytest.mark.parametrize("full_after", [None, 50])
def test_a_disk_that_is_full_while_spilling_makes_the_source_wait(on, full_after, tmp_path, monkeypatch, caplog):
    opened, source = threading.Event(), Endless(limit=50_000)
    flow, out = held_up(source, opened)
    bound = 50_000
    if full_after is not None:  # a disk that has no room any more, at the system's own edge
        bound, plain, writes = None, os.write, []

        def write(fd, data):
            if str(tmp_path) in os.readlink(f"/proc/self/fd/{fd}"):
                writes.append(fd)
                if full_after < len(writes) < 2 * full_after:
                    raise OSError(errno.ENOSPC, "No space left on device")
            return plain(fd, data)

        monkeypatch.setattr(os, "write", write)
    run = engine.start(flow, on=on, queue_records=500, when_full="spill", spill_dir=str(tmp_path), spill_bytes=bound)
    wait_until(lambda: "cannot spill more" in caplog.text)
    assert source.given < 50_000
    opened.set()
    report = run.wait()
    assert [row["n"] for row in out.records] == list(range(50_000))
    assert report.last.records_in == accounted(report) == 50_000


def started_and_held_up(on):
    """Return a run whose source is held, what lets it go on, its source and its sink."""
    opened, source = threading.Event(), Endless()
    flow, out = held_up(source, opened)
    run = engine.start(flow, on=on, queue_records=500)
    wait_until(lambda: run.throttle.held)
    return run, opened, source, out


@pytest.mark.parametrize("on", RUNNERS)
def test_stop_drains_and_abort_says_what_was_left(on):
    run, opened, _, out = started_and_held_up(on)
    run.stop()
    opened.set()
    report = run.wait()
    assert report.left == 0
    assert len(out.records) == report.last.records_in

    run, opened, source, out = started_and_held_up(on)
    run.abort()
    opened.set()
    report = run.wait()
    assert report.left > 0
    assert len(out.records) + report.left == report.last.records_in == source.given


@pytest.mark.parametrize("on", RUNNERS)
def test_after_an_abort_all_that_was_spilled_is_counted_as_left(on, tmp_path):
    opened, source = threading.Event(), Endless(limit=50_000)
    flow, out = held_up(source, opened)
    run = engine.start(flow, on=on, queue_records=500, when_full="spill", spill_dir=str(tmp_path))
    wait_until(lambda: run.sample().records_in == 50_000)
    run.abort()
    opened.set()
    report = run.wait()
    assert report.last.records_in == 50_000 == len(out.records) + report.left
    assert report.last.steps["r"].left > 40_000


@pytest.mark.parametrize("on", RUNNERS)
def test_late_records_are_counted_whether_somebody_reads_them_or_not(on):
    rows = [{"k": "a", "at": second * 1_000_000} for second in (*range(100), *([5] * 40))]

    def timed(flow):
        return flow.read("r", io.Items(rows, {"k": str, "at": "time"})).event_time("t", "at").key_by("k")

    flow, out = Flow("nobody"), io.Collect()
    timed(flow).window("w", Tumbling("10 s"), n=agg.count()).write("out", out)
    report = engine.run(flow, on=on)
    assert sum(r["n"] for r in out.records) == 100
    assert report.late == 40
    document = report.to_json()
    assert document["late"] == 40
    steps = {step["name"]: step for step in document["steps"]}
    assert (steps["w"]["late"], steps["t"]["late"]) == (40, 0)
    assert steps["w"]["outputs"] == {"out": steps["w"]["out"], "late": 40}

    flow, late = Flow("somebody"), io.Collect()
    windowed = timed(flow).window("w", Session("500 ms"), n=agg.count())
    windowed.write("out", io.Discard())
    windowed.late.write("late", late)
    report = engine.run(flow, on=on)
    assert len(late.records) == report.late == 40


@pytest.mark.parametrize("on", RUNNERS)
def test_late_records_of_both_sides_of_a_join_are_counted(on):
    rows = [{"k": "a", "n": n, "at": at * 1_000_000} for n, at in enumerate((0, 1, 100, 101, 3, 4, 5))]
    flow = Flow("join")
    left, right = (
        flow.read("r", io.Items(rows, {"k": str, "n": int, "at": "time"}))
        .event_time("t", "at")
        .split("sides", col.n % 2 == 0)
    )
    left.key_by("k").join("j", right.key_by("k"), within="1 s").write("out", io.Discard())
    report = engine.run(flow, on=on, chunk=1)
    assert report.late == 3
    assert {port: n for port, n in report.last.steps["j"].outs.items() if port != "out"} == {"late": 2, "late right": 1}


@pytest.mark.parametrize("on", RUNNERS)
def test_what_a_reader_had_no_room_for_is_shed_with_a_reason(on):
    class Overrun(Endless):
        dropped = 0

        def read(self, limit, timeout_s):
            self.dropped += 7
            return super().read(limit, timeout_s)

    flow = Flow("overrun")
    flow.read("sensor", Overrun(limit=1000)).write("w", io.Discard())
    report = engine.run(flow, on=on)
    assert report.shed == {"buffer of 'sensor' full": 77}
    assert report.last.records_in == 1077 == accounted(report)


def test_a_run_stops_reading_when_its_time_is_up():
    flow, out = Flow("timed"), io.Collect()
    flow.read("r", io.Generate(lambda n: {"n": n}, SCHEMA, rate=5000)).write("w", out)
    report = engine.run(flow, seconds=1)
    assert 0 < len(out.records) == report.last.records_in


@pytest.mark.parametrize("on", RUNNERS)
def test_a_sink_that_is_gone_makes_dead_letters_and_the_rest_goes_on(on):
    flow, other, dead = Flow("sink gone"), io.Collect(), io.Collect()
    numbers = flow.read("r", Endless(limit=1000))
    numbers.write("gone", io.Failing("the broker is gone"))
    numbers.write("other", other)
    flow.dead_letters.write("dead", dead)
    report = engine.run(flow, on=on)
    assert len(other.records) == 1000
    assert len(dead.records) == report.dead_letters == 1000
    assert {letter["error"] for letter in dead.records} == {"InputError: the broker is gone"}
    assert report.last.records_out["gone"] == 0


class RunningSum:
    """A scan that breaks at a record after it has changed its state."""

    def __init__(self):
        self.state = {"total": Cell("int64")}

    def run(self, batch, slots, state):
        out = np.empty(batch.length, np.int64)
        for i, (slot, n) in enumerate(zip(slots, batch["n"], strict=True)):
            state["total"][slot] += n
            if n % 13 == 0:
                raise ValueError(f"{n} is cursed")
            out[i] = state["total"][slot]
        return {"n": out}


@pytest.mark.parametrize("on", RUNNERS)
def test_a_record_that_breaks_a_scan_leaves_the_state_as_if_it_had_never_come(on):
    flow, out = Flow("scan"), io.Collect()
    flow.read("r", Endless(limit=1000)).key_by().scan("sum", RunningSum()).write("w", out)
    report = engine.run(flow, on=on)
    expected = np.cumsum([n for n in range(1000) if n % 13]).tolist()
    assert [row["n"] for row in out.records] == expected
    assert report.dead_letters == len(range(0, 1000, 13))


class Summing(Operator):
    """An operator of a user's own that breaks at a record after it has changed its state."""

    stateless = False

    def __init__(self):
        self.total = 0

    def process(self, batch, port):
        out = []
        for n in batch["n"].tolist():
            self.total += n
            if n % 1300 == 7:
                raise ValueError(f"{n} is cursed")
            out.append(self.total)
        return Batch({"n": np.array(out)}, batch.length, batch.stamps)


class SavedSumming(Summing):
    def snapshot(self, select=None):
        return str(self.total).encode()

    def restore(self, data):
        self.total += int(data)


@pytest.mark.parametrize("on", RUNNERS)
def test_a_record_that_breaks_an_operator_with_a_snapshot_is_the_only_one_set_apart(on):
    flow, out, dead = Flow("apply"), io.Collect(), io.Collect()
    flow.read("r", Endless(limit=10_000)).apply("sum", SavedSumming).write("w", out)
    flow.dead_letters.write("dead", dead)
    report = engine.run(flow, on=on)
    expected = np.cumsum([n for n in range(10_000) if n % 1300 != 7]).tolist()
    assert [row["n"] for row in out.records] == expected
    assert [json.loads(letter["record"])["n"] for letter in dead.records] == list(range(7, 10_000, 1300))
    assert report.dead_letters == 8


@pytest.mark.parametrize("on", RUNNERS)
def test_what_an_operator_without_a_snapshot_costs_is_told(on):
    flow, dead = Flow("apply"), io.Collect()
    flow.read("r", Endless(limit=1000)).apply("sum", Summing).write("w", io.Discard())
    flow.dead_letters.write("dead", dead)
    engine.run(flow, on=on)
    assert len(dead.records) > 1
    assert all(
        "7 is cursed" in each["error"] and "its whole batch is set apart" in each["error"] for each in dead.records
    )


class Posts:
    """A sink of a user's own that takes a batch or nothing of it."""

    all_or_none = True

    def __init__(self):
        self.posted, self.calls = [], 0

    def open(self, schema):
        return self

    def write(self, batch):
        self.calls += 1
        if (batch["n"] % 130 == 7).any():
            raise ValueError("400 Bad Request")
        self.posted += batch["n"].tolist()

    def close(self):
        pass


@pytest.mark.parametrize("on", RUNNERS)
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_sink_that_takes_all_or_none_costs_only_the_records_that_it_fails_at(on, checkpoint, tmp_path):
    flow, sink, dead = Flow("posts"), Posts(), io.Collect()
    flow.read("r", Endless(limit=1000)).write("w", sink)
    flow.dead_letters.write("dead", dead)
    report = engine.run(flow, on=on, checkpoint=tmp_path / "state" if checkpoint else None)
    assert sink.posted == [n for n in range(1000) if n % 130 != 7]
    assert [json.loads(letter["record"])["n"] for letter in dead.records] == list(range(7, 1000, 130))
    assert report.last.records_out["w"] == len(sink.posted)


@pytest.mark.parametrize("on", RUNNERS)
def test_a_dead_letter_says_which_line_of_the_users_broke(on):
    def divided(record):
        return {"n": 1 // record["n"]}

    flow, dead = Flow("lines"), io.Collect()
    numbers = flow.read("r", Endless(limit=100))
    numbers.map("m", divided).write("w", io.Discard())
    numbers.key_by().process("p", lambda state, record: (1 // record["n"], None)).write("w too", io.Discard())
    flow.dead_letters.write("dead", dead)
    engine.run(flow, on=on)
    line = divided.__code__.co_firstlineno + 1
    errors = {letter["step"]: letter["error"] for letter in dead.records}
    assert errors["m"] == f"ZeroDivisionError: integer division or modulo by zero (test_trouble.py:{line}, in divided)"
    assert "test_trouble.py:" in errors["p"]


@pytest.mark.parametrize("on", RUNNERS)
def test_a_dead_letter_sink_that_fails_does_not_feed_itself(on):
    flow = Flow("twice dead")
    flow.read("r", Endless(limit=200)).write("gone", io.Failing())
    flow.dead_letters.write("dead", io.Failing("nowhere to put them"))
    report = engine.run(flow, on=on)
    assert report.dead_letters == 400


@pytest.mark.parametrize("on", RUNNERS)
def test_a_source_that_breaks_stops_the_flow_with_its_name(on):
    class Breaks(Endless):
        def read(self, limit, timeout_s):
            if self.given >= 300:
                raise OSError(errno.EIO, "the wire is cut")
            return super().read(limit, timeout_s)

    flow = Flow("breaks")
    flow.read("sensor", Breaks()).write("w", io.Discard())
    with pytest.raises(RunError, match=r"source 'sensor' broke: OSError.*the wire is cut"):
        engine.run(flow, on=on)


def test_a_file_that_is_not_there_is_told_before_anything_starts(tmp_path):
    flow = Flow("missing")
    schema = {"n": int}
    flow.read("r", io.JsonLines(tmp_path / "none.jsonl", schema)).write("w", io.Discard())
    with pytest.raises(InputError, match=r"none\.jsonl"):
        engine.run(flow)


def test_bad_lines_of_a_file_are_dead_letters_and_counts_add_up(tmp_path):
    path = tmp_path / "levels.jsonl"
    good = [f'{{"tank": "a", "height": {i}.5}}' for i in range(100)]
    bad = ['{"tank": "a", "height": ', '{"tank": "a", "height": "high"}', "[1, 2]"]
    path.write_text("\n".join([*good[:50], *bad, *good[50:]]) + "\n")
    flow, out, dead = Flow("lines"), io.Collect(), io.Collect()
    flow.read("r", io.JsonLines(path, {"tank": str, "height": float})).write("w", out)
    flow.dead_letters.write("dead", dead)
    report = engine.run(flow)
    assert (len(out.records), len(dead.records)) == (100, 3)
    assert report.last.records_in == 103 == len(out.records) + report.dead_letters
    assert all(letter["step"] == "r" for letter in dead.records)


def test_a_clock_far_ahead_is_a_dead_letter_and_closes_no_window():
    year_ahead = int(np.datetime64("2200-01-01", "us").astype(np.int64))
    rows = [{"k": "a", "at": at} for at in (1, 2, year_ahead, 3)]
    flow, out, dead = Flow("clock"), io.Collect(), io.Collect()
    stream = flow.read("r", io.Items(rows, {"k": str, "at": "time"})).event_time("t", "at")
    stream.key_by("k").window("w", Tumbling("1 s"), n=agg.count()).write("out", out)
    flow.dead_letters.write("dead", dead)
    engine.run(flow, chunk=1)
    assert [r["n"] for r in out.records] == [3]
    assert "ahead of this machine's clock" in dead.records[0]["error"]


def test_a_nan_key_is_a_dead_letter():
    rows = [{"k": float(i % 2) if i % 5 else float("nan"), "x": 1} for i in range(50)]
    flow, out, dead = Flow("nan"), io.Collect(), io.Collect()
    flow.read("r", io.Items(rows)).key_by("k").process("p", lambda s, r: (1, r), parallel=2).write("w", out)
    flow.dead_letters.write("dead", dead)
    engine.run(flow)
    assert (len(out.records), len(dead.records)) == (40, 10)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"policy": "longest"}, "unknown policy 'longest'.*did you mean 'longest_queue'"),
        ({"take": 0}, "take must be 'all', 'half' or a number of records above 0; got 0"),
        ({"workers": 0}, "workers must be a whole number of at least 1; got 0"),
        ({"when_full": "drop"}, "when_full must be one of 'block', 'shed', 'spill'; got 'drop'"),
        ({"queue_records": -1}, "queue_records must be"),
        ({"on": "flink"}, "there is no runner 'flink' here; runners are 'engine', 'threads'"),
    ],
)
def test_a_wrong_option_is_told(options, said):
    flow = Flow("f")
    flow.read("r", Endless(limit=100)).write("w", io.Discard())
    with pytest.raises(RunError, match=said):
        engine.run(flow, **options)


@pytest.mark.parametrize("on", RUNNERS)
def test_no_thread_outlives_its_run(on):
    before = threading.active_count()
    flow = Flow("f")
    flow.read("r", Endless(limit=1000)).filter("f", col.n > 5).write("w", io.Discard())
    engine.run(flow, on=on)
    wait_until(lambda: threading.active_count() == before)


def test_the_gnu_c_library_takes_a_bound_on_its_pools_of_memory():
    assert share_arenas() == keep_freed() == (platform.libc_ver()[0] == "glibc")
