"""Checkpoints where something is not as it should be."""

import errno
import time
from random import Random

import pytest

from headwater import Flow, engine, io
from headwater.engine.checkpoint.coordinator import Coordinator
from headwater.engine.checkpoint.store import Store
from headwater.errors import RunError
from headwater.io.log.disk import SystemDisk
from headwater.sim.disk import SimulatedDisk

FIELDS = {"k": int, "x": int}


def counted(state, record):
    return (state or 0) + 1, {"k": record["k"], "n": (state or 0) + 1}


def flow(source, sink, parallel=1):
    made = Flow("trouble")
    made.read("read", source).key_by("k").process("count", counted, out={"k": int, "n": int}, parallel=parallel).write(
        "write", sink
    )
    return made


@pytest.fixture
def source(tmp_path):
    (tmp_path / "in.jsonl").write_text("".join(f'{{"k":{i % 5},"x":{i}}}\n' for i in range(500)))
    return io.JsonLines(tmp_path / "in.jsonl", FIELDS)


def test_a_folder_that_cannot_be_made_is_told_before_anything_starts(source, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"cannot write checkpoint .*: .*file is a file, and a folder is needed"):
        engine.run(flow(source, io.Collect()), checkpoint=tmp_path / "file")
    with pytest.raises(
        RunError, match=r"cannot write checkpoint .*/file/state: .*/file is a file, and a folder is needed"
    ):
        engine.run(flow(source, io.Collect()), checkpoint=tmp_path / "file" / "state")


@pytest.mark.parametrize("why", [errno.ENOSPC, errno.EROFS])
def test_a_run_goes_on_while_checkpoints_cannot_be_written_and_makes_them_again(
    source, tmp_path, monkeypatch, caplog, why
):
    failing = {"now": False}
    fsync = SystemDisk.fsync

    def full(disk, fd):
        if failing["now"]:
            raise OSError(why, "it cannot be written")
        fsync(disk, fd)

    monkeypatch.setattr(SystemDisk, "fsync", full)
    folder, paced = tmp_path / "kept", io.Replay(source, rate=2000)
    run = engine.start(flow(paced, io.JsonLines(tmp_path / "out")), checkpoint=folder, every="10 ms")

    def wait_for(name, more):
        until = run.checkpointer.to_json()[name] + more
        while run.checkpointer.to_json()[name] < until:
            time.sleep(0.005)

    wait_for("complete", 2)
    failing["now"] = True
    wait_for("failed", 5)
    assert len(list(folder.glob("*.new"))) <= 1
    failing["now"] = False
    wait_for("complete", 2)
    run.stop()
    report = run.wait()
    assert report.error is None
    assert "comes to nothing: cannot write to" in caplog.text
    assert len(list(folder.glob("*.checkpoint"))) <= 2


def test_ten_thousand_checkpoints_leave_two_files_and_nothing_in_memory():
    disk = SimulatedDisk(Random(1))
    store = Store("/c", disk)
    plan = Coordinator(tasks=2, first=0, every_s=1.0)
    for now_s in range(1, 10_001):
        number = plan.begin(now_s)
        for task in range(2):
            plan.saved(task, number, task)
        assert plan.complete() == {0: 0, 1: 1}
        store.write(number, {"tasks": {}})
    assert store.numbers() == [9998, 9999]
    assert len(disk.listdir("/c")) == 2
    assert len(store._since) <= 2


def test_a_run_that_others_wait_for_begins_with_checkpoints_in_quick_succession():
    plan, began_ms = Coordinator(tasks=1, first=4, every_s=0.05, soon=True), []
    for now_ms in range(300):
        if plan.due(now_ms / 1000):
            began_ms.append(now_ms)
            plan.saved(0, plan.begin(now_ms / 1000), None)
            plan.complete()
    assert began_ms == pytest.approx([10, 30, 70, 120, 170, 220, 270], abs=7)  # by a millisecond each, at most
    assert not Coordinator(tasks=1, first=0, every_s=0.002, soon=True).due(0.001)


def test_checkpoints_that_take_longer_than_their_interval_do_not_pile_up():
    plan = Coordinator(tasks=1, first=0, every_s=0.01)
    plan.begin(0.0)
    assert not any(plan.due(now_s) for now_s in (0.01, 1.0, 100.0))
    plan.saved(0, 0, None)
    plan.complete()
    assert plan.due(100.0)
    assert plan.begin(100.0) == 1


def test_a_flow_of_a_thousand_instances_is_saved_and_goes_on(source, tmp_path):
    folder = tmp_path / "kept"
    for _ in range(2):
        sink = io.JsonLines(tmp_path / "out")
        report = engine.run(flow(source, sink, parallel=1000), checkpoint=folder, every="50 ms")
        assert report.extra["checkpoints"]["complete"] >= 1
    assert len((tmp_path / "out").read_text().splitlines()) == 500
