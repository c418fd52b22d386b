"""What the experiment `rates` compares: everything that is due comes to the judge once, and lateness is not overlooked."""

import json
import os
import subprocess
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from headwater.clock import now_ns
from headwater.data.batch import Batch, stamped
from headwater.data.schema import Schema
from headwater.flow.profile import Demand, Profile, StepDemand, StepProfile
from headwater.rate import cgroups, process
from headwater_bench.cli.bench import app
from headwater_bench.experiments.rates import (
    admission,
    burst,
    cores,
    cost,
    figures,
    hostile,
    isolation,
    quota,
    scaling,
    sitting,
    two,
)
from headwater_bench.experiments.rates.dhalion import Dhalion
from headwater_bench.experiments.rates.lap import SYSTEMS, Lap, RefusedError, home, together
from headwater_bench.experiments.rates.loads import COPIES, Judge, Offered
from headwater_bench.experiments.rates.scan import running
from headwater_bench.experiments.rates.serverless import Serverless
from headwater_bench.experiments.rates.systems import begin
from waiting import PATIENCE_S

S = 1_000_000_000


def judged(late: dict[int, int], lost: dict[int, int], rate: int = 100, seconds: int = 3):
    """A verdict on `seconds` at a rate, of which some records come late or never, by the second."""
    source, judge = Offered([(0.0, rate)]), Judge()
    source.began_ns = began_ns = now_ns() - (seconds + 1) * S
    due = began_ns + (np.arange(rate * seconds) + 1) * S // rate - 1
    second = (due - began_ns) // S
    for at in range(seconds):
        mine = due[second == at][lost.get(at, 0) :]
        judge._came.append((int(mine[-1]), mine[late.get(at, 0) :]))
        judge._came.append((int(mine[-1]) + S, mine[: late.get(at, 0)]))
    return judge.verdict(source, 1, began_ns, seconds, 1.0)


def test_a_window_is_kept_if_all_that_was_due_came_in_time():
    assert judged({}, {})["kept"] == 1.0
    assert judged({1: 1}, {})["kept_windows"] == 2
    assert judged({}, {0: 5, 2: 50})["kept_windows"] == 1


def test_what_never_came_counts_as_old_as_it_is():
    verdict = judged({}, {1: 50})
    assert verdict["rate_kept"] == pytest.approx(250 / 300, abs=0.01)
    assert verdict["p99_ms"] > 1000


def test_more_than_was_due_is_an_error():
    source, judge = Offered([(0.0, 10)]), Judge()
    source.began_ns = now_ns() - 2 * S
    batch = Batch.of({"n": [0] * 30}, Schema.of({"n": int}))
    judge.write(Batch(batch.columns, 30, stamped(30, source.began_ns + 1)))
    with pytest.raises(AssertionError, match="more came than was due"):
        judge.verdict(source, 1, source.began_ns, 1, 1.0)


