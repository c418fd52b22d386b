"""However a run in lanes ends, all lanes end, and what they had done is told."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import headwater
from headwater import Flow, col, engine, io
from headwater.errors import RunError
from waiting import PATIENCE_S, gone


def endless(step=None, sink=None):
    flow = Flow("endless")
    source = io.Generate(lambda n: {"n": n, "key": n % 5}, {"n": int, "key": int}, rate=20_000)
    stream = flow.read("r", source).filter("some", col.n >= 0)
    if step is not None:
        stream = stream.map("step", step)
    counted = stream.key_by("key").process("count", lambda state, r: ((state or 0) + 1, r))
    counted.write("w", sink or io.Discard())
    return flow


def until(run, condition):
    while run.wait(0.02) is None:
        if condition(run.sample()):
            return
    raise AssertionError("an endless source has ended")


def test_stopping_drains_all_lanes():
    sink = io.Collect()
    run = engine.start(endless(sink=sink), lanes=2)
    until(run, lambda sample: sum(sample.records_out.values()) > 1000)
    run.stop()
    report = run.wait()
    assert report.left == 0
    assert report.last.records_in == len(sink.records) == report.last.records_out["w"]
    assert run.sample().records_in == report.last.records_in
    assert all(gone(child.pid) for child in run._children)
    assert threading.active_count() == 1 or not [t for t in threading.enumerate() if t.name == "lanes"]


def test_aborting_counts_what_is_left():
    def slow(record):
        time.sleep(0.0005)
        return record

    run = engine.start(endless(slow), lanes=2)
    until(run, lambda sample: sample.records_in > 2000)
    run.abort()
    report = run.wait()
    assert report.left > 0
    assert report.last.records_in == report.left + report.last.records_out["w"]
    assert all(gone(child.pid) for child in run._children)


def test_a_run_that_may_take_so_long_ends_in_all_lanes():
    report = engine.run(endless(), lanes=2, seconds=1)
    assert report.left == 0
    assert report.last.records_in > 0


def test_samples_of_all_lanes_are_kept():
    run = engine.start(endless(), lanes=2, sample_s=0.1)
    until(run, lambda sample: run.samples and spread(run.samples[-1]) == {2})  # each lane has said how it fares
    run.stop()
    report = run.wait()
    assert spread(report.samples[-1]) == {2}


def spread(sample):
    return {step.instances for name, step in sample.steps.items() if name in ("some", "count")}


def test_a_lane_that_is_killed_ends_the_run_by_name():
    run = engine.start(endless(), lanes=3)
    until(run, lambda sample: sum(sample.records_out.values()) > 1000)
    killed = run._children[0].pid
    os.kill(killed, signal.SIGKILL)
    with pytest.raises(
        RunError, match=rf"lane 1 \(process {killed}\) was killed by SIGKILL; what it had in hand is lost"
    ):
        run.wait(PATIENCE_S)
    assert all(gone(child.pid) for child in run._children)


@pytest.mark.parametrize("end", [SystemExit(3), KeyboardInterrupt()])
def test_a_step_that_exits_in_any_lane_ends_the_run_with_that_reason(end):
    def step(record):
        if record["n"] >= 3000:
            raise end
        return record

    with pytest.raises(RunError, match=rf"step 'step' ended the run: {type(end).__name__}") as raised:
        engine.run(endless(step), lanes=2)
    assert raised.value.step == "step"
    assert raised.value.report.error == str(raised.value)
    assert raised.value.report.left > 0


def test_a_step_that_hangs_in_another_lane_does_not_keep_the_run():
    parent = os.getpid()

    def hangs(record):
        if os.getpid() != parent:
            time.sleep(3600)
        return record

    run = engine.start(endless(hangs), lanes=2, grace_s=0.2)
    until(run, lambda sample: sample.records_in > 2000)
    run.abort()
    with pytest.raises(RunError, match=r"step 'step' did not come back within 0.2 s"):
        run.wait()
    assert all(gone(child.pid) for child in run._children)


def test_lanes_are_refused_beside_threads():
    release = threading.Event()
    thread = threading.Thread(target=release.wait, name="mine")
    thread.start()
    try:
        with pytest.raises(RunError, match="not safe beside other threads, and this process has 1: mine"):
            engine.start(endless(), lanes=2)
    finally:
        release.set()
        thread.join()


SCRIPT = """
from headwater import Flow, col, io
flow = Flow("endless")
source = io.Generate(lambda n: {"n": n, "key": n % 5}, {"n": int, "key": int}, rate=20_000)
counted = flow.read("r", source).filter("some", col.n >= 0).key_by("key")
counted.process("count", lambda state, r: ((state or 0) + 1, r)).write("w", io.Csv("out.csv"))
"""


@pytest.fixture
def running(tmp_path):
    """Return a function that runs the flow by the command line, in a process group of its own, and waits till it writes."""
    started = []

    def run(*options):
        (tmp_path / "flow.py").write_text(SCRIPT)
        source = [str(Path(headwater.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
        command = [
            sys.executable,
            "-c",
            "from headwater.cli import main; main()",
            "run",
            "flow.py",
            "--lanes",
            "2",
            *options,
        ]
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(source)},
        )  # fmt: skip
        started.append(process)
        written = tmp_path / "out.csv"
        while not written.exists() or written.stat().st_size < 10_000:  # by then signals are heard
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def lanes_of(process):
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(pid) for pid in children]


@pytest.mark.parametrize(
    ("how", "options"),
    [
        pytest.param(signal.SIGINT, (), id="SIGINT"),
        pytest.param(signal.SIGTERM, ("--checkpoint", "kept"), id="SIGTERM-checkpoint"),
        pytest.param(signal.SIGTERM, (), id="SIGTERM", marks=pytest.mark.thorough),
        pytest.param(signal.SIGINT, ("--checkpoint", "kept"), id="SIGINT-checkpoint", marks=pytest.mark.thorough),
    ],
)
def test_a_signal_to_the_whole_group_drains(running, tmp_path, how, options):
    process = running("--json", *options)
    os.killpg(process.pid, how)  # as a terminal does it, or a service manager: all lanes get it
    out, err = process.communicate(timeout=PATIENCE_S)
    assert "start again" not in err
    report = json.loads(out)
    assert process.returncode == 0, err
    assert report["left"] == 0
    assert report["lanes"] == 2
    assert report["records_in"] == len((tmp_path / "out.csv").read_text().splitlines()) - 1


def test_the_third_interrupt_leaves_and_no_lane_stays(running):
    process = running()
    pids = lanes_of(process)
    assert pids
    for _ in range(3):
        os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    until = time.monotonic() + PATIENCE_S
    while not all(gone(pid) for pid in pids):
        assert time.monotonic() < until
        time.sleep(0.05)


def test_lanes_end_with_the_process_that_started_them(running):
    process = running()
    pids = lanes_of(process)
    process.kill()
    process.wait()
    until = time.monotonic() + PATIENCE_S
    while not all(gone(pid) for pid in pids):
        assert time.monotonic() < until
        time.sleep(0.05)
