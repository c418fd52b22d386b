"""Processes that make a flow before it is to run: they wait for the word, and are ended without one."""

import os
import queue

import pytest

from headwater import Profile, StepProfile
from headwater.flow.profile import Demand, StepDemand
from headwater.io.lock import Lock
from headwater.rate import board
from headwater.serve import priority
from headwater.serve.messages import Assignment, Over, Running
from headwater.serve.settings import Settings
from headwater.serve.warm_process import WarmPool
from supervisors import end_supervisor
from waiting import PATIENCE_S

FLOW = """
from headwater import Flow, io

flow = Flow("numbers")
flow.read("numbers", io.Items([{{"n": n}} for n in range(10)])).write("out", io.JsonLines({out!r}))
"""


def told_by(pool_of):
    """Return a pool, and a function that waits until the process of a flow is as it should be."""
    changed = queue.SimpleQueue()
    pool = pool_of(lambda: changed.put(None))

    def until(name, warmth):
        while pool.warmth(name) != warmth:
            changed.get(timeout=PATIENCE_S)

    return pool, until


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    """A folder for a supervisor of its own, which is gone after the test."""
    monkeypatch.setenv("HEADWATER_RUNTIME", str(tmp_path / "run"))
    yield tmp_path / "run"
    end_supervisor(tmp_path / "run")


def test_a_flow_that_was_made_before_runs_when_it_is_told_to_with_the_cores_that_were_held_for_it(tmp_path, runtime):
    (tmp_path / "numbers.py").write_text(FLOW.format(out=str(tmp_path / "out.jsonl")))
    takes = {name: StepDemand(1.0, 1, 1.0, 0.0, 1e-6, 0.0) for name in ("numbers", "out")}
    profile = Profile(
        "numbers", "here", {name: StepProfile(0.0) for name in takes}, demand=Demand(100, 0.01, 0.0, takes)
    )
    profile.write(tmp_path / "profile.json")
    promised = Settings(
        promise="100/s", within="1s", profile=str(tmp_path / "profile.json"), trial=False, best_effort=True
    )
    pool, until = told_by(WarmPool)
    given = (str(tmp_path / "numbers.py"), str(tmp_path / "home"), promised)
    pool.add("numbers", Assignment("warm", *given))
    until("numbers", "warm")
    assert not (tmp_path / "home").exists()  # nothing that is kept was touched
    assert not (tmp_path / "out.jsonl").exists()
    (held,) = board(runtime).lanes
    assert held.pid == pool.pid("numbers")
    said, ran = queue.SimpleQueue(), []

    def hear(message):
        if isinstance(message, Running):
            ran.extend(lane.id for lane in board(runtime).lanes)
        if isinstance(message, Over):
            Lock(tmp_path / "home", "what is kept").release()  # which others may have at once
        said.put(message)

    child = pool.run("numbers", Assignment("run", *given), hear, lambda: said.put(None))
    heard = list(iter(lambda: said.get(timeout=PATIENCE_S), None))
    assert child.reap() == 0
    assert [type(each) for each in heard if isinstance(each, Running | Over)] == [Running, Over]
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 10
    assert pool.warmth("numbers") == "cold"
    assert ran in ([held.id], [])  # which it may have let go already, and asked for no other


def test_a_file_that_cannot_be_imported_leaves_it_cold_and_one_that_is_not_needed_is_ended(tmp_path):
    (tmp_path / "broken.py").write_text("raise ValueError('no')\n")
    (tmp_path / "numbers.py").write_text(FLOW.format(out=str(tmp_path / "out.jsonl")))
    pool, until = told_by(WarmPool)
    for name in ("broken", "numbers"):
        task = Assignment("warm", str(tmp_path / f"{name}.py"), str(tmp_path / "home"), Settings())
        pool.add(name, task)
    until("broken", "cold")
    assert pool.run("broken", task, print, print) is None
    until("numbers", "warm")
    pool.end_all()
    assert pool.warmth("numbers") == "cold"
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.skipif(priority._of_session(os.getpid()) != 0, reason="the scheduler does not go by sessions here")
def test_a_process_that_was_ready_before_it_was_put_aside_runs_its_flow_at_the_usual_priority(tmp_path):
    (tmp_path / "numbers.py").write_text(FLOW.format(out=str(tmp_path / "out.jsonl")))
    pool, until = told_by(WarmPool)
    given = (str(tmp_path / "numbers.py"), str(tmp_path / "home"), Settings())
    pool.add("numbers", Assignment("warm", *given))
    until("numbers", "warm")
    pid = pool.pid("numbers")
    assert not priority.gives_way(pid)
    priority.lower_priority(pid)  # as by a server that was kept from its work meanwhile
    assert priority.gives_way(pid)
    before = []
    said = queue.SimpleQueue()

    def hear(message):
        if isinstance(message, Running):
            before.append(priority.gives_way(pid))
        said.put(message)

    child = pool.run("numbers", Assignment("run", *given), hear, lambda: said.put(None))
    assert list(iter(lambda: said.get(timeout=PATIENCE_S), None))
    assert child.reap() == 0
    assert before == [False]
