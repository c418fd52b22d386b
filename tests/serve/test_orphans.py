"""The process of a flow ends when its server is gone, whatever it is doing then."""

import socket
import subprocess
import time

import pytest

from headwater.serve.child import COMMAND
from headwater.serve.messages import Assignment, line
from headwater.serve.settings import Settings
from waiting import PATIENCE_S

SLOW = """
import pathlib, time
pathlib.Path({began!r}).touch()
time.sleep(1000)
"""


@pytest.mark.parametrize(
    ("what", "options"), [("run", {}), ("run", {"lanes": 2}), ("check", {}), ("replay", {})], ids=str
)
def test_an_import_that_takes_long_ends_with_the_server(tmp_path, what, options):
    began, file = tmp_path / "began", tmp_path / "slow.py"
    file.write_text(SLOW.format(began=str(began)))
    ours, theirs = socket.socketpair()
    with subprocess.Popen([*COMMAND, str(theirs.fileno())], pass_fds=[theirs.fileno()]) as process:
        theirs.close()
        try:
            ours.sendall(line(Assignment(what, str(file), str(tmp_path / "home"), Settings(options=options))))
            end = time.monotonic() + PATIENCE_S
            while not began.exists():
                assert time.monotonic() < end
                assert process.poll() is None
                time.sleep(0.02)
            ours.close()  # as a kill -9 does
            assert process.wait(PATIENCE_S) == 1
        finally:
            process.kill()


def test_a_process_that_is_told_nothing_ends_with_the_server():
    ours, theirs = socket.socketpair()
    with subprocess.Popen([*COMMAND, str(theirs.fileno())], pass_fds=[theirs.fileno()]) as process:
        theirs.close()
        ours.close()
        try:
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
