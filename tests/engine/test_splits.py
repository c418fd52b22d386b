"""Sources of several splits: none of them makes the records of another late, however far each could be read."""

import logging
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import Flow, col, engine, io
from headwater.data.batch import NO_WATERMARK
from headwater.data.timestamps import micros
from headwater.flow.splits import way_to_time
from headwater.flow.steps import EventTime
from headwater.io import aligned
from headwater.io.aligned import AlignedReader
from headwater.operators.event_time_lookahead import EventTimeLookahead
from headwater.operators.time import EventTimeOperator
from killed import killed_until
from split_source import SCHEMA, START, Splits, counted, hour_in, lines, plainly, windows_in
from waiting import PATIENCE_S, wait_until

S = 1_000_000
DAY_US = 86_400 * S


def direct(stream):
    return stream


def through_expressions(stream):
    return stream.filter("some", col.n >= 0).select("named", "split", "n", "value", at=col.at)


def through_functions(stream):
    def doubled(batch):
        batch["value"][:] *= 2  # which it may: the columns are its own
        return {"value": batch["value"] / 2}

    def earlier(record):
        if record["n"] == 7:
            raise ValueError("unlucky")
        return {**record, "at": record["at"] - DAY_US}

    return stream.map_batches("doubled", doubled).map("earlier", earlier, out=SCHEMA)


@pytest.mark.parametrize("before", [direct, through_expressions, through_functions], ids=lambda each: each.__name__)
@pytest.mark.parametrize("lanes", [1, 2])
def test_a_backlog_of_several_splits_makes_nothing_late(tmp_path, before, lanes):
    rows, out = hour_in(), tmp_path / "out.jsonl"
    functions = before is through_functions
    report = engine.run(counted(Splits(rows), out, before), lanes=lanes)
    assert lines(out.with_name("late.jsonl")) == []
    assert windows_in(out) == plainly(rows, day=-int(functions), leave_out={7} if functions else ())
    assert report.dead_letters == int(functions)


def test_without_splits_most_of_the_same_backlog_is_late(tmp_path):
    source = Splits(hour_in())
    source.splits = False
    engine.run(counted(source, tmp_path / "out.jsonl"))
    assert len(lines(tmp_path / "late.jsonl")) > 10_000


@pytest.mark.parametrize("lanes", [1, 2])
def test_runs_that_are_killed_have_the_windows_of_one_that_was_not(tmp_path, lanes):
    rows, out = hour_in(), tmp_path / "out.jsonl"
    flow = counted(Slow(rows), out)
    kills = killed_until(
        None,
        lambda: engine.run(flow, checkpoint=tmp_path / "checkpoint", every="30 ms", lanes=lanes),
        kills=4,
        longest_s=0.8,
        ends=True,
    )
    assert kills
    assert lines(out.with_name("late.jsonl")) == []
    assert windows_in(out) == plainly(rows)


class Slow(Splits):  # type: ignore[misc]  # it is not typed
    """One that takes a second and more to read."""

    def open(self, reject, position=None):
        reader = super().open(reject, position)
        read = reader.read_splits

        def slowly(limit, timeout_s):
            time.sleep(0.01)
            return read(min(limit, 100), timeout_s)

        reader.read_splits = slowly
        return reader


def test_splits_that_are_empty_or_read_to_their_end_do_not_stop_the_windows(tmp_path):
    full, short = hour_in(2)
    rows, out = [full, [], short[:10]], tmp_path / "out.jsonl"
    run = engine.start(counted(Splits(rows, ends=False), out))
    try:
        last = (full[-1]["at"] - START) // timedelta(minutes=1)
        expected = {key: value for key, value in plainly(rows).items() if key[1] < last}
        wait_until(lambda: windows_in(out) == expected, "all windows but the last")
    finally:
        run.stop()
        run.wait(PATIENCE_S)
    assert lines(out.with_name("late.jsonl")) == []


def opened(source, reject=pytest.fail, **options):
    flow = counted(source, Path("out"), **options)
    return AlignedReader("in", source.open(reject), SCHEMA, way_to_time(flow, "in"), reject)


def handed_out(reader, limit=64, most=10_000):
    """Read until the end, or so often."""
    batches = []
    for _ in range(most):
        batch = reader.read(limit, 0.0)
        if batch is None:
            break
        batches.append(batch)
    return [row for batch in batches for row in batch.rows()]


class Stuck(Splits):  # type: ignore[misc]  # it is not typed
    """One whose second split holds more and does not bring it."""

    def open(self, reject, position=None):
        reader = super().open(reject, position)
        reader.hold([1])
        reader.hold = lambda splits: None
        return reader


