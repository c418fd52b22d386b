"""The profile of a contract has every figure of the paper, and a file that older and newer readers understand."""

import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from headwater import Contract, Flow, Profile, col, io
from headwater.cli import add_commands, app
from headwater.engine.profiler import sample_sources
from headwater.engine.workers import WorkerPool
from headwater.flow.profile import Demand, StepDemand
from headwater.rate import demanding, invocations, profiler
from headwater.rate.chain import dry
from headwater.rate.profiler import engine_per_tick

FLOW = """
from headwater import Flow, col, io
flow = Flow("tanks").contract("2 000/s", "80 ms")
levels = flow.read("levels", io.Generate(lambda n: {"height": n % 100 * 1.0}, {"height": float}, rate=1000))
levels.filter("low", col.height < 25).write("alarms", io.Discard())
"""


def tanks(sink=None) -> Flow:
    flow = Flow("tanks")
    made = [{"height": float(n % 100), "at": 1_000_000 * n} for n in range(4000)]
    levels = flow.read("levels", io.Items(made, {"height": float, "at": int}))
    levels.filter("low", col.height < 25).write("alarms", sink or io.Discard())
    return flow


def test_each_step_has_the_paper_s_figures_and_the_cold_ones_and_sinks_stay_empty():
    sink = io.Collect()
    measured = demanding(tanks(sink), Contract.of("2 000/s", "80 ms"), records=1000, point_s=0.2)
    assert sink.records == []
    demand = measured.demand
    assert demand.tick_s == 0.02
    assert demand.engine_s > 0
    assert 0 <= demand.cooling <= 1
    assert list(demand.steps) == ["levels", "low", "alarms"]
    assert demand.steps["low"].scale == 1.0
    assert demand.steps["alarms"].scale == pytest.approx(0.25, abs=0.02)
    low = demand.steps["low"]
    assert 1 <= low.batch <= 1000
    assert 0 < low.cores <= 1
    assert low.limit_s > 0
    assert low.tick_s + low.record_s > 0
    assert invocations(low, 2000).cores > 0


def test_what_a_file_s_lines_cost_is_measured_and_none_is_written(tmp_path):
    flow = Flow("tanks")
    (tmp_path / "all.csv").write_text("what was there\n")
    levels = flow.read("levels", io.Items([{"height": float(n % 100)} for n in range(4000)], {"height": float}))
    levels.write("alarms", io.JsonLines(tmp_path / "alarms.jsonl"))
    levels.write("all", io.Csv(tmp_path / "all.csv", append=True))
    tried = dry(flow)
    sinks = [tried.steps[name].kind.sink for name in ("alarms", "all")]
    assert [(type(sink), sink.path) for sink in sinks] == [(io.JsonLines, os.devnull), (io.Csv, os.devnull)]
    demand = demanding(flow, Contract.of("2 000/s", "80 ms"), records=1000, point_s=0.2).demand
    assert all(demand.steps[name].record_s + demand.steps[name].tick_s > 0 for name in ("alarms", "all"))
    assert [each.name for each in tmp_path.iterdir()] == ["all.csv"]
    assert (tmp_path / "all.csv").read_text() == "what was there\n"


def test_of_a_rate_that_no_core_can_do_only_what_one_could_is_tried(monkeypatch):
    tried = []
    monkeypatch.setattr(profiler, "tick_by_turns", lambda points, seconds: tried.extend(points))
    demand = demanding(tanks(), Contract.of("1 000 000 000 000/s", "80 ms"), records=1000, point_s=0.01).demand
    assert demand.rate_hz == 1e12
    assert 1 <= max(point.count for point in tried) < 3 * 1e12 * demand.tick_s / 100


