"""A promise, for real: kept beside busy neighbours, broken without protection, and refused with the numbers."""

import json
import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from promised import demand, flow
from promising import until
from typer.testing import CliRunner

from headwater import Contract, Flow, io, rate
from headwater.cli import add_commands, app
from headwater.errors import RateError
from headwater.rate import admission, cgroups, trial
from headwater.rate.client import Client, board
from headwater.rate.lane import begin
from headwater.rate.messages import Granted

SHARED = (
    "import asyncio, sys\nfrom pathlib import Path\nfrom headwater.rate.grade import Grade\n"
    "from headwater.rate.supervisor import serve\nasyncio.run(serve(Path(sys.argv[1]), grade=Grade('shared', '')))"
)


def ran(home, *arguments):
    add_commands()
    return CliRunner().invoke(app, list(arguments), env={"HEADWATER_RUNTIME": str(home)})


@pytest.mark.thorough
def test_a_promise_holds_beside_busy_neighbours_and_is_broken_without_protection(home, lane, tmp_path):
    if cgroups.find() is None:
        pytest.skip("no cpu control group can be made here (not root, and none was handed down)")
    unprotected = tmp_path / "unprotected"
    supervisor = subprocess.Popen([sys.executable, "-c", SHARED, str(unprotected)])
    hogs: list[subprocess.Popen] = []
    try:
        until(lambda: board(unprotected))
        lanes = [lane(1000, 25_000, 0.75, 8), lane(1000, 25_000, 0.75, 8, at=unprotected)]
        for each in lanes:
            each.started()
        hogs += [
            subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
            for _ in range(4 * len(os.sched_getaffinity(0)))
        ]
        kept, without = (each.report() for each in lanes)
    finally:
        for each in (*hogs, supervisor):
            each.kill()
            each.wait()
    assert kept["grade"] == "reserved"
    assert without["grade"] in ("shared", "none")  # by how busy the machine was when it asked
    assert kept["kept"] > without["kept"]
    assert sum(without["causes"].values()) > 0
    assert any("processor taken by others" in cause for cause in without["causes"])


def test_what_comes_above_the_promise_is_counted_and_weighs_less(home, lane):
    running = lane(4000, 10, 0.3, 4).started()
    assert until(lambda: [each for each in board(home).lanes if each.above])
    assert running.report()["above"] > 0


def test_what_comes_above_the_promise_is_shed_where_that_is_asked_for(home, lane):
    report = lane(4000, 10, 0.3, 3, "shed").report()
    assert list(report["shed"]) == ["above the promised rate"]
    assert report["shed"]["above the promised rate"] == report["above"] > 0
    assert report["windows"] >= 2  # those before its end count, however late they are looked at


def test_a_lane_that_sheds_what_is_above_does_no_more_than_was_promised_and_keeps_its_weight(home, lane):
    lane(4000, 10, 0.3, 60, "shed").started()
    assert until(lambda: [each for each in board(home).lanes if each.kept + each.broken >= 2])
    assert [each.above for each in board(home).lanes] == [False]


def test_what_comes_above_the_promise_waits_where_that_is_asked_for(home, lane):
    report = lane(4000, 10, 0.3, 3, "block").report()
    assert report["shed"] == {}
    assert report["above"] <= 0.05 * 1000 * report["seconds"]


def policies(pid) -> dict[str, int]:
    """Threads by name, with the policy that the scheduler has for them."""
    found = {}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        number = int(thread.name)
        with suppress(FileNotFoundError, ProcessLookupError):  # it may have ended meanwhile
            found[(thread / "comm").read_text().strip() + f" {number}"] = os.sched_getscheduler(number)
    return found


def test_a_lane_runs_in_real_time_on_request_but_for_what_it_starts(home, lane):
    if os.geteuid() != 0:
        pytest.skip("real time needs root or CAP_SYS_NICE")
    running = lane(1000, 10, 0.3, 3, "best effort", "realtime").started()
    by_policy = policies(running.process.pid)
    own = next(policy for name, policy in by_policy.items() if name.endswith(f" {running.process.pid}"))
    assert own in (os.SCHED_OTHER, os.SCHED_RR | os.SCHED_RESET_ON_FORK)  # by the supervisor, and not by what it starts
    assert os.SCHED_RR in {policy & ~os.SCHED_RESET_ON_FORK for policy in by_policy.values()}
    assert running.report()["windows"] > 0