def test_a_split_that_holds_more_is_waited_for_as_long_as_idle_says(caplog, monkeypatch):
    rows = hour_in(2, 200)
    assert handed_out(opened(Stuck(rows)), most=200) == []
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    reader = opened(Stuck(rows), idle="5 s")
    assert handed_out(reader, most=200) == []
    clock[0] = 5.1
    assert [row["n"] for row in handed_out(reader, most=200)] == list(range(0, 200, 2))
    reader = opened(Stuck(rows))
    with caplog.at_level(logging.WARNING):
        handed_out(reader, most=3)
        clock[0] = 70.0
        handed_out(reader, most=3)
    assert "source in waits for splits 1, which hold more than they bring" in caplog.text


def test_splits_that_are_ahead_are_read_no_further_once_many_records_wait(monkeypatch):
    monkeypatch.setattr(aligned, "_ROOM", 500)
    sparse = [{"at": START + timedelta(minutes=n), "split": 0, "n": n, "value": 0.0} for n in range(5_000)]
    dense = [{"at": START + timedelta(seconds=n), "split": 1, "n": n, "value": 0.0} for n in range(5_000)]
    source = Splits([sparse, dense], run=100)
    reader = opened(source)
    found = handed_out(reader)
    assert reader.most_held == 1
    assert sorted((row["split"], row["n"]) for row in found) == [(s, n) for s in (0, 1) for n in range(5_000)]
    times = [row["at"] for row in found]
    assert times == sorted(times)


def test_what_is_no_record_is_told_once_all_before_it_is_handed_out():
    rows = hour_in(2, 100)
    rows[0][10] = rows[1][0] = rows[1][-1] = None
    told = []
    reader = opened(Splits(rows, run=7), reject=lambda text, error: told.append((error, dict(reader.position))))
    assert len(handed_out(reader, limit=3)) == 97
    assert sorted(error for error, _ in told) == ["split 0 place 10", "split 1 place 0", "split 1 place 49"]
    for error, position in told:
        _, split, _, place = error.split()
        assert position[split] > int(place)


_SPLITS = st.lists(st.lists(st.integers(0, 40), max_size=12), min_size=1, max_size=4)


@settings(deadline=None)
@given(_SPLITS, st.integers(1, 7), st.integers(1, 9), st.integers(0, 10), st.integers(0, 40))
def test_a_record_is_late_only_by_its_own_split_wherever_reading_begins_again(seconds, run, limit, lateness, stop):
    rows = [
        [{"at": micros(START) + s * S, "split": split, "n": n, "value": 0.0} for n, s in enumerate(times)]
        for split, times in enumerate(seconds)
    ]
    source = Splits(rows, run)
    way = way_to_time(counted(source, Path("out")), "in")
    operator = EventTimeOperator(EventTime("at", lateness * S, 60 * S), "timed")
    watermark, late, found = NO_WATERMARK, set(), []
    reader = opened(source)
    for number in range(1_000):
        if number == stop:  # begins again where it was, as after a checkpoint
            position = reader.position
            reader = AlignedReader("in", source.open(pytest.fail, position), SCHEMA, way, pytest.fail)
        batch = reader.read(limit, 0.0)
        if batch is None:
            break
        for row in range(batch.length):
            [record] = batch.slice(row, row + 1).rows()
            found.append((record["split"], record["n"]))
            if record["at"] < watermark:
                late.add(found[-1])
            out = operator.process(batch.slice(row, row + 1), 0)
            watermark = max(watermark, out.watermark)
    by_split = [[n for at, n in found if at == split] for split in range(len(rows))]
    assert by_split == [list(range(len(times))) for times in seconds]
    newest = [np.maximum.accumulate(times) if times else [] for times in seconds]
    own = {
        (split, n)
        for split, times in enumerate(seconds)
        for n, second in enumerate(times)
        if second < newest[split][n] - lateness
    }
    assert late == own


def test_times_are_told_as_the_steps_on_the_way_will_make_them():
    flow = Flow("way")
    read = flow.read("in", Splits(hour_in(2, 10)))
    high, low = read.split("halves", col.n >= 5)
    high.flat_map("twice", lambda row: [row, {**row, "at": row["at"] + S}], out=SCHEMA).event_time("timed", "at")
    low.write("low", io.Discard())
    batch = Splits(hour_in(1, 10)).open(pytest.fail).read(10, 0.0)
    expected = [NO_WATERMARK] * 5 + [int(at) + S for at in batch["at"][5:]]
    assert EventTimeLookahead(way_to_time(flow, "in")).of(batch).tolist() == expected


def test_there_is_no_way_to_event_time_through_a_step_that_keeps_something():
    flow = Flow("way")
    read = flow.read("in", Splits(hour_in(2, 10)))
    counts = read.key_by("split").process("kept", lambda state, row: (state, row), out=SCHEMA)
    counts.event_time("timed", "at").write("out", io.Discard())
    assert way_to_time(flow, "in") == ()
