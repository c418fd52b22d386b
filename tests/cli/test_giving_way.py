"""A flow without a promise, beside promises that come and go."""

import errno
import os
import signal
import socket
import subprocess
import sys

import pytest

from headwater.cli.promise import GivingWay
from headwater.flow.contract import Contract
from headwater.processes import family
from headwater.rate.client import Client
from headwater.rate.grade import _threads
from headwater.rate.messages import Ask, End, Granted
from supervisors import end_supervisor
from waiting import PATIENCE_S, wait_until

FLOW = """
from headwater import Flow, io
flow = Flow("unpromised")
made = io.Generate(lambda n: {"n": n}, {"n": int}, rate=200)
flow.read("numbers", made).write("out", io.Discard())
"""


@pytest.fixture
def home(tmp_path):
    yield tmp_path / "run"
    end_supervisor(tmp_path / "run")


def policies(pid):
    found = set()
    for each in family(pid):
        for thread in _threads(each):
            try:
                found.add(os.sched_getscheduler(thread))
            except ProcessLookupError:
                continue
    return found


@pytest.mark.parametrize("options", [(), ("--lanes", "2")], ids=["workers", "lanes"])
def test_a_flow_gives_way_while_there_are_promises_and_no_longer(home, tmp_path, options):
    (tmp_path / "flow.py").write_text(FLOW)
    command = [sys.executable, "-m", "headwater", "run", "flow.py", *options]
    environment = {**os.environ, "HEADWATER_RUNTIME": str(home)}
    running = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    client = Client(home)
    try:
        several = 3 if options else 1  # processes: with lanes, a server that forks, and one more lane
        wait_until(lambda: len(family(running.pid)) >= several and len(_threads(running.pid)) > 2, "the flow")
        assert policies(running.pid) == {os.SCHED_OTHER}
        granted = client.say(Ask("other", Contract(1000.0, None), 0.1, best_effort=True))
        assert isinstance(granted, Granted)
        wait_until(lambda: policies(running.pid) == {os.SCHED_IDLE}, "idle priority")
        assert running.poll() is None
        client.say(End(granted.id))
        if os.geteuid() == 0:  # others may not go back, unless they may set a low nice
            wait_until(lambda: policies(running.pid) == {os.SCHED_OTHER}, "the usual priority")
        running.send_signal(signal.SIGINT)
        said = running.communicate(timeout=PATIENCE_S)[1]
    finally:
        client.close()
        running.kill()
        running.wait()
    assert running.returncode == 0
    assert "promises are kept on this machine: this flow, which has no promise, runs at idle priority" in said
    if os.geteuid() == 0:
        assert "this flow runs at its usual priority again" in said


def test_a_look_that_the_system_does_not_let_be_had_ends_no_flow(tmp_path, monkeypatch):
    def fails():
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("headwater.rate.home.folder", fails)
    way = GivingWay(every_s=0.0)
    way.begin()
    way.look()
    (tmp_path / "file").touch()
    monkeypatch.setattr("headwater.rate.home.folder", lambda: tmp_path / "file")  # below which nothing can be
    way.look()
    assert os.sched_getscheduler(0) == os.SCHED_OTHER


CLOSED = """
import os, sys
from pathlib import Path
from headwater.cli.promise import GivingWay
from headwater.rate import home
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
home.MACHINE = Path(sys.argv[1])
GivingWay().begin()
print("runs on")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_a_promise_that_root_has_alone_ends_no_flow_of_others(tmp_path):
    with socket.socket(socket.AF_UNIX) as roots:
        (tmp_path / "run").mkdir(mode=0o700)
        roots.bind(str(tmp_path / "run" / "supervisor.sock"))
        roots.listen()
        environment = {name: value for name, value in os.environ.items() if name != "HEADWATER_RUNTIME"}
        environment["XDG_RUNTIME_DIR"] = str(tmp_path)
        command = [sys.executable, "-c", CLOSED, str(tmp_path / "run")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "runs on\n", done.stderr
