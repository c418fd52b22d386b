"""Checkpoints of a run in lanes: what comes out, killed or not, is what comes out of one lane that nobody disturbs."""

import json
import os
import signal
import time

import pyarrow.dataset as ds
import pytest

from headwater import Flow, engine, io
from headwater.errors import RunError
from headwater.io.dead import DeadLetterFolder
from headwater.io.lock import Lock
from kept_flow import RECORDS, flow, held
from waiting import PATIENCE_S


def test_lanes_with_checkpoints_give_what_one_lane_gives(tmp_path, undisturbed):
    for rate in (20_000, 4_000, 800):  # until there is time for two checkpoints
        folder = tmp_path / str(rate)
        folder.mkdir()
        report = engine.run(flow(folder, rate=rate), lanes=2, checkpoint=folder / "kept", every="20 ms")
        assert held(folder) == undisturbed
        assert report.extra["checkpoints"]["failed"] == 0
        if report.extra["checkpoints"]["complete"] > 1:
            break
    assert report.extra["checkpoints"]["complete"] > 1
    again = engine.run(flow(folder), lanes=2, checkpoint=folder / "kept")
    assert held(folder) == undisturbed
    assert sum(again.last.records_out.values()) == 0


def test_a_run_in_lanes_that_is_stopped_goes_on(tmp_path, undisturbed):
    for _ in range(3):
        run = engine.start(flow(tmp_path, rate=20_000), lanes=2, checkpoint=tmp_path / "kept", every="20 ms")
        time.sleep(0.05)
        run.stop()
        run.wait()
    engine.run(flow(tmp_path), lanes=2, checkpoint=tmp_path / "kept")
    assert held(tmp_path) == undisturbed


def test_a_run_in_lanes_that_is_killed_goes_on_and_leaves_no_process(tmp_path, undisturbed):
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
        until = time.monotonic() + PATIENCE_S
        while lives(group=child) and time.monotonic() < until:
            time.sleep(0.02)
        assert not lives(group=child), "a lane outlived the process that forked it"
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            break
        kills, life_s = kills + 1, life_s * 1.3
    assert kills
    assert held(tmp_path) == undisturbed


def lives(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


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
        run._restarts.most = 0
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
