"""Threads only obey: what the scheduler was told while they ran, and what it decided, can be played again without them."""

import pytest

import headwater.engine.workers
from headwater import Flow, col, engine, io
from headwater.engine.policy import POLICIES
from headwater.engine.workers import WorkerPool
from recorder import Recorder


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_what_threads_were_told_to_do_is_decided_alike_without_them(policy, monkeypatch):
    monkeypatch.setattr(headwater.engine.workers, "Scheduler", Recorder)
    flow = Flow("f")
    read = flow.read("read", io.Replay(io.Items([{"x": i} for i in range(7)]), 20_000, count=4_000))
    for i in range(3):
        read.filter(f"keep {i}", col.x > i).select(f"sum {i}", x=col.x + 1).write(f"w {i}", io.Discard())
    running = WorkerPool(flow, engine.Options(policy=policy)).start()
    report = running.wait()
    assert report is not None
    assert report.last.records_in == 4_000
    assert isinstance(running, WorkerPool)
    assert isinstance(running.scheduler, Recorder)
    trace = running.scheduler.trace
    assert sum(name == "next" and decided is not None for name, _, decided in trace) > 3
    assert running.scheduler.replayed() == trace
