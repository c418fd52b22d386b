"""Real time for lanes within their promise: given to all their threads, and taken from those that use more than they may."""

import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from promising import until

from headwater import Contract
from headwater.processes import children
from headwater.rate import cgroups, process
from headwater.rate.client import board
from headwater.rate.ledger import Reservation
from headwater.rate.real_time import LOOK_S, RealTime, may_run_so, priority

CONTRACT = Contract(1000.0, 0.05)
THREADS = (
    "import threading, time\n"
    "for _ in range(3): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    "print('ready', flush=True)\n"
    "time.sleep(600)"
)


@pytest.fixture
def program():
    """A process with four threads, none of real time."""
    if not may_run_so():
        pytest.skip("real time needs root or CAP_SYS_NICE")
    child = subprocess.Popen([sys.executable, "-S", "-c", THREADS], stdout=subprocess.PIPE)
    child.stdout.readline()
    yield child.pid
    child.kill()
    child.communicate()


def held(pid, cores=0.4, contract=CONTRACT, lanes=1):
    return Reservation("etl", "etl", contract, cores, pid, process.began(pid), lanes=lanes)


def policies(pid) -> set[int]:
    found = set()
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it may have ended meanwhile
            found.add(os.sched_getscheduler(int(thread.name)) & ~os.SCHED_RESET_ON_FORK)
    return found


def test_all_threads_of_a_lane_are_of_real_time_until_that_is_taken_away(program):
    real_time = RealTime(None)
    real_time.give(held(program), 0.0)
    assert policies(program) == {os.SCHED_RR}
    assert os.sched_getparam(program).sched_priority == priority(0.05)
    real_time.take(held(program))
    assert policies(program) == {os.SCHED_OTHER}
    assert len(real_time) == 0


def test_the_end_of_a_promise_is_that_of_real_time_and_a_supervisor_that_comes_later_takes_it_too(program):
    real_time = RealTime(None)
    real_time.give(held(program), 0.0)
    real_time.end("etl")
    assert policies(program) == {os.SCHED_OTHER}
    real_time.give(held(program), 0.0)
    RealTime(None).take(held(program))
    assert policies(program) == {os.SCHED_OTHER}


def test_what_a_lane_starts_is_not_of_real_time():
    if not may_run_so():
        pytest.skip("real time needs root or CAP_SYS_NICE")
    code = (
        "import subprocess, sys\ninput()\nsubprocess.run([sys.executable, '-S', '-c', 'import time; time.sleep(600)'])"
    )
    parent = subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE)
    try:
        RealTime(None).give(held(parent.pid), 0.0)
        parent.stdin.write(b"\n")
        parent.stdin.flush()
        assert until(lambda: children(parent.pid))
        assert policies(parent.pid) == {os.SCHED_RR}
        assert policies(children(parent.pid)[0]) == {os.SCHED_OTHER}
    finally:
        for pid in children(parent.pid):
            os.kill(pid, 9)
        parent.kill()
        parent.communicate()


def test_a_lane_leaves_its_group_for_real_time_where_groups_have_none_and_comes_back_to_it(program):
    groups = cgroups.find()
    if groups is None:
        pytest.skip("no cpu control group can be made here (not root, and none was handed down)")
    name = f"test-{program}"
    lane = replace(held(program), id=name)
    procs = groups.group(name) / "cgroup.procs"
    groups.put(name, program, lane.cores)
    try:
        real_time = RealTime(groups)
        real_time.give(lane, 0.0)
        assert policies(program) == {os.SCHED_RR}
        real_time.take(lane)
        assert policies(program) == {os.SCHED_OTHER}
        assert procs.read_text().split() == [str(program)]
    finally:
        groups.remove(name)


@pytest.mark.parametrize("lane", [{"contract": Contract(1000.0)}, {"lanes": 0}])
def test_what_is_promised_no_latency_and_what_another_runner_does_has_its_weight_alone(program, lane):
    real_time = RealTime(None)
    real_time.give(held(program, **lane), 0.0)
    assert policies(program) == {os.SCHED_OTHER}
    assert len(real_time) == 0


def test_a_lane_that_uses_more_than_it_has_reserved_loses_it_and_one_within_that_keeps_it(program):
    spent_s = 0.0
    real_time = RealTime(None, lambda pid: spent_s)
    real_time.give(held(program, 0.4), 0.0)
    for look in range(1, 101):
        spent_s += 0.4 * LOOK_S
        assert real_time.look(look * LOOK_S) == []
    wild = []
    looks = 0
    while not wild:
        looks += 1
        spent_s += LOOK_S  # a core
        wild = real_time.look(10 + looks * LOOK_S)
    assert [lane.flow for lane in wild] == ["etl"]
    assert looks == 2  # 0.2 s of a core are 0.12 s more than it has reserved, and it may have 0.1 s more
    assert policies(program) == {os.SCHED_OTHER}


@given(st.lists(st.floats(0, 1), min_size=1, max_size=100), st.floats(0.01, 1.6))
def test_a_lane_never_has_more_of_real_time_than_it_has_reserved_and_its_burst(shares, cores):
    spent_s = real_s = 0.0
    real_time = RealTime(None, lambda pid: spent_s)
    lane = Reservation("etl", "etl", CONTRACT, cores, 2**22 + 1, 0)  # no process has that number
    real_time.give(lane, 0.0)
    for look, share in enumerate(shares, 1):
        spent_s += share * LOOK_S
        real_s += share * LOOK_S
        if real_time.look(look * LOOK_S):
            real_s -= share * LOOK_S  # at most a look's worth beyond it
            break
    assert real_s <= cores * look * LOOK_S + max(0.05, 0.25 * cores) + 1e-9


@given(st.floats(1e-4, 1e4), st.floats(1e-4, 1e4))
def test_a_shorter_latency_never_has_a_lower_priority(one, other):
    assert 1 <= priority(one) <= 40
    assert (one < other) <= (priority(one) >= priority(other))


def test_a_promised_flow_goes_before_all_others_while_it_keeps_to_its_promise(home, lane):
    if not may_run_so() or "real time" not in lane_grade(home, lane):
        pytest.skip("real time needs a control group, and root or CAP_SYS_NICE")
    within = lane(1000, 10, 0.3, 60).started()
    greedy = lane(4000, 10, 0.3, 60).started()
    assert until(lambda: os.SCHED_RR in policies(within.process.pid))
    assert until(lambda: [each for each in board(home).lanes if each.pid == greedy.process.pid and each.above])
    assert until(lambda: policies(greedy.process.pid) == {os.SCHED_OTHER})
    assert until(lambda: policies(within.process.pid) == {os.SCHED_RR})


def lane_grade(home, lane) -> str:
    lane(1000, 10, 0.01, 1).started()
    return board(home).how