@pytest.mark.parametrize("flow", COPIES)
@pytest.mark.parametrize("settings", [{"on": "engine"}, {"on": "threads"}])
def test_dhalion_restarts_with_its_state_and_loses_or_doubles_nothing(flow, settings):
    source, judge = Offered([(0.0, 2000.0)]), Judge()
    never = {"interval_s": 3600.0, **settings}  # scales by itself
    running = Dhalion(Lap(flow, "dhalion", [(0.0, 2000.0)], 1, settings=never), source, judge)
    try:
        assert judge.first.wait(PATIENCE_S)
        for step in list(running.instances)[:2]:
            running._scale(step, 3)
        at_ns = now_ns()
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:  # until it has caught up with what was due while it restarted
            verdict = judge.verdict(source, COPIES[flow], source.began_ns, max(1, (at_ns - source.began_ns) // S), 60.0)
            if verdict["kept"] == 1.0:
                break
            time.sleep(0.1)
    finally:
        running.abort()
    assert verdict["kept"] == 1.0
    assert [each["to"] for each in running.account()["scaled"]] == [3, 3]


def test_a_serverless_function_that_is_behind_gets_a_process_more_started_cold():
    source, judge = Offered([(0.0, 3000.0)]), Judge()
    settings = {"alert_s": 0.0, "interval_s": 0.2, "most": 2}
    running = begin(Lap("pred", "serverless", [(0.0, 3000.0)], 1, settings=settings), source, judge)
    try:
        assert judge.first.wait(PATIENCE_S)
        until = time.monotonic() + PATIENCE_S
        while not running.account()["cold_starts"] and time.monotonic() < until:
            time.sleep(0.05)
        # each function began with one process; the first cold start may have come before anything was looked at
        assert isinstance(running, Serverless)
        assert running.account()["processes"] > len(running._functions)
        assert running.used_s() > 0
    finally:
        running.abort()


def test_containers_hold_what_the_first_rate_needs_and_get_more_with_each_that_is_asked_for(monkeypatch):
    allowed, used_s, now_s = [], iter(0.05 * at for at in range(100)), iter(0.1 * at for at in range(100))
    monkeypatch.setattr(quota, "_SIZED_S", (0.0, 0.001, 0.003))
    monkeypatch.setattr(quota.Quota, "__init__", lambda self: None)
    monkeypatch.setattr(quota.Quota, "allow", lambda self, cores: allowed.append(cores))
    monkeypatch.setattr(quota, "time", SimpleNamespace(monotonic=lambda: next(now_s)))
    made = quota.Containers()
    made.allow(2)
    assert allowed == []  # nothing is known yet
    made.size(lambda: next(used_s), threading.Event())
    made.allow(2)
    assert allowed == pytest.approx([0.6, 1.2])  # half a core, and a fifth more


def test_a_lap_runs_in_a_process_of_its_own_and_says_what_came():
    with home() as at:
        found = together([Lap("pred", "unprotected", [(0.0, 1000.0)], 1, warm_s=0.2, bound_s=5.0)], at)[0]
    assert found["due"] == found["delivered"] == [1000]
    assert found["kept"] == 1.0


def test_neighbours_end_with_all_that_they_have_started(tmp_path):
    code = f"import os, time\nos.fork()\nopen({str(tmp_path)!r} + f'/{{os.getpid()}}', 'w')\ntime.sleep(60)"
    with running(code, 1):
        until = time.monotonic() + PATIENCE_S
        while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < until:
            time.sleep(0.02)
    pids = [int(each.name) for each in tmp_path.iterdir()]
    assert len(pids) == 2
    until = time.monotonic() + PATIENCE_S
    while any(process.began(pid) is not None for pid in pids):
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.thorough
def test_figures_are_drawn_of_what_was_measured(tmp_path):
    lap = {"kept": 1.0, "windows": 2, "kept_windows": 2, "rate_kept": 1.0, "p99_ms": 9.0, "used_cores": 0.1}
    series = {"arrived": [9, 9], "due": [9, 9], "worst_ms": [1.0, 2.0]}
    doubled = {"promised": {**lap, **series, "base_hz": 1.0}, "paper": burst.PAPER, "base_hz": 1.0}
    answer = {
        "admission": {"cases": [{**lap, "reserved": 0.2, "flow": "etl"}, {"flow": "etl", "refused": "no"}]},
        "burst": {**doubled, "at_scale": doubled},
        "hostile": {"python": lap, "kept": 1.0},
    }
    levels = {"levels": [0], "windows_by_level": [2], "kept_by_level": [1.0], "rate_kept_by_level": [1.0]}
    answer["isolation"] = {
        "promised": {**lap, **levels, "p99_ms_by_level": [9.0]},
        "failed": [],
        "paper": isolation.PAPER,
        "cases": [{"level": 0, "flow": "etl", **lap}],
    }
    answer["scaling"] = {
        "throughput_over_input": {"promised": {"2.0": 1.0}},
        "latency_at_70_ms": {"promised": {"pred": 9.0}},
        "paper": scaling.PAPER,
        "cases": [lap],
    }
    answer["cost"] = {
        "etl": {
            "promised_over_default": 0.9,
            "promised_cores": 0.1,
            "default_cores": 0.2,
            "start_s": 0.3,
            "start_parts_s": {"until it is in its process": 0.1},
            "private_mb": 70.0,
        },
        "goals": ["start_s at most 0.5"],
    }
    answer["cores"] = {
        "kept": 1.0,
        "paper": cores.PAPER,
        "cases": [{"flow": "etl", "cores": count, "rate_hz": 1e5 * count} for count in cores.CORES],
        "machine_cases": [{"flow": "etl", "machines": count, "rate_hz": 4e5 * count} for count in cores.MACHINES],
        "two_lanes_over_one": {"etl": {"two_over_one": 1.8, "promised_over_one": 1.9}},
    }
    figures.write(answer, tmp_path)
    names = {each.name for each in tmp_path.iterdir()}
    drawn = {f"{part}.{kind}" for part in answer for kind in ("csv", "png")}
    assert names == drawn | {"machines.csv", "lanes.csv", "burst_at_scale.csv", "burst_at_scale.png"}
    assert isolation.lines(answer["isolation"])[4].split() == ["windows", "2"]
    assert cost.lines(answer["cost"])[1].split() == ["etl", "0.9", "0.1", "0.3", "70.0"]
    assert hostile.lines(answer["hostile"])[1].split() == ["python", "1.0", "1.0", "9.0"]
    mix = {**lap, "system": "promised", "mix": 0, "forced": False}
    broken = {"kept": 0.5, "kept_windows": 1}
    rows = [
        {**mix, "reserved": 0.13},
        {**mix, **broken, "system": "unprotected", "reserved": None},
        {**mix, **broken, "mix": 4, "forced": True},
        {"mix": 1, "forced": False, "refused": "no"},
    ]
    found = admission._answer(rows)
    assert (found["kept"], found["reserved_over_used"], found["unprotected_kept"]) == (1.0, 1.3, 0.5)
    assert (found["forced_broken"], found["forced_mixes_broken"], found["refused"]) == (1.0, [1, 1], 1)
    assert "without a promise: 0.5 kept" in admission.lines({**found, "mixes": 30})[0]


def test_systems_that_adapt_are_given_the_time_and_the_settings_that_suit_them(monkeypatch, tmp_path):
    """A system is judged by what comes out once it had two of its intervals to adapt, with the best of its settings."""
    laps = []

    def lap(each, at):
        laps.append(each)
        able_hz = {"threads": 110_000.0, "dhalion": 50_000.0 * each.settings.get("interval_s", 0)}.get(each.system, 1e6)
        hz = each.promised_hz
        came = [round(min(hz, able_hz))] * each.seconds
        found = {"arrived": came, "due": [round(hz)] * each.seconds, "p50_ms": 5.0, "p99_ms": 9.0, "kept": 1.0}
        return [{**found, "rate_kept": 0.1, "used_cores": 1.0}]

    monkeypatch.setattr(scaling, "together", lambda each, at: lap(each[0], at))
    monkeypatch.setattr(scaling, "of_full_lane", lambda flow, path: path)
    monkeypatch.setattr(scaling, "_promisable_hz", lambda profile, hz: hz)
    found = scaling.measure(False, {"etl": "", "pred": ""}, tmp_path)
    assert found["threads_saturate_at_hz"] == {"etl": 110_000, "pred": 110_000}
    assert found["throughput_over_input"]["threads"] == {"1.0": 1.0, "1.5": 0.6667, "2.0": 0.5}
    assert found["throughput_over_input"]["dhalion"]["2.0"] == 1.0
    longest_s = max(each["interval_s"] for each in isolation.SETTINGS["dhalion"])
    assert all(each.warm_s >= 2 * longest_s for each in laps if each.system in isolation.SETTINGS)
    assert isolation._seconds("dhalion", quick=True) >= 2 * longest_s
    assert scaling.lines(found)[0].split()[-3:] == ["1.0", "1.5", "2.0"]


def test_a_burst_is_shown_at_the_paper_s_rates_and_at_those_that_fill_a_lane(monkeypatch, tmp_path):
    """Who cannot do the first rate is shown at a part of it, and in containers only who has no dent without."""
    steps = {"work": StepDemand(1.0, 1, 1.0, 0.0, 1e-6, 0.0)}
    Profile("pred", "here", {}, demand=Demand(1e4, 0.0125, 0.0, steps)).write(tmp_path / "pred.json")
    able_hz = {"promised": 400_000, "dhalion": 1e9, "serverless": 80_000}
    laps = []

    def lap(each, at):
        laps.append(each)
        peak_hz = max(hz for _, hz in each.rates)
        if each.system == "promised" and peak_hz > able_hz["promised"]:
            raise RefusedError("more than its trial has shown to fit")
        due = [peak_hz / 2, peak_hz] if len(each.rates) > 1 else [peak_hz] * 2
        came = [min(hz, able_hz[each.system]) for hz in due]
        row = {
            "due": due,
            "arrived": came,
            "worst_ms": [1.0, 2.0],
            "kept": 1.0,
            "windows": 2,
            "settings": each.settings,
        }
        return [{**row, "rate_kept": 1.0, "p99_ms": 9.0, "used_cores": 0.1}]

    monkeypatch.setattr(burst, "together", lambda each, at: lap(each[0], at))
    monkeypatch.setattr(cgroups, "find", lambda: object())
    found = burst.measure(False, {"pred": str(tmp_path / "pred.json")}, tmp_path)
    names = [name.replace(" ", "_") for name in burst.SYSTEMS]
    assert list(burst.systems(found)) == names
    assert {row["base_hz"] for row in burst.systems(found).values()} == {35_000}
    scale = found["at_scale"]
    assert list(burst.systems(scale)) == names[:-1]  # the last is dented with all cores already
    assert scale["refused"] == "more than its trial has shown to fit"
    first_hz = 0.9 * two.promisable_hz(Demand(1e4, 0.0125, 0.0, steps), 1) / 2
    assert scale["base_hz"] == scale["dhalion_in_containers"]["base_hz"] == pytest.approx(first_hz / 2)
    assert (scale["serverless"]["base_hz"], scale["serverless"]["dented_s"]) == (pytest.approx(first_hz / 4), 1)
    assert {each.system: each.promise_hz for each in laps[-8:]}["dhalion"] == pytest.approx(first_hz)
    said = burst.lines(found)
    assert said[1].split()[:3] == ["promised", "35,000", "1.0"]
    assert f"{scale['serverless']['base_hz']:,.0f}" in said[-2]


def test_a_part_whose_promise_is_refused_says_so_and_the_others_go_on(monkeypatch, tmp_path):
    def refused(quick, profiles, home):
        raise RefusedError("flow 'etl' cannot be promised that")

    monkeypatch.setattr(sitting, "of_mix", lambda mix, folder, point_s: {})
    monkeypatch.setattr(isolation, "measure", refused)
    monkeypatch.setattr(hostile, "measure", lambda quick, profiles, home: {"kept": 1.0})
    answer = sitting.run(True, None, ["isolation", "hostile"])
    assert answer["failed"] == {"isolation": "flow 'etl' cannot be promised that"}
    assert answer["hostile"] == {"kept": 1.0}
    assert "FAILED isolation: flow 'etl' cannot be promised that" in sitting.table(answer)


def test_what_a_part_has_found_is_written_as_it_ends_and_one_that_hangs_is_told(monkeypatch, tmp_path):
    told = []

    def hangs(quick, profiles, home):
        raise subprocess.TimeoutExpired("lap", 300)

    def interrupted(quick, profiles, home):
        raise KeyboardInterrupt

    monkeypatch.setattr(sitting, "of_mix", lambda mix, folder, point_s: {})
    monkeypatch.setattr(isolation, "measure", hangs)
    found = {"hog": {"kept": 1.0, "windows": 8, "p99_ms": 15.0}}
    monkeypatch.setattr(hostile, "measure", lambda quick, profiles, home: found)
    monkeypatch.setattr(hostile, "lines", lambda part: ["kept"])
    monkeypatch.setattr(cost, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sitting.run(True, tmp_path / "out", ["isolation", "hostile", "cost"], told.append)
    written = json.loads((tmp_path / "out" / "rates.json").read_text())
    assert "timed out after 300 seconds" in written["failed"]["isolation"]
    assert written["hostile"] == found
    assert (tmp_path / "out" / "hostile.csv").read_text().splitlines() == [
        "hostile,kept,windows,p99_ms",
        "hog,1.0,8,15.0",
    ]
    assert "FAILED isolation" in (tmp_path / "out" / "rates.txt").read_text()
    assert told[-1] == "cost, part 3 of 3"


@pytest.mark.thorough
def test_a_lap_that_hangs_is_a_failure_of_that_flow_and_the_rest_is_told(tmp_path, monkeypatch):
    """What lanes do at most is known also where they are promised nothing."""
    steps = {"work": StepDemand(1.0, 1, 1.0, 0.0, 2e-6, 1e-4)}
    profile = Profile("etl", "here", {"work": StepProfile(2e-6)}, demand=Demand(1e4, 0.0125, 2e-4, steps))
    profile.write(tmp_path / "etl.json")
    profile.write(tmp_path / "pred.json")

    def ran(command, *, timeout, **options):
        asked = json.loads(command[-1])
        if asked["flow"] == "pred":
            raise subprocess.TimeoutExpired(command, timeout)
        lanes = asked["lanes"]
        saw = {"lanes": lanes, "done_hz": 6e5 * lanes, "cores": lanes, "windows": 4, "kept": 4}
        if asked["trial_s"] and lanes == 2:
            saw = {"said": "its trial took in half of that", "offer_hz": None}
        return SimpleNamespace(returncode=0, stdout=json.dumps(saw).encode())

    monkeypatch.setattr(subprocess, "run", ran)
    monkeypatch.setattr(cores, "of_full_lane", lambda name, path: path)
    paths = {name: str(tmp_path / f"{name}.json") for name in ("etl", "pred")}
    found = cores.measure(True, paths, tmp_path)
    assert found["throughput_over_4_cores"]["80"] == pytest.approx(20, rel=0.1)
    lanes = found["two_lanes_over_one"]
    assert lanes["etl"]["two_over_one"] == 2.0
    assert "is promised nothing in 2 lanes" in lanes["etl"]["failed"]
    assert "its trial took in half of that" in lanes["etl"]["failed"]
    assert "nothing within 302 s" in lanes["pred"]["failed"]
    said = cores.lines(found)
    assert "at most 2.0 (1,200,000 over 600,000), FAILED: etl is promised nothing in 2 lanes" in said[-3]
    figures.write({"cores": found}, tmp_path / "out")
    assert (tmp_path / "out" / "cores.png").stat().st_size > 0


def test_every_system_is_judged_for_as_long_as_those_that_adapt():
    seconds = {system: isolation._seconds(system, quick=False) for system in SYSTEMS}
    assert seconds.pop("promised") * len(isolation.MIX) == isolation.WINDOWS
    assert set(seconds.values()) == {isolation.ADAPTS_S}


def test_a_part_that_does_not_exist_is_answered_with_those_that_do():
    done = CliRunner().invoke(app, ["rates", "--only", "burts"])
    assert "did you mean 'burst'" in str(done.exception)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor has room for one lane")
def test_a_promised_flow_runs_for_real_in_as_many_lanes_as_are_compared(tmp_path):
    steps = {"messages": StepDemand(1.0, 1, 0.0, 0.0, 2e-6, 1e-4)}
    demand = Demand(1e4, 0.0125, 2e-4, steps)
    Profile("pred", "here", {}, demand=demand).write(tmp_path / "pred.json")
    promise_hz = two.promisable_hz(demand, 2)
    with home() as at:
        saw = two._lap(two.Order("pred", promise_hz, 1000.0, 0.2, str(tmp_path / "pred.json"), 2), at)
    assert saw["lanes"] == 2


def test_two_lanes_are_compared_by_the_rate_that_admission_gives_and_by_how_it_is_kept(tmp_path, monkeypatch):
    """What is refused is asked for as it is offered; a promise that is broken is told, and no lower one looked for."""
    steps = {"work": StepDemand(1.0, 1, 1.0, 0.0, 2e-6, 0.0)}
    Profile("etl", "here", {}, demand=Demand(1e4, 0.0125, 0.0, steps)).write(tmp_path / "etl.json")

    def run(asked, home):
        full = asked.offered_hz > asked.promise_hz
        if not full and asked.promise_hz > 480_000:
            return {"said": "too much", "offer_hz": 0.9 * asked.promise_hz}
        if not full and asked.lanes == 1 and asked.promise_hz > 280_000:
            return {"lanes": 2}  # its trial has found it too dear for one
        kept = asked.lanes == 1
        done_hz = 6e5 * asked.lanes if full else asked.offered_hz
        return {"lanes": asked.lanes, "done_hz": done_hz, "cores": 1.0, "windows": 12, "kept": 12 if kept else 9}

    monkeypatch.setattr(two, "_run", run)
    found = two.measure(["etl"], 4, 1, {"etl": str(tmp_path / "etl.json")}, tmp_path)["etl"]
    first_hz = two.promisable_hz(Profile.load(tmp_path / "etl.json").demand, 2)
    assert found["two_over_one"] == 2.0
    assert found["two_promised_hz"] == pytest.approx(0.81 * first_hz, abs=1)
    assert [hz for hz, _ in found["two_refused"]] == [
        pytest.approx(first_hz, abs=1),
        pytest.approx(0.9 * first_hz, abs=1),
    ]
    assert (found["two_offers_refused"], found["one_offers_refused"]) == (1, 0)
    assert (found["two_kept"], found["one_kept"]) == (0.75, 1.0)
    assert found["one_promised_hz"] < 280_000
    assert "9 of 12 and 12 of 12 windows kept" in cores._for_real("etl", found)


def test_simulated_machines_promise_in_proportion_to_their_cores(tmp_path, monkeypatch):
    monkeypatch.setattr(cores, "_two_lanes", lambda quick, profiles, home: {})
    steps = {"work": StepDemand(1.0, 1, 1.0, 0.0, 2e-6, 1e-4)}
    profile = Profile("etl", "here", {"work": StepProfile(2e-6)}, demand=Demand(1e4, 0.0125, 2e-4, steps))
    profile.write(tmp_path / "etl.json")
    found = cores.measure(True, {"etl": str(tmp_path / "etl.json")}, tmp_path)
    assert found["kept"] == 1.0
    assert found["throughput_over_4_cores"]["80"] == pytest.approx(20, rel=0.1)
    assert cores.lines(found)[0].split()[-1] == "80"
