"""A lane that dies within a run: with a checkpoint all lanes start again from it, and nothing is lost or there twice."""

import logging
import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress

import pytest
from rich.console import Console

from headwater import Flow, engine, io
from headwater.cli.screen import print_report
from headwater.errors import RunError
from kept_flow import flow, held
from waiting import gone, wait_until


def saved(run):
    return run.report().extra["checkpoints"]["complete"]


def killed(run, lane):
    """Kill a lane once the lanes that are at work now have made a checkpoint, or the run has ended; return its process."""
    before = saved(run)
    wait_until(lambda: saved(run) > before or run.done.is_set(), "the next checkpoint")
    pid = run._children[lane].pid
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return pid


def started_again(run, without):
    """Wait until other lanes are at work than one that was killed."""
    wait_until(lambda: run.done.is_set() or (is_other(run, without) and not run._starting_again), "the restart")


def is_other(run, pid):
    return run._children and pid not in [child.pid for child in run._children]


def test_lanes_that_are_killed_start_again_from_the_last_checkpoint(tmp_path, undisturbed, caplog):
    chance = random.Random(1)
    run = engine.start(flow(tmp_path, rate=1_500), lanes=3, checkpoint=tmp_path / "kept", every="20 ms")
    for _ in range(5):
        time.sleep(chance.random() * 0.1)
        started_again(run, killed(run, chance.choice([0, 1])))
    report = run.wait()
    assert held(tmp_path) == undisturbed
    assert 1 <= report.extra["restarts"] <= 5
    assert "lanes_lost" not in report.extra
    assert "was killed by SIGKILL; all lanes start again from the last checkpoint" in caplog.text
    assert not run._children or all(gone(child.pid) for child in run._children)
    assert gone(run._fork_server.pid)


def test_lanes_start_again_though_a_step_takes_longer_to_come_back_than_an_abort_waits(tmp_path):
    """As any may on a machine that is busy: threads that live on are in the way of new lanes."""
    here, slept = os.getpid(), []

    def slowly(record):
        if record["n"] >= 200 and os.getpid() == here and not slept:
            slept.append(time.monotonic())
            time.sleep(1)
        return {"n": record["n"]}

    made = Flow("slow")
    numbers = made.read("numbers", io.Generate(lambda at: {"n": at}, {"n": int}, rate=400, count=800))
    numbers.map("slowly", slowly, out={"n": int}).write("out", io.JsonLines(tmp_path / "out.jsonl"))
    run = engine.start(made, lanes=2, checkpoint=tmp_path / "kept", every="50 ms", grace_s=0.05)
    wait_until(lambda: slept or run.done.is_set(), "the step that sleeps")
    os.kill(run._children[0].pid, signal.SIGKILL)
    assert run.wait().extra["restarts"] == 1
    (found,) = held(tmp_path).values()
    assert found == Counter((("n", n),) for n in range(800))


def test_lanes_of_which_one_dies_before_the_first_checkpoint_begin_anew(tmp_path, undisturbed):
    run = engine.start(flow(tmp_path, rate=500), lanes=2, checkpoint=tmp_path / "kept", every="1 h")
    wait_until(lambda: run.sample().records_in > 100, "some records")
    dead = run._children[0].pid
    os.kill(dead, signal.SIGKILL)
    started_again(run, dead)
    run.stop()
    assert run.wait().extra["restarts"] == 1
    engine.run(flow(tmp_path), lanes=2, checkpoint=tmp_path / "kept")
    assert held(tmp_path) == undisturbed


def test_a_run_whose_lanes_die_too_often_ends_with_the_reason_and_the_next_goes_on(tmp_path, undisturbed):
    run = engine.start(flow(tmp_path, rate=500), lanes=2, checkpoint=tmp_path / "kept", every="20 ms")
    run._restarts.most = 1
    started_again(run, killed(run, 0))
    killed(run, 0)
    with pytest.raises(RunError, match=r"lane 1 .* was killed by SIGKILL") as told:
        run.wait()
    assert told.value.report.extra["lanes_lost"] == [1]
    engine.run(flow(tmp_path), lanes=2, checkpoint=tmp_path / "kept")
    assert held(tmp_path) == undisturbed


def test_the_report_of_a_run_of_which_a_lane_died_says_that_counts_need_not_add_up(tmp_path):
    run = engine.start(flow(tmp_path, rate=500), lanes=2)
    wait_until(lambda: run.sample().records_in > 100, "some records")
    os.kill(run._children[0].pid, signal.SIGKILL)
    with pytest.raises(RunError, match=r"lane 1 .* what it had in hand is lost") as told:
        run.wait()
    with (tmp_path / "said").open("w+") as said:
        print_report(told.value.report, Console(file=said, width=300))
        said.seek(0)
        assert "of lane 1, which died, only what it had told by then is counted" in said.read()


def test_a_run_that_is_stopped_while_its_lanes_start_again_stops(tmp_path, undisturbed, caplog):
    caplog.set_level(logging.WARNING)
    run = engine.start(flow(tmp_path, rate=500), lanes=2, checkpoint=tmp_path / "kept", every="20 ms")
    killed(run, 0)
    wait_until(lambda: "start again" in caplog.text, "the restart")
    run.stop()
    report = run.wait()
    assert report.extra["restarts"] == 1
    engine.run(flow(tmp_path), lanes=3, checkpoint=tmp_path / "kept")
    assert held(tmp_path) == undisturbed


def test_a_run_that_is_aborted_while_its_lanes_start_again_ends(tmp_path, undisturbed, caplog):
    run = engine.start(flow(tmp_path, rate=500), lanes=2, checkpoint=tmp_path / "kept", every="20 ms")
    killed(run, 0)
    wait_until(lambda: "start again" in caplog.text, "the restart")
    run.abort()
    with suppress(RunError):
        run.wait()
    engine.run(flow(tmp_path), lanes=2, checkpoint=tmp_path / "kept")
    assert held(tmp_path) == undisturbed
