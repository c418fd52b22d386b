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
from headwater.errors import RateError, RunError
from headwater.flow.contract import rate_text
from headwater.histogram import Histogram
from headwater.metrics import Sample
from headwater.rate import admission, cgroups, process, trial
from headwater.rate.client import board
from headwater.rate.estimate import Nearest, cores, lanes_for, nearest
from headwater.rate.ledger import Ledger
from headwater.rate.ledger import Reservation as Held
from headwater.rate.messages import End, Granted, Noted, Refused, Settle, Tell
from headwater.rate.refused import NotPromisedError
from headwater.rate.reservation import Reservation
from headwater.rate.windows import DIED, SLOW, WITHOUT_PROCESSOR, Window
from kept_flow import flow, held
from waiting import PATIENCE_S

SPLIT, LIMIT = (Path(__file__).parent / name for name in ("split.py", "limit.py"))
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

    def trial(flow, held, seconds, line):
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


def trial_of(folder, monkeypatch, run, *, cores_by_lane, grade="reserved", line=None):
    """Have a trial of 100 s watch a run whose lanes use so many cores."""
    spent = iter([0.0, 0.0, *(100 * each for each in cores_by_lane)] * 2)
    monkeypatch.setattr(process, "used_s", lambda pid: next(spent))
    monkeypatch.setattr(trial, "time", SimpleNamespace(monotonic=iter([0.0, 100.0] * 2).__next__))
    monkeypatch.setattr(trial, "begin", lambda flow, held, line: run)
    monkeypatch.setattr(trial, "at_promised_rate", lambda flow, rate_hz: flow)
    held = Reservation("a", CONTRACT, demand(1.2).demand, 1.2, None, 1.2, grade, "for a test", lanes=2)
    return trial.trial(flow(folder), held, 0.0, line)


def test_a_lane_that_has_more_to_do_than_one_may_is_found_out_by_the_trial(tmp_path, monkeypatch):
    """Where the work cannot be split evenly, all of it may be little enough and one lane's part too much."""
    with pytest.raises(RateError, match=r"one of them used 0\.95 of a core, and may have 0\.80; what would fit: 640/s"):
        trial_of(tmp_path, monkeypatch, _Tried(), cores_by_lane=(1.1 * 0.95, 0.1))


def test_several_lanes_are_tried_with_a_tenth_more_than_is_promised(tmp_path, monkeypatch):
    line = _Book()
    assert trial_of(tmp_path, monkeypatch, _Tried(), cores_by_lane=(0.66, 0.44), line=line) == pytest.approx(1.0)
    assert {(each.id, each.kept, each.broken) for each in line.told} == {("a", 0, 0)}  # and so have real time
    with pytest.raises(RateError, match=r"took in 91% of that rate and a tenth more, with 1\.80 cores.*: 680/s"):
        trial_of(tmp_path, monkeypatch, _Tried(hz=1000), cores_by_lane=(0.9, 0.9))


@pytest.mark.parametrize(
    ("grade", "cause", "laps", "refused"),
    [
        ("reserved", SLOW, [True, True], True),
        ("reserved", SLOW, [True, False], False),  # once may be chance
        ("reserved", SLOW, [False], False),
        ("reserved", WITHOUT_PROCESSOR, [True, True], True),  # which lanes take from each other
        ("none", WITHOUT_PROCESSOR, [True, True], False),  # by others: the grade tells of it
    ],
)
def test_a_window_that_breaks_again_in_a_trial_of_several_lanes_has_it_refused(
    tmp_path, monkeypatch, grade, cause, laps, refused
):
    whole, broken = Window(0, 1100, 0, 0.0), Window(1, 1100, 7, 0.0, cause)
    run = _Tried([[whole, broken] if breaks else [whole] for breaks in laps])
    if refused:
        with pytest.raises(
            RateError, match=r"1 of 2 windows broke at that rate and a tenth more .*what would fit: 760/s"
        ):
            trial_of(tmp_path, monkeypatch, run, cores_by_lane=(0.5, 0.5), grade=grade)
    else:
        assert trial_of(tmp_path, monkeypatch, run, cores_by_lane=(0.5, 0.5), grade=grade) == pytest.approx(1 / 1.1)


