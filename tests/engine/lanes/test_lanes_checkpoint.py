"""Checkpoints of a run in lanes: what comes out, killed or not, is what comes out of one lane that nobody disturbs."""

import json
import os
import signal
import time
from collections import Counter

import pyarrow.dataset as ds
import pytest

from headwater import Flow, agg, col, engine, io
from headwater.errors import RunError
from headwater.flow.windows import Tumbling
from headwater.io.dead import DeadLetterFolder
from headwater.io.lock import Lock

RECORDS = 6_000


def flow(folder, rate=1e9, count=RECORDS):
    """State by key, windows of event time, a join and a pattern; every result can be told from all others."""
    made = Flow("lanes kept")

    def numbers(at):
        return {"key": [f"k{n % 13}" for n in at.tolist()], "n": at, "at": at * 100_000 + (at * 7919 % 11) * 100_000}

    def source():
        return io.Generate(numbers, {"key": str, "n": int, "at": "time"}, rate=rate, count=count)

    left = made.read("left", source()).event_time("time", "at", lateness="2 s")
    right = made.read("right", source()).event_time("its time", "at", lateness="2 s")
    keyed = left.filter("some", col.n % 7 != 3).key_by("key")
    summed = keyed.process("sum", add_up, out={"key": str, "n": int, "total": int})
    summed.write("sums", io.JsonLines(folder / "sums.jsonl"))
    keyed.window("minute", Tumbling("1 min"), count=agg.count(), highest=agg.max("n")).write(
        "windows", io.JsonLines(folder / "windows.jsonl")
    )
    joined = keyed.join("pair", right.key_by("key"), within="1 s")
    joined.select("pairs", "key", n=col.n, other=col["its time_n"]).write(
        "joined", io.JsonLines(folder / "pairs.jsonl")
    )
    made.query(
        "query",
        "from every a = time -> b = time[a.key == b.key and b.n == a.n + 13] within 1 min "
        "select a.n as first, b.n as second, a.key as key insert into found",
    ).write("found", io.JsonLines(folder / "found.jsonl"))
    return made


def add_up(total, record):
    total = (total or 0) + record["n"]
    return total, {"key": record["key"], "n": record["n"], "total": total}


def held(folder):
    return {
        path.name: Counter(tuple(json.loads(line).items()) for line in path.read_text().splitlines())
        for path in sorted(folder.glob("*.jsonl"))
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    engine.run(flow(folder), workers=1)
    found = held(folder)
    assert len(found) == 4
    assert all(found.values())
    return found


def test_lanes_with_checkpoints_give_what_one_lane_gives(tmp_path, whole):
    for rate in (20_000, 4_000, 800):  # until there is time for two checkpoints
        folder = tmp_path / str(rate)
        folder.mkdir()
        report = engine.run(flow(folder, rate=rate), lanes=2, checkpoint=folder / "kept", every="20 ms")
        assert held(folder) == whole
        assert report.extra["checkpoints"]["failed"] == 0
        if report.extra["checkpoints"]["complete"] > 1:
            break
    assert report.extra["checkpoints"]["complete"] > 1
    again = engine.run(flow(folder), lanes=2, checkpoint=folder / "kept")
    assert held(folder) == whole
    assert sum(again.last.records_out.values()) == 0


def test_a_run_in_lanes_that_is_stopped_goes_on(tmp_path, whole):
    for _ in range(3):
        run = engine.start(flow(tmp_path, rate=20_000), lanes=2, checkpoint=tmp_path / "kept", every="20 ms")
        time.sleep(0.05)
        run.stop()
        run.wait()
    engine.run(flow(tmp_path), lanes=2, checkpoint=tmp_path / "kept")
    assert held(tmp_path) == whole


def test_a_run_in_lanes_that_is_killed_goes_on_and_leaves_no_process(tmp_path, whole):
    life_s, kills = 0.3, 0
    while True:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.setpgid(0, 0)
                engine.run(flow(tmp_path, rate=8_000), lanes=2, checkpoint=tmp_path / "kept", every="20 ms")
                status = 0
            finally:
                os._exit(status)
        time.sleep(life_s)
        os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        until = time.monotonic() + 60
        while lives(group=child) and time.monotonic() < until:
            time.sleep(0.02)
        assert not lives(group=child), "a lane outlived the process that forked it"
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            break
        kills, life_s = kills + 1, life_s * 1.3
    assert kills
    assert held(tmp_path) == whole


def lives(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_lane_that_is_killed_ends_the_run_with_a_word_and_the_next_goes_on(tmp_path, whole):
    run = engine.start(flow(tmp_path, rate=500), lanes=2, checkpoint=tmp_path / "kept", every="20 ms")
    while not run.report().extra["checkpoints"]["complete"]:
        time.sleep(0.02)
    os.kill(run._children[0].pid, signal.SIGKILL)
    with pytest.raises(RunError, match=r"lane 1 .* was killed by SIGKILL, so the run ends; run again, it goes on"):
        run.wait()
    engine.run(flow(tmp_path), lanes=2, checkpoint=tmp_path / "kept")
    assert held(tmp_path) == whole


def spread_out(folder, rate=1e9):
    """Records that break in any lane, a sink that every lane has, and one that only the first has."""
    made = Flow("spread out")
    numbers = io.Generate(lambda at: {"n": at}, {"n": int}, rate=rate, count=RECORDS)
    made.read("read", numbers).map("check", thirteen, out={"n": int}).write("table", io.ParquetTable(folder / "table"))
    made.dead_letters.write("dead", io.JsonLines(folder / "dead.jsonl"))
    return made


def thirteen(record):
    if record["n"] % 13 == 0:
        raise ValueError("thirteen")
    return record


def test_sinks_and_dead_letters_of_all_lanes_have_each_record_once(tmp_path):
    options = {"lanes": 2, "checkpoint": tmp_path / "kept", "dead": tmp_path / "letters"}
    for _ in range(3):
        run = engine.start(spread_out(tmp_path, rate=500), every="20 ms", **options)  # the end is far
        while not run.report().extra["checkpoints"]["complete"] and not run.done.is_set():
            time.sleep(0.01)
        os.kill(run._children[0].pid, signal.SIGKILL)
        with pytest.raises(RunError, match="killed by SIGKILL"):
            run.wait()
    engine.run(spread_out(tmp_path), **options)
    table = ds.dataset(tmp_path / "table", format="parquet").to_table()
    assert sorted(table["n"].to_pylist()) == [n for n in range(RECORDS) if n % 13]
    dead = [json.loads(json.loads(line)["record"])["n"] for line in (tmp_path / "dead.jsonl").read_text().splitlines()]
    assert sorted(dead) == list(range(0, RECORDS, 13))
    letters = DeadLetterFolder(tmp_path / "letters").letters()
    assert sorted(letter.to_json()["record"]["n"] for letter in letters) == sorted(dead)


def test_a_run_waits_for_the_lanes_of_one_that_was_killed(tmp_path):
    """They hold its lock until they have ended, which takes a moment; a service starts the next run at once."""
    child = os.fork()
    if child == 0:
        Lock(tmp_path, "checkpoint")
        if os.fork() == 0:  # a lane
            time.sleep(0.5)
        os._exit(0)
    os.waitpid(child, 0)
    Lock(tmp_path, "checkpoint").release()


def test_a_run_that_lives_is_not_waited_for(tmp_path):
    lock = Lock(tmp_path, "checkpoint")
    with pytest.raises(RunError, match=f"in use by process {os.getpid()} since"):
        Lock(tmp_path, "checkpoint")
    lock.release()
