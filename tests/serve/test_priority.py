"""A process that makes itself ready has a low priority meanwhile, and its usual one afterwards, with all its threads."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headwater.serve import priority
from waiting import PATIENCE_S

_CHILD = """
import os, threading
from headwater.serve.priority import restore_priority

def priorities():
    return sorted(os.getpriority(os.PRIO_PROCESS, int(each)) for each in os.listdir("/proc/self/task"))

input()
threading.Thread(target=threading.Event().wait, daemon=True).start()
print(priorities(), flush=True)
restore_priority()
print(priorities(), flush=True)
os._exit(0)
"""


@pytest.mark.skipif(not priority._may_restore(), reason="this user may not raise a priority")
def test_a_process_that_was_put_aside_comes_back_with_all_its_threads():
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    command = [sys.executable, "-c", _CHILD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        priority.lower_priority(child.pid)
        said, _ = child.communicate("\n", timeout=PATIENCE_S)
    assert said.splitlines() == [f"[{usual + 5}, {usual + 5}]", f"[{usual}, {usual}]"]


_LEADER = """
import os
from headwater.serve.priority import restore_priority

def session():
    with open("/proc/self/autogroup") as file:
        return int(file.read().rpartition(" nice ")[2])

input()
before = session()
print(before, restore_priority(), session(), flush=True)
os._exit(0)
"""


@pytest.mark.skipif(priority._of_session(os.getpid()) != 0, reason="the scheduler does not go by sessions here")
def test_a_process_with_a_session_of_its_own_gives_way_to_other_sessions_and_comes_back():
    child = subprocess.Popen(
        [sys.executable, "-c", _LEADER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with child:
        priority.lower_priority(child.pid)
        said, _ = child.communicate("\n", timeout=PATIENCE_S)
    assert said.split() == ["10", "True", "0"]
    assert priority._of_session(os.getpid()) == 0


@pytest.mark.skipif(priority._of_session(os.getpid()) != 0, reason="the scheduler does not go by sessions here")
def test_a_process_of_our_own_session_has_that_left_as_it_is():
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as child:
        priority.lower_priority(child.pid)
        assert priority._of_session(child.pid) == 0
        child.communicate(b"\n", timeout=PATIENCE_S)


def test_a_session_that_weighs_more_than_that_of_its_parent_keeps_that(tmp_path, monkeypatch):
    files = {os.getpid(): tmp_path / "own", os.getppid(): tmp_path / "parent"}
    monkeypatch.setattr(priority, "_session_file", files.__getitem__)
    files[os.getpid()].write_text("/autogroup-7 nice -20\n")
    files[os.getppid()].write_text("/autogroup-3 nice 0\n")
    assert priority.restore_priority()
    assert files[os.getpid()].read_text() == "/autogroup-7 nice -20\n"


def test_a_session_that_cannot_be_restored_is_told(tmp_path, monkeypatch):
    files = {os.getpid(): tmp_path / "own", os.getppid(): tmp_path / "parent"}
    monkeypatch.setattr(priority, "_session_file", files.__getitem__)
    monkeypatch.setattr(priority, "_RESTORE_S", 0.1)
    monkeypatch.setattr(Path, "write_text", _refused)
    for file, nice in zip(files.values(), (5, 0), strict=True):
        file.write_bytes(f"/autogroup-7 nice {nice}\n".encode())
    assert not priority.restore_priority()


def _refused(*_):
    raise BlockingIOError(11, "somebody else has set one a moment ago")


def test_who_could_not_come_back_does_not_go(monkeypatch):
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    monkeypatch.setattr(priority, "_may_restore", lambda: False)
    priority.lower_priority(os.getpid())
    assert os.getpriority(os.PRIO_PROCESS, 0) == usual


def test_what_takes_too_long_to_prepare_gives_way_no_more(monkeypatch):
    restored = threading.Event()
    monkeypatch.setattr(priority, "restore_priority", restored.set)
    before = threading.active_count()
    with priority.no_longer_than(0.01):
        assert restored.wait(PATIENCE_S)
    assert threading.active_count() == before
    restored.clear()
    with priority.no_longer_than(PATIENCE_S):
        pass
    assert threading.active_count() == before
    assert not restored.is_set()
