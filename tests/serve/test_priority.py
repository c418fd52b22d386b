"""A process that makes itself ready has a low priority meanwhile, and its usual one afterwards, with all its threads."""

import os
import subprocess
import sys

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


def test_who_could_not_come_back_does_not_go(monkeypatch):
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    monkeypatch.setattr(priority, "_may_restore", lambda: False)
    priority.lower_priority(os.getpid())
    assert os.getpriority(os.PRIO_PROCESS, 0) == usual
