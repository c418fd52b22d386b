"""A promise that one lane cannot keep runs in several, which are admitted together and give what one would."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from promised import demand
from promising import until

from headwater import Contract, engine
from headwater.errors import RateError
from headwater.histogram import Histogram
from headwater.metrics import Sample
from headwater.rate import admission, process, trial
from headwater.rate.client import board
from headwater.rate.estimate import cores, lanes_for, nearest
from headwater.rate.messages import Granted
from headwater.rate.reservation import Reservation
from headwater.rate.windows import DIED
from kept_flow import flow, held
from waiting import PATIENCE_S

SPLIT = Path(__file__).parent / "split.py"
CONTRACT = Contract(1000.0, 1.0)
several = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor has room for one lane")


@pytest.fixture
def split(home, tmp_path):
    started = []

    def make(*arguments):
        started.append(
            subprocess.Popen(
                [sys.executable, str(SPLIT), str(tmp_path), *map(str, arguments)],
                env={**os.environ, "HEADWATER_RUNTIME": str(home)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        said = started[-1].stdout.readline()
        assert said, started[-1].stderr.read()
        return started[-1], json.loads(said)

    yield make
    for each in started:
        each.kill()
        each.communicate()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    engine.run(flow(folder), workers=1)
    return held(folder)


@several
def test_more_than_a_lane_may_have_is_kept_by_two_with_the_results_of_one(split, home, tmp_path, undisturbed):
    running, pids = split(1.2, 600)
    assert len(pids) == 2
    lane = board(home).lanes[0]
    assert (lane.lanes, round(lane.cores, 2), lane.pid) == (2, 1.2, pids[0])
    groups = {Path(f"/proc/{pid}/cgroup").read_text() for pid in pids}
    assert len(groups) == 1  # what is reserved is for both
    out, err = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, err
    promise = json.loads(out)
    assert promise["lanes"] == 2
    assert promise["windows"] >= 1
    assert held(tmp_path) == undisturbed
    assert board(home).lanes == []


@pytest.mark.thorough
@several
def test_the_windows_in_which_one_of_the_lanes_died_say_so(split, home, tmp_path, undisturbed):
    running, pids = split(1.2, 400, tmp_path / "kept")
    until(lambda: [each for each in board(home).lanes if each.kept])
    os.kill(pids[1], signal.SIGKILL)
    out, err = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, err
    assert json.loads(out)["causes"].get(DIED, 0) >= 1, out
    assert held(tmp_path) == undisturbed
    assert process.began(pids[1]) is None


def test_lanes_are_as_few_as_can_be_and_their_cores_are_counted_together():
    wants = demand(1.5).demand
    assert lanes_for(demand(0.5).demand, CONTRACT, 4)[0] == 1
    assert lanes_for(wants, CONTRACT, 4) == (2, pytest.approx(1.5))
    assert lanes_for(wants, CONTRACT, 1) == (1, pytest.approx(1.5))  # which one may not have: the ledger refuses it
    assert cores(wants, 1000.0, 0.02, 2) == pytest.approx(1.5)


def test_what_a_trial_shows_to_be_too_much_for_one_lane_is_tried_in_two(tmp_path, monkeypatch):
    """Refused, it had been offered a rate that it could not have either."""
    tried, said = [], []

    def trial(flow, held, seconds):
        tried.append(held.lanes)
        return 0.8

    class Line:
        def say(self, message):
            said.append(message)
            return Granted("a", getattr(message, "cores", 0.0), "reserved", "for a test")

    monkeypatch.setattr(admission, "trial", trial)
    monkeypatch.setattr(admission, "most_lanes", lambda flow: 4)
    held = admission.admit(flow(tmp_path), CONTRACT, Line(), profile=demand(0.6))
    assert tried == [1, 2]
    assert [type(each).__name__ for each in said] == ["Ask", "End", "Ask", "Settle"]
    assert (held.lanes, held.measured, round(held.cores, 2)) == (2, 0.8, 1.04)


def test_what_would_fit_is_told_for_as_many_lanes_as_there_may_be():
    wants = demand(3.0).demand
    one, two = (nearest(wants, CONTRACT, 1.8, lanes).rate_hz for lanes in (1, 2))
    assert one == pytest.approx(1000 * 0.8 / 3, rel=0.01)
    assert two == pytest.approx(1000 * 1.6 / 3, rel=0.01)


def test_a_lane_that_has_more_to_do_than_one_may_is_found_out_by_the_trial(tmp_path, monkeypatch):
    """Where the work cannot be split evenly, all of it may be little enough and one lane's part too much."""
    spent = iter([0.0, 0.0, 95.0, 10.0])
    monkeypatch.setattr(process, "used_s", lambda pid: next(spent))
    clock = SimpleNamespace(monotonic=iter([0.0, 100.0]).__next__, sleep=lambda seconds: None)
    monkeypatch.setattr(trial, "time", clock)
    monkeypatch.setattr(trial, "begin", lambda flow, held, line: _Tried(records=100_000))
    monkeypatch.setattr(trial, "at_promised_rate", lambda flow, rate_hz: flow)
    held = Reservation("a", CONTRACT, demand(1.2).demand, 1.2, None, 1.2, "reserved", "for a test", lanes=2)
    with pytest.raises(RateError, match=r"one of them used 0\.95 of a core, and may have 0\.80; what would fit: 640/s"):
        trial.trial(flow(tmp_path), held, 0.0)


class _Tried:
    """A run of two lanes in which all records are done."""

    def __init__(self, records):
        self.done, self.error, self._records = threading.Event(), None, iter([0, records])

    def processes(self):
        return [1, 2]

    def sample(self):
        return Sample(0.0, {}, Histogram(), Histogram(), next(self._records), {}, 0.0)

    def abort(self):
        pass

    def wait(self):
        pass