def test_points_are_measured_by_turns_so_that_a_machine_that_grows_slower_is_so_for_all(monkeypatch):
    """Each in a second of its own, what a promise needs was off by a third when that second was a slow one."""
    turns = []
    monkeypatch.setattr(profiler.Point, "tick", lambda point, ticks, warm: turns.append((point.count, ticks, warm)))
    points = [profiler.Point(tanks(), sample_sources(tanks(), 100), count, 0.01) for count in (1, 3)]
    profiler.tick_by_turns(points, 0.5)
    assert turns == [(count, 10, turn == 0) for turn in range(5) for count in (1, 3)]


def test_a_tick_that_warms_up_is_not_counted_nor_is_the_first_of_a_turn():
    point = profiler.Point(tanks(), sample_sources(tanks(), 1000), 40, 0.001)
    point.tick(3, warm=True)
    assert not point.spent
    point.tick(3, warm=False)
    point.tick(4, warm=False)
    point.close()
    assert [records for records, _ in point.spent["levels"]] == [40] * 5
    records, spent_s = point.mean("low")
    assert records == 40
    assert spent_s > 0


def test_what_starting_a_run_takes_is_not_what_a_tick_costs(monkeypatch):
    plain = WorkerPool.start

    def dearly(run):
        until_s = time.process_time() + 0.5
        while time.process_time() < until_s:
            pass
        return plain(run)

    monkeypatch.setattr(WorkerPool, "start", dearly)
    assert 0 < engine_per_tick(0.02, 0.2) < 0.5 / 20  # there are some ten ticks, and nothing to do


def test_how_dear_a_tick_grows_with_its_length_is_found_by_a_look_at_another(monkeypatch):
    """Where a tick of 5 ms costs half of what one of 20 ms does, it grows with the root of its length."""
    step = StepDemand(1.0, 1, 1.0, 0.0, 1e-6, 800e-6)
    demand = Demand(10_000, 0.02, 200e-6, {"low": step})
    means = {"low": (50, 400e-6 + 50 * 1e-6), "dead letters": (0, 0.0)}
    there = SimpleNamespace(tick_s=0.005, spent=means, mean=means.__getitem__)
    assert profiler._cooling(demand, there, 100e-6) == pytest.approx(0.5)
    tried = []
    monkeypatch.setattr(profiler, "tick_by_turns", lambda points, seconds: tried.extend(points))
    demanding(tanks(), Contract.of("2 000/s", "80 ms"), records=100, point_s=0.01)
    assert [(point.count, point.tick_s) for point in tried] == [(40, 0.02), (120, 0.02), (10, 0.005)]


def test_the_file_holds_it_and_a_profile_without_it_is_still_read(tmp_path):
    measured = demanding(tanks(), Contract.of("2 000/s"), records=500, point_s=0.1)
    measured.write(tmp_path / "new.json")
    assert Profile.load(tmp_path / "new.json") == measured
    before = json.loads((tmp_path / "new.json").read_text())
    del before["demand"]
    (tmp_path / "old.json").write_text(json.dumps(before))
    old = Profile.load(tmp_path / "old.json")
    assert old.demand is None
    assert old.steps == measured.steps


def test_the_command_takes_the_flow_s_own_contract_and_prints_both_reckonings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tanks.py").write_text(FLOW)
    add_commands()
    done = CliRunner().invoke(app, ["profile", "tanks.py", "--contract", "--records", "500", "--output", "p.json"])
    assert done.exit_code == 0, done.output
    assert "a promise of 2,000/s, a tick of 20 ms" in done.output
    assert "Storm-RTS would reserve" in done.output
    assert Profile.load(Path("p.json")).demand.rate_hz == 2000


def test_a_rate_without_contract_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tanks.py").write_text(FLOW)
    done = CliRunner().invoke(app, ["profile", "tanks.py", "--rate", "5/s"])
    assert "say --contract too" in str(done.exception)
    done = CliRunner().invoke(app, ["profile", "tanks.py", "--contract", "--rate", "5000"])
    assert "--rate: cannot read rate '5000'" in str(done.exception)