@pytest.mark.parametrize("able_hz", [620.0, 800.0, 1000.0, 1200.0])
def test_what_is_offered_in_several_lanes_has_passed_a_trial_and_is_admitted_when_asked_for(
    tmp_path, monkeypatch, able_hz
):
    """Lanes cost each other what no estimate knows: by this one two lanes could have 1,333/s."""
    tried_hz = []

    def trial_that_breaks(flow, held, seconds, line):
        tried_hz.append(held.contract.rate_hz)
        if held.contract.rate_hz > able_hz:
            raise NotPromisedError("too much", Nearest(able_hz / 1.3, None))
        return held.cores / 1.3

    monkeypatch.setattr(admission, "trial", trial_that_breaks)
    monkeypatch.setattr(admission, "most_lanes", lambda flow: 2)

    def ask(hz):
        return admission.admit(flow(tmp_path), Contract(hz, 1.0), _Book(), profile=demand(1.2))

    with pytest.raises(NotPromisedError) as refused:
        ask(5000.0)  # by the estimate alone
    offered_hz = refused.value.nearest.offered_hz
    if able_hz > 800:  # what fits into one lane is promised by that lane's own trial
        assert any(hz == pytest.approx(admission.SURE * refused.value.nearest.rate_hz) for hz in tried_hz)
    assert 0.65 * able_hz <= offered_hz <= able_hz
    assert ask(offered_hz).contract.rate_hz == offered_hz
    assert f"what would fit: {rate_text(offered_hz)}" in str(refused.value)


@pytest.mark.parametrize("broke", [NotPromisedError("nothing came through"), RunError("a step broke")])
def test_where_no_trial_passes_nothing_is_offered(tmp_path, monkeypatch, broke):
    def no_trial_passes(flow, held, seconds, line):
        raise broke

    monkeypatch.setattr(admission, "trial", no_trial_passes)
    monkeypatch.setattr(admission, "most_lanes", lambda flow: 2)
    with pytest.raises(NotPromisedError, match="no rate would fit") as refused:
        admission.admit(flow(tmp_path), Contract(5000.0, 1.0), _Book(), profile=demand(1.2))
    assert refused.value.nearest.rate_hz is None


@several
def test_what_is_offered_after_a_trial_in_two_lanes_is_promised_and_runs_in_them(home):
    """What lanes of a process get of a processor is measured in its own time, whatever else runs."""
    if cgroups.find() is None:
        pytest.skip("no cpu control group can be made here (not root, and none was handed down)")
    environment = {**os.environ, "HEADWATER_RUNTIME": str(home)}
    done = subprocess.run(
        [sys.executable, str(LIMIT)], env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    saw = json.loads(done.stdout)
    assert len(saw["asked"]) >= 2, saw  # by the estimate it had been promised that
    assert saw["asked"] == sorted(saw["asked"], reverse=True)
    assert saw["contract"]["rate_hz"] == saw["asked"][-1]
    assert 1.3 * saw["measured"] <= saw["reserved_cores"] + 1e-3
    assert saw["reserved_cores"] <= 0.8 * saw["lanes"] + 1e-3
    assert saw["windows"] >= 1


class _Book:
    """A supervisor's ledger of two cores."""

    def __init__(self):
        self._ledger = Ledger(2.0)
        self.told = []

    def say(self, message):
        if isinstance(message, Tell):
            self.told.append(message)
            return Noted(known=True)
        if isinstance(message, End):
            self._ledger.free(message.id)
            return Noted(known=True)
        if isinstance(message, Settle):
            no = self._ledger.settle(message.id, message.cores)
        else:
            held = Held("a", message.flow, message.contract, message.cores, 1, 1, lanes=message.lanes)
            no = self._ledger.ask(held)
        if no is not None:
            return Refused(no.required, no.left, [], no.why)
        return Granted("a", message.cores, "reserved", "for a test")


class _Tried:
    """A run of two lanes in which so many records are done each second, and windows are as they are given, by laps."""

    def __init__(self, laps=([],), hz=1100):
        self.done, self.error = threading.Event(), None
        self.done.set()
        self.windows = SimpleNamespace(second=lambda now_ns: -1, judged=iter(laps).__next__)
        self._records = iter([0, 100 * hz] * 2)

    def processes(self):
        return [1, 2]

    def sample(self):
        return Sample(0.0, {}, Histogram(), Histogram(), next(self._records), {}, 0.0)

    def abort(self):
        pass

    def wait(self):
        pass
