"""What `print(report)` shows, and what samples say."""

import time

import pytest

from headwater import Flow, Tumbling, agg, engine, io
from headwater.engine.checkpoint.listing import summaries
from waiting import PATIENCE_S


def test_a_printed_report_is_a_table_of_steps_with_what_was_lost():
    rows = [
        {"k": k, "at": at * 1_000_000} for k, at in (*(("a", at) for at in range(30)), ("a", 3), ("a", 4), (None, 29))
    ]
    flow = Flow("tanks")
    timed = flow.read("levels", io.Items(rows, {"k": str, "at": "time"})).event_time("time", "at")
    timed.key_by("k").window("per 10 s", Tumbling("10 s"), n=agg.count()).write("out", io.Discard())
    report = engine.run(flow)
    lines = str(report).splitlines()
    assert lines[0].startswith("tanks on engine: ")
    table = [line.split("  ") for line in lines[1:7]]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in table]
    assert cells[0] == ["step", "in", "out", "dead", "late", "shed", "left", "busy"]
    assert cells[3][:7] == ["per 10 s", "33", "3", "1", "2", "0", "0"]
    assert cells[5] == ["in all", "33", "3", "1", "2", "0", "0"]
    assert lines[7:] == ["dead letter from per 10 s: the key is missing or not a number"]
    assert len(repr(report)) < 100


def test_a_sample_says_how_far_event_time_has_come_at_each_step_that_knows():
    flow = Flow("timed")
    made = io.Generate(lambda n: {"k": n % 4, "at": 1_000_000 + n * 1000}, {"k": int, "at": "time"}, rate=500)
    timed = flow.read("made", made).event_time("clock", "at", lateness="1 s")
    timed.key_by("k").window("second", Tumbling("1 s"), n=agg.count()).write("out", io.Discard())
    run = engine.start(flow)
    end_s = time.monotonic() + PATIENCE_S
    while not {"clock", "second"} <= run.sample().watermarks_us.keys() and time.monotonic() < end_s:
        time.sleep(0.02)
    marks = run.sample().watermarks_us
    run.stop()
    run.wait()
    assert "made" not in marks
    assert 0 <= marks["second"] <= marks["clock"]


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_report_says_of_each_step_what_it_keeps_as_the_last_checkpoint_has_it(tmp_path, lanes):
    rows = [{"k": f"k{n % 50}", "at": n * 1000} for n in range(2000)]
    flow = Flow("kept")
    timed = flow.read("levels", io.Items(rows, {"k": str, "at": "time"})).event_time("time", "at")
    timed.key_by("k").window("per hour", Tumbling("1 h"), n=agg.count()).write("out", io.Discard())
    report = engine.run(flow, checkpoint=tmp_path / "kept", lanes=lanes)
    kept = summaries(tmp_path / "kept")[-1].state_bytes
    told = {step["name"]: step["state_bytes"] for step in report.to_json()["steps"]}
    assert told["per hour"] > 0
    assert {name: told[name] for name in ("time", "per hour", "out")} == {
        name: kept[name] for name in ("time", "per hour", "out")
    }
