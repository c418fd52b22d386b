"""A run on Spark ends, and says why in one line, whatever happens to Java."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from headwater import Flow, io
from headwater import spark as on_spark
from headwater.errors import RunError
from headwater.spark.checkpoint import Checkpoint

ENDLESS = """
from headwater import Flow, io
from headwater.spark import running

running._ENOUGH_S = 3.0  # for Spark to stop: one that hangs is not waited for longer than it takes to see that

def make(numbers):
    return {"n": numbers}

flow = Flow("endless")
flow.read("ticks", io.Generate(make, {"n": int}, 300)).write("out", io.JsonLines("out.jsonl"))
"""
PATIENCE_S = 240


@pytest.fixture
def running(tmp_path):
    """An endless flow on Spark that has begun to write, as a user runs it, and its Java."""
    (tmp_path / "endless.py").write_text(ENDLESS)
    main = "from headwater.cli import main; main()"
    command = [sys.executable, "-c", main, "run", "endless.py", "--on", "spark"]
    with (
        (tmp_path / "said").open("wb") as said,
        subprocess.Popen(command, stdout=said, stderr=said, cwd=tmp_path, start_new_session=True) as process,
    ):
        try:
            until = time.monotonic() + PATIENCE_S
            while not ((tmp_path / "out.jsonl").exists() and (tmp_path / "out.jsonl").stat().st_size):
                assert process.poll() is None, (tmp_path / "said").read_text()
                assert time.monotonic() < until, "nothing was written"
                time.sleep(0.05)
            yield process, java_of(process.pid), tmp_path / "said"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def java_of(pid):
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    [java] = [int(child) for child in children if "java" in Path(f"/proc/{child}/comm").read_text()]
    return java


def test_a_java_that_is_killed_ends_the_run_with_one_line(running):
    process, java, said = running
    os.kill(java, signal.SIGKILL)
    assert process.wait(PATIENCE_S) == 1
    told = "error: Spark stopped the flow: Java, in which Spark runs, is gone: it was ended by SIGKILL; was memory short?\n"
    assert said.read_text().endswith(told)
    assert "Traceback" not in said.read_text()


@pytest.mark.thorough
def test_a_java_that_hangs_does_not_keep_a_user_from_ending_the_run(running):
    process, java, said = running
    os.kill(java, signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    until = time.monotonic() + PATIENCE_S
    while "once more to stop now" not in said.read_text():  # two signals at once would be one
        assert time.monotonic() < until, said.read_text()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 1
    assert said.read_text().endswith("error: Spark did not stop within 3 s, and was ended\n")
    assert "Traceback" not in said.read_text()


@pytest.mark.parametrize("whom", ["its group", pytest.param("every process", marks=pytest.mark.thorough)])
def test_a_sigterm_to_all_of_a_run_drains_it_and_nothing_is_left(running, whom):
    process, _, said = running
    family = family_of(process.pid)
    assert len(family) > 4, family  # Java, the fork server, a daemon and its worker
    if whom == "its group":
        os.killpg(process.pid, signal.SIGTERM)
    else:  # as systemd does
        for pid in family:
            with suppress(ProcessLookupError):  # one that was about to end
                os.kill(pid, signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0, said.read_text()
    assert "error" not in said.read_text()
    written = [json.loads(line)["n"] for line in said.with_name("out.jsonl").read_text().splitlines()]
    assert written == list(range(len(written)))
    assert f"{len(written):,} records" in said.read_text()
    until = time.monotonic() + PATIENCE_S
    while left := [pid for pid in family if is_alive(pid)]:
        assert time.monotonic() < until, left
        time.sleep(0.05)


def family_of(pid):
    """Return a process and all that came of it; what the fork server has forked is among it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in family_of(int(child)))]


def is_alive(pid):
    with suppress(FileNotFoundError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_whatever_breaks_while_a_run_is_closed_it_ends_and_gives_back_what_it_holds(spark, tmp_path, monkeypatch):
    flow = Flow("closing")
    flow.read("r", io.Items([{"n": 1}])).write("out", io.Discard())
    run = on_spark.start(flow, checkpoint=tmp_path / "kept")
    monkeypatch.setattr(run._query, "stop", lambda: 1 / 0)
    with pytest.raises(RunError, match="the run on Spark broke: ZeroDivisionError") as broken:
        run.wait()
    assert broken.value.report.to_json()["error"] == str(broken.value)
    run.checkpoint.lock()


def test_what_java_has_against_starting_is_told_in_one_line(spark, tmp_path, monkeypatch):
    flow = Flow("starting")
    flow.read("r", io.Items([{"n": 1}])).write("out", io.Discard())
    (tmp_path / "file").touch()
    monkeypatch.setattr(Checkpoint, "query", tmp_path / "file" / "query")  # where Java cannot write
    with pytest.raises(RunError, match=r"^Spark could not start the flow: [^\n]+$"):
        on_spark.start(flow, checkpoint=tmp_path / "kept")