def test_a_flow_without_a_promise_gives_way_to_those_that_have_one(home, lane, tmp_path):
    (tmp_path / "few.py").write_text(
        "import os\nfrom headwater import Flow, io\nflow = Flow('few')\n"
        "def policy(record):\n    return {'n': os.sched_getscheduler(0)}\n"
        "one = flow.read('a', io.Items([{'n': 1}])).map('policy', policy)\n"
        f"one.write('out', io.JsonLines({str(tmp_path / 'out.jsonl')!r}))\n"
    )
    command = [sys.executable, "-m", "headwater", "run", str(tmp_path / "few.py")]
    environment = {**os.environ, "HEADWATER_RUNTIME": str(home)}
    written = []
    for promised in (False, True):
        if promised:
            lane(1000, 10, 0.1, 60).started()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        written.append(json.loads((tmp_path / "out.jsonl").read_text())["n"])
        assert ("runs at idle priority" in done.stderr) == promised
    assert written == [os.SCHED_OTHER, os.SCHED_IDLE]


def test_a_user_who_may_reserve_nothing_gets_the_grade_shared_and_is_told_what_would_help():
    if os.geteuid() != 0:
        pytest.skip("only root can be somebody else")
    code = (
        "import os; from headwater.rate.grade import grade_here; os.setuid(65534); "
        "g = grade_here(); print(g.name, g.better)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("shared systemd-run --user --scope -p Delegate=cpu")


@pytest.mark.parametrize(("used", "reserved"), [(0.1, 0.15), (0.3, 0.4), (0.4, 0.52)])
def test_what_is_reserved_is_the_estimate_within_what_a_trial_has_shown(used, reserved, monkeypatch):
    monkeypatch.setattr(admission, "trial", lambda *asked: used)
    said = []

    class Line:
        def say(self, message):
            said.append(message)
            return Granted("a", message.cores, "reserved", "for a test")

    held = admission.admit(flow(1000, 10), Contract(1000.0, 0.2), Line(), profile=demand(0.4))
    assert [round(each.cores, 3) for each in said] == [0.4, reserved]
    assert round(held.cores, 3) == reserved


def test_a_refusal_says_what_is_wanted_who_holds_it_and_what_would_fit(home, monkeypatch):
    monkeypatch.setattr("headwater.rate.admission.most_lanes", lambda flow: 1)
    client = Client(home)
    made = flow(1000, 10)
    with pytest.raises(RateError, match=r"wants 1\.60 cores, and one lane may have 0\.80.*would fit: 500/s"):
        rate.start(made, Contract(1000.0, 0.2), profile=demand(1.6), trial_s=0, client=client)
    with pytest.raises(RateError, match=r"one lane may have 0\.80.*would fit: (490|500)/s"):  # far from it, too
        rate.start(made, Contract(50e6, 0.2), profile=demand(1.6), trial_s=0, client=client)
    assert board(home).lanes == []  # nothing is left behind
    client.close()


def test_what_a_trial_has_used_is_what_a_lower_rate_is_offered_by(home, monkeypatch):
    monkeypatch.setattr("headwater.rate.admission.most_lanes", lambda flow: 1)
    monkeypatch.setattr("headwater.rate.admission.trial", lambda *given: 1.25)
    client = Client(home)
    with pytest.raises(RateError, match=r"wants 1\.6[23] cores.*\(its trial used 1\.25\); what would fit: 490/s"):
        rate.start(flow(1000, 10), Contract(1000.0, 0.2), profile=demand(0.4), best_effort=True, client=client)
    client.close()


def test_a_trial_runs_what_the_lane_will_and_what_is_held_for_it_is_held_on(home, monkeypatch):
    """It ran without the gate and the windows that a lane has, and so used less than the lane then did."""
    tried = []
    monkeypatch.setattr(trial, "begin", lambda *given: tried.append(begin(*given)) or tried[0])
    client = Client(home)
    made = flow(1000, 10)
    held = admission.admit(made, Contract(1000.0, 0.2), client, profile=demand(0.1), best_effort=True, trial_s=1.5)
    assert isinstance(tried[0], rate.PromisedRun)
    assert tried[0].promise()["windows"] >= 1
    [lane] = board(home).lanes
    assert (lane.id, lane.cores, lane.kept + lane.broken) == (held.id, held.cores, 0)
    client.close()


def mapping(name, function):
    """Return a flow of a thousand records a second, each of which goes through a function."""
    made = Flow(name)
    source = io.Generate(lambda n: {"n": n}, {"n": int}, rate=1000)
    made.read("numbers", source).map("burn", function).write("out", io.Discard())
    return made


def test_a_trial_that_cannot_keep_up_says_what_it_could(home):
    def slow(record):
        time.sleep(0.003)
        return record

    made, client = mapping("slow", slow), Client(home)
    with pytest.raises(RateError, match=r"took in \d+% of that rate.*(what would fit: \d+/s|no record came through)"):
        rate.start(made, Contract(1000.0, 0.2), profile=demand(0.1), best_effort=True, trial_s=4, client=client)
    client.close()


def test_a_trial_in_which_records_take_longer_than_promised_says_within_what_they_would_fit(home):
    made = Flow("quick")
    made.read("numbers", io.Generate(lambda n: {"n": n}, {"n": int}, rate=1000)).write("out", io.Discard())
    client = Client(home)
    too_long = r"half of its records took longer than [\d.]+ ms, .*what would fit: the same rate within \d+ m?s"
    with pytest.raises(RateError, match=too_long):
        rate.start(made, Contract(1000.0, 1e-6), profile=demand(0.1), best_effort=True, trial_s=1, client=client)
    assert board(home).lanes == []
    client.close()


def test_a_source_that_ends_is_tried_for_as_long_as_any_and_the_rate_offered_fits(home):
    made = Flow("few")
    source = io.Generate(lambda n: {"n": n}, {"n": int, "at": "time"}, rate=500, count=600, time="at")
    made.read("numbers", source).map("same", lambda record: record).write("out", io.Discard())
    client = Client(home)
    with pytest.raises(RateError, match=r"in a trial of [1-9][\d.]* s it took in \d+% of that rate") as refused:
        rate.start(made, Contract(5e6), profile=demand(1e-6), best_effort=True, trial_s=1.0, client=client)
    offered = re.search(r"what would fit: ([\d ]+/s)", str(refused.value))
    assert offered, refused.value
    assert 500 < Contract.of(offered[1]).rate_hz < 5e6
    client.close()


def test_a_trial_that_breaks_down_leaves_nothing_reserved(home):
    def broken(record):
        raise SystemExit("no")

    made, client = mapping("broken", broken), Client(home)
    with pytest.raises(Exception, match=r"no|took in"):
        rate.start(made, Contract(1000.0, 0.2), profile=demand(0.1), best_effort=True, trial_s=0.2, client=client)
    assert board(home).lanes == []
    client.close()


def test_the_command_promises_runs_and_proves_it(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tanks.py").write_text(
        "from headwater import Flow, col, io\nflow = Flow('tanks')\n"
        "made = io.Generate(lambda n: {'x': n % 9 * 1.0}, {'x': float}, rate=500)\n"
        "flow.read('levels', made).filter('low', col.x < 5).write('out', io.Discard())\n"
    )
    asked = ("run", "tanks.py", "--promise", "500/s", "--within", "500ms", "--for", "2s", "--best-effort", "--json")
    command = [sys.executable, "-m", "headwater", *asked]
    done = subprocess.run(
        command, env={**os.environ, "HEADWATER_RUNTIME": str(home)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    promise = json.loads(done.stdout)["promise"]
    assert promise["contract"]["rate_hz"] == 500
    assert promise["windows"] >= 1
    assert "is promised 500/s within 500 ms" in done.stderr
    assert "0.00 of" in ran(home, "status").output


def test_status_without_a_supervisor_says_so(home):
    assert "nothing is promised here" in ran(home, "status").output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--within", "50ms"), "need a rate: --promise RATE"),
        (("--promise", "500"), "did you mean '500/s'"),
        (("--promise", "5/s", "--lanes", "2"), "--lanes means nothing with a promise"),
        (("--promise", "5/s", "--on", "threads"), "means nothing with --on threads: rates are promised on the engine"),
    ],
)
def test_what_a_promise_cannot_go_with_is_told(home, tmp_path, arguments, said):
    (tmp_path / "tanks.py").write_text(
        "from headwater import Flow, io\nflow = Flow('tanks')\n"
        "flow.read('a', io.Items([{'x': 1}])).write('out', io.Discard())\n"
    )
    done = ran(home, "run", str(tmp_path / "tanks.py"), *arguments)
    assert said in str(done.exception)
