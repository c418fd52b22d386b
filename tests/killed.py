"""Runs in child processes that are killed without warning, again and again, until what they write is complete."""

import os
import random
import signal
import time
from contextlib import contextmanager

from headwater_bench.kills.children import end_after
from waiting import PATIENCE_S


def killed_until(complete, run, *, kills=5, longest_s=0.3, seed=1, ends=False):
    """Run `run` in children, kill each within `longest_s`, and after so many kills let one go on until it is complete.

    A run that comes to its end by itself says so by `ends`; another is killed once what it wrote is complete.
    """
    chance, done = random.Random(seed), 0
    while True:
        child = os.fork()
        if child == 0:
            end_after(run)
        if done < kills:
            time.sleep(0.05 + chance.random() * longest_s)
        else:
            _wait_for(complete, child, ends=ends)
        status = _killed(child)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0, "a run went wrong: see its traceback"
            assert ends, "a run came to its end that should go on"
            return done
        if done >= kills:
            return done
        done += 1


def cut_off(run, life_s):
    """Run in a child that is killed after so long, its lanes with it; return whether it had come to its end before."""
    child = os.fork()
    if child == 0:
        end_after(run)
    time.sleep(life_s)
    status = _killed(child)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0, "a run went wrong: see its traceback"
    return os.WIFEXITED(status)


def _wait_for(complete, child, *, ends):
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        waited = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if waited is not None or (not ends and complete()):
            return
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError(f"it is not complete after {PATIENCE_S} s")


def _killed(child):
    os.kill(child, signal.SIGKILL)  # one that has ended is there until it is waited for
    return os.waitpid(child, 0)[1]


@contextmanager
def running(run):
    """Run in a child, and kill it without warning at the end of the block."""
    child = os.fork()
    if child == 0:
        end_after(run)
    try:
        yield
    finally:
        status = _killed(child)
    assert os.WIFSIGNALED(status), "the run had ended before it was killed: see its traceback"


def kills_itself(run):
    """Run in a child that kills itself amid of it."""
    child = os.fork()
    if child == 0:
        end_after(run)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1]), "the run came to its end: see its traceback"
