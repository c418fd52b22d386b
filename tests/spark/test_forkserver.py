"""What Java starts for Python is forked from a process that has loaded it all, and is what it would have been otherwise."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress

import pytest

from headwater.spark import forkserver
from headwater.spark.forkclient import SERVER
from headwater.spark.interpreter import launcher
from waiting import PATIENCE_S

#: says what it finds, and does what it is told to
MODULE = """
import json, os, sys, time
found = {
    "arguments": sys.argv[1:],
    "name": __name__,
    "given": os.environ.get("GIVEN"),
    "folder": os.getcwd(),
    "seed": os.environ.get("PYTHONHASHSEED"),
    "hash": hash("headwater"),
    "is loaded": "pyspark.worker" in sys.modules,
    "read": sys.stdin.readline(),
    "process": os.getpid(),
}
print(json.dumps(found), flush=True)
if "stay" in sys.argv:
    if os.fork() == 0:  # as a daemon does, whose workers may outlive it by a little
        time.sleep(60)
    time.sleep(60)
"""
#: starts a server, and ends when it is told to
OWNER = """
import sys
from headwater.spark import forkserver
forkserver.start()
print(forkserver._process.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def server(monkeypatch, tmp_path):
    """A server of this test's own, and the folder of a module that processes run."""
    monkeypatch.setenv("HEADWATER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(SERVER, "")  # which is put back
    monkeypatch.setattr(forkserver, "_process", None)
    (tmp_path / "told.py").write_text(MODULE)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as of a command that is run by `nohup`
    forkserver.start()
    signal.signal(signal.SIGHUP, before)
    yield tmp_path
    forkserver.stop()


def started(folder, *arguments):
    """Start the module as Java does."""
    environ = {**os.environ, "GIVEN": "a = b\nc", "PYTHONPATH": str(folder), "PYTHONHASHSEED": "0"}
    pipe = subprocess.PIPE
    command = [launcher(), "-m", "told", *arguments]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environ, cwd=folder)


def told_by(process):
    process.stdin.write("a line\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def wait_for_end_of(pid):
    until = time.monotonic() + PATIENCE_S
    with suppress(ProcessLookupError):
        while time.monotonic() < until:
            os.kill(pid, 0)
            time.sleep(0.02)
        raise AssertionError(f"process {pid} did not end")


def test_a_process_has_the_arguments_environment_and_streams_of_who_asked_for_it_and_all_is_loaded(server):
    with started(server, "a b", "") as process:
        told = told_by(process)
        assert process.wait(PATIENCE_S) == 0
    assert told.pop("process") != process.pid
    plain = subprocess.run(
        [sys.executable, "-c", "print(hash('headwater'))"],
        env={**os.environ, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told == {
        "arguments": ["a b", ""],
        "name": "__main__",
        "given": "a = b\nc",
        "folder": str(server),
        "seed": "0",
        "hash": int(plain.stdout),
        "is loaded": True,
        "read": "a line\n",
    }


def test_what_ends_who_stands_for_a_process_ends_the_process_and_not_what_came_of_that(server):
    with started(server, "stay") as process:
        told = told_by(process)
        process.terminate()
        process.wait(PATIENCE_S)
        wait_for_end_of(told["process"])


def test_a_signal_that_is_not_of_who_asked_for_a_process_does_not_end_it(server):
    with started(server, "stay") as process:
        told = told_by(process)
        for pid in (forkserver._process.pid, told["process"], process.pid):
            subprocess.run(["kill", "-TERM", str(pid)], check=True)
        with started(server, "a") as other:
            assert told_by(other)["is loaded"]  # the server is there
            assert other.wait(PATIENCE_S) == 0
        assert process.poll() is None
        os.kill(told["process"], 0)
        process.terminate()
        process.wait(PATIENCE_S)
        wait_for_end_of(told["process"])


def test_where_the_server_is_gone_a_process_starts_by_itself(server):
    forkserver.stop()
    with started(server, "a") as process:
        told = told_by(process)
        assert process.wait(PATIENCE_S) == 0
    assert (told["arguments"], told["is loaded"]) == (["a"], False)
    assert told["process"] == process.pid


@pytest.mark.parametrize("how", ["its end", "a kill"])
def test_a_server_ends_with_the_process_that_started_it(how):
    with subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        server = int(owner.stdout.readline())
        if how == "a kill":
            owner.send_signal(signal.SIGKILL)
        owner.stdin.close()
        owner.wait(PATIENCE_S)
    wait_for_end_of(server)


def test_a_folder_whose_name_is_too_long_for_a_socket_is_done_without(monkeypatch, tmp_path):
    monkeypatch.setattr(forkserver, "_process", None)
    monkeypatch.delenv(SERVER, raising=False)
    long = tmp_path / ("a" * 120)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    forkserver.start()
    assert forkserver._process is None
    assert SERVER not in os.environ
