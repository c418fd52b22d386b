"""A machine's clock that somebody sets while a flow runs."""

import time

import numpy as np
import pytest

from headwater import Flow, Tumbling, agg, engine, io
from waiting import PATIENCE_S, wait_until

HOUR_NS = 3600 * 10**9
SCHEMA = {"n": int, "at": "time"}


@pytest.fixture
def clock(monkeypatch):
    """Let a test set the machine's clock by some nanoseconds."""

    class Clock:
        off_ns = 0

    plain = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: plain() + Clock.off_ns)
    monkeypatch.setattr(time, "time", lambda: (plain() + Clock.off_ns) / 1e9)
    return Clock


@pytest.mark.parametrize("on", ["engine", "threads"])
@pytest.mark.parametrize("off_ns", [-HOUR_NS, -HOUR_NS // 30, HOUR_NS])
def test_a_clock_that_is_set_changes_neither_pace_nor_windows_nor_latency(on, off_ns, clock):
    def make(numbers):
        if numbers[0] > 0:  # not the first ones
            clock.off_ns = off_ns
        return {"n": numbers}

    flow, out = Flow("set"), io.Collect()
    generated = flow.read("r", io.Generate(make, SCHEMA, rate=10_000, count=2000, time="at"))
    windows = generated.event_time("t", "at").key_by().window("w", Tumbling("50 ms"), n=agg.count())
    windows.write("out", out)
    run = engine.start(flow, on=on)
    report = run.wait(PATIENCE_S)
    if report is None:
        run.abort()
        run.wait()
    assert report is not None, "the source waits for the clock"
    assert (report.dead_letters, report.late) == (0, 0)
    assert sum(row["n"] for row in out.records) == 2000
    assert report.last.latency.largest < HOUR_NS // 60


@pytest.mark.parametrize("on", ["engine", "threads"])
def test_a_clock_that_is_corrected_forward_lets_records_of_good_clocks_in(on, clock):
    clock.off_ns = HOUR_NS
    now_us = time.time_ns() // 1000
    rows = [{"n": n, "at": now_us + n} for n in range(100)]
    flow = Flow("corrected")
    flow.read("r", io.Items(rows, SCHEMA)).event_time("t", "at").write("w", io.Discard())
    assert engine.run(flow, on=on).dead_letters == 0


@pytest.mark.parametrize("on", ["engine", "threads"])
def test_windows_of_processing_time_go_on_closing_after_a_clock_was_set_forward_and_back(on, clock):
    def make(numbers):
        clock.off_ns = HOUR_NS if 50 <= numbers[0] < 150 else 0
        return {"n": numbers}

    flow, out = Flow("back"), io.Collect()
    calls = flow.read("r", io.Generate(make, {"n": int}, rate=1_000))
    calls.key_by().window("w", Tumbling("20 ms", time="processing"), n=agg.count()).write("out", out)
    run = engine.start(flow, on=on)
    try:
        wait_until(lambda: sum(row["n"] for row in out.records) > 400)
    finally:
        run.stop()
        report = run.wait()
    assert sum(row["n"] for row in out.records) == report.last.records_in
    assert report.late == 0


def test_a_clock_that_is_slow_is_doubted(caplog):
    at = int(np.datetime64("2200-01-01", "us").astype(np.int64))
    flow = Flow("slow")
    flow.read("r", io.Items([{"n": n, "at": at} for n in range(300)], SCHEMA)).event_time("t", "at").write(
        "w", io.Discard()
    )
    report = engine.run(flow)
    assert report.dead_letters == 300
    assert "ahead of this machine's clock; is it slow?" in caplog.text
