"""What the system knows of processes: who runs in real time is found out from those that really do."""

import os
import subprocess
import sys
from contextlib import suppress

import pytest

from headwater.rate import cgroups, process

_REAL_TIME = "import os, sys, time; os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1)); print(flush=True)\n"


@pytest.fixture
def program():
    """Programs in real time, as processes that have begun; all are gone afterwards."""
    if os.geteuid() != 0:
        pytest.skip("real time needs root or CAP_SYS_NICE")
    groups = cgroups.find()
    if groups is not None:  # a test before may have killed the supervisor that had put this process into a group
        with suppress(OSError):
            groups.leave(os.getpid())
    started = []

    def start(code):
        started.append(subprocess.Popen([sys.executable, "-S", "-c", code], stdout=subprocess.PIPE))
        assert started[-1].stdout.readline() == b"\n"
        return started[-1].pid

    yield start
    for each in started:
        each.kill()
        each.communicate()


def test_who_runs_in_real_time_is_named_and_who_only_could_is_not(program):
    waits = program(_REAL_TIME + "time.sleep(600)")
    runs = program(_REAL_TIME + "while True: time.sleep(0.002); sum(range(200_000))")
    found = process.foreign_real_time(own=(), seconds=0.3)
    assert [each for each in found if f"({runs})" in each]
    assert not [each for each in found if f"({waits})" in each]
    assert not [each for each in process.foreign_real_time({runs}, 0.3) if f"({runs})" in each]


def test_a_thread_in_real_time_of_a_program_that_is_not_is_found(program):
    code = (
        "import os, threading, time\n"
        "def work():\n"
        "    os.sched_setscheduler(threading.get_native_id(), os.SCHED_RR, os.sched_param(1))\n"
        "    print(flush=True)\n"
        "    while True: time.sleep(0.002); sum(range(200_000))\n"
        "threading.Thread(target=work).start()\n"
    )
    runs = program(code)
    assert os.sched_getscheduler(runs) == os.SCHED_OTHER
    assert [each for each in process.foreign_real_time((), 0.3) if f"({runs})" in each]
