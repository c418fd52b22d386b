"""Processes that are killed, whether they are still there or not."""

import signal
import subprocess
import sys

from headwater.processes import kill, wait_or_kill

_NOBODY = 2**30  #: above what Linux numbers processes with


def test_one_that_is_gone_does_not_keep_the_others_from_being_killed():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        kill([_NOBODY, child.pid])
        assert child.wait() == -signal.SIGKILL


def test_one_that_does_not_end_when_it_was_asked_to_is_killed():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        wait_or_kill(child, 0.01)
        assert child.returncode == -signal.SIGKILL


def test_one_that_ends_in_time_is_not_killed():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.stdin is not None
        child.stdin.write(b"end\n")
        child.stdin.close()
        wait_or_kill(child, 60)
        assert child.returncode == 0
