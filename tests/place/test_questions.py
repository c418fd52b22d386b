"""Questions about a placement, asked on the command line, held against brute force and the Python API."""

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from headwater import Profile, StepProfile
from headwater import net as nets
from headwater.cli import add_commands, app
from headwater.cli.locate import find_flow
from headwater.errors import HeadwaterError, PlacementError
from headwater.net.edit import with_devices
from headwater.place import Budget, Constraints, Model, Objective, best, constrain, exact, score, violations
from headwater.place.explain import slower
from headwater.place.fleet import Fleet
from headwater.place.from_flow import problem_of
from headwater.place.merge import merge
from headwater.place.repair import repair
from headwater.place.what_if import front, headroom
from headwater.place.why import why

from .strategies import queue_problem

FLOW = """
from headwater import Flow, col, io
flow = Flow("{name}")
sound = flow.read("levels", io.Items([], {{"height": float}})).filter("sound", col.height >= 0)
sound.filter("low", col.height < 9).write("alarms", io.Discard())
"""
FARM = """
name = "farm"
[classes.gateway]
cpu_ips = 5e9
memory_bytes = 1e9
access_bps = 2e6
[classes.rented]
cpu_ips = 3e11
cloud = true
price_per_hour = 0.2
[wan]
kind = "gateways"
[[zones]]
name = "barn"
up_s = 0.004
devices = [{class = "gateway", count = 2, lan_s = 0.001}]
[[zones]]
name = "cloud"
up_s = 0.02
devices = [{class = "rented"}]
"""
RATE = 1500.0
ENDS = {"levels": "barn/0", "alarms": "barn/1"}
PINS = tuple(text for step, at in ENDS.items() for text in ("--pin", f"{step}={at}"))


def profile(name, state=0):
    steps = {
        "levels": StepProfile(0.0, bytes_out=50.0),
        "sound": StepProfile(300e-6, bytes_in=50.0, bytes_out=50.0, state_bytes=state),
        "low": StepProfile(250e-6, selectivity={"out": 0.1}, bytes_in=50.0, bytes_out=50.0, state_bytes=state),
        "alarms": StepProfile(1e-6),
    }
    return Profile(name, "gateway", steps)


@pytest.fixture
def farm(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("tanks", "silos"):
        Path(f"{name}_flow.py").write_text(FLOW.format(name=name))
        profile(name, state=1000).write(Path(f"{name}.json"))
    Path("farm.toml").write_text(FARM)
    return nets.read("farm.toml")


def problem(net, name="tanks", rate=RATE, pins=None):
    constraints = Constraints(pins=ENDS if pins is None else pins)
    flow = find_flow(f"{name}_flow.py")
    return problem_of(flow, net, profile(name, state=1000), rate, model=Model.SHARED, constraints=constraints)


def run(*arguments):
    add_commands()
    return CliRunner().invoke(app, [str(a) for a in arguments])


def plan(*arguments, pins=PINS, rate=RATE, flow=("tanks_flow.py",)):
    profiles = [text for name in flow for text in ("--profile", name.replace("_flow.py", ".json"))]
    return run("plan", *flow, "farm.toml", *profiles, "--model", "shared", "--rate", rate, *pins, *arguments)


def everything(asked, goal):
    """Every valid placement with its value, by brute force."""
    free = np.flatnonzero(asked.pinned < 0)
    for chosen in itertools.product(range(len(asked.net)), repeat=len(free)):
        device = asked.pinned.copy()
        device[free] = chosen
        if not violations(asked, device.tolist()):
            yield goal.value(score(asked, device)), device


# -- why -------------------------------------------------------------------------------------------------------------------


def test_why_tells_of_each_step_what_the_next_best_device_costs(farm):
    ran = plan("--why", "--json", "--objective", "critical")
    assert ran.exit_code == 0, ran.output
    document, asked, goal = json.loads(ran.stdout), problem(farm), Objective.parse("critical")
    assert [row["step"] for row in document["why"]] == list(asked.steps)
    at = np.array([farm.device(document["placement"][s]) for s in asked.steps])
    value = goal.value(score(asked, at))
    assert document["value"] == pytest.approx(value)
    for row in document["why"]:
        step = asked.step(row["step"])
        assert row["pinned"] == (asked.pinned[step] >= 0)
        if row["pinned"]:
            continue
        moved = [np.where(np.arange(len(at)) == step, d, at) for d in range(len(farm)) if d != at[step]]
        valid = [goal.value(score(asked, m)) for m in moved if not violations(asked, m.tolist())]
        assert row["next_best"]["value"] == pytest.approx(min(valid))
        assert row["next_best"]["worse_by"] == pytest.approx(min(valid) - value)
        for other in row["forbidden"]:
            there = np.where(np.arange(len(at)) == step, farm.device(other["device"]), at)
            assert goal.value(score(asked, there)) < value
            assert str(violations(asked, there.tolist())[0]) == other["because"]
    shown = plan("--why", "--objective", "critical").output
    assert "sound" in shown
    assert "it is pinned there" in shown
    assert "next best is" in shown


@pytest.mark.parametrize("seed", range(12))
def test_why_says_which_constraint_forbids_a_better_device(seed):
    asked = queue_problem(seed, n=5, net=nets.cloud_edge(1, 2, 2, seed=seed), dense=True)
    found = exact.solve(asked)
    if found.device is None:
        return
    for reason in why(found):
        step = asked.step(reason.step)
        if reason.pinned:
            continue
        better = {}
        for d in range(len(asked.net)):
            there = np.where(np.arange(len(asked.steps)) == step, d, found.device)
            broken, value = violations(asked, there.tolist()), found.objective.value(score(asked, there))
            if broken and value < found.value:
                better[broken[0].kind] = min(value, better.get(broken[0].kind, np.inf))
        assert sorted(better.values()) == pytest.approx([e.value for e in reason.forbidden])
        assert reason.next_best is None or reason.next_best.worse_by >= -1e-12  # it is the optimum


def test_steps_that_must_share_a_device_are_moved_together():
    asked = queue_problem(3, n=5, net=nets.cloud_edge(1, 2, 2, seed=3))
    pair = tuple(np.flatnonzero(asked.pinned < 0)[:2].tolist())
    found = exact.solve(dataclasses.replace(asked, together=(pair,)))
    for reason in (r for r in why(found) if asked.step(r.step) in pair):
        assert reason.next_best is not None
        assert not any("share a device" in e.because for e in reason.forbidden)


# -- what if ---------------------------------------------------------------------------------------------------------------


def test_adding_a_device_shows_before_and_after(farm):
    """Two gateways are nearly full; a faster device beside them takes the steps, although it is a hop more."""
    ran = plan("--add", "barn=rented", "--objective", "critical", "--json", rate=3100.0)
    assert ran.exit_code == 0, ran.output
    document, goal = json.loads(ran.stdout), Budget(time_s=10, objective=Objective.parse("critical"))
    assert document["before"]["value"] == pytest.approx(exact.solve(problem(farm, rate=3100.0), goal).value)
    larger = with_devices(farm, "barn", "rented")
    after = exact.solve(problem(larger, rate=3100.0), goal)
    assert document["after"]["value"] == pytest.approx(after.value)
    assert document["after"]["value"] == pytest.approx(
        min(v for v, _ in everything(problem(larger, rate=3100.0), goal.objective))
    )
    assert document["better_by"] == pytest.approx(document["before"]["value"] - document["after"]["value"])
    assert document["better_by"] > 0
    assert {move["step"] for move in document["moved"]} <= {"sound", "low"}
    assert document["moved"]
    shown = plan("--add", "barn=rented", "--objective", "critical", rate=3100.0).output
    assert "before" in shown
    assert "after" in shown


def test_adding_nothing_of_use_changes_nothing(farm):
    document = json.loads(plan("--add", "cloud=gateway", "--objective", "critical", "--json").stdout)
    assert document["better_by"] == pytest.approx(0)
    assert document["moved"] == []


def test_what_did_not_fit_may_fit_with_one_more(farm):
    crowded = ("--close", "cloud", "--time", "2", "--no-explain")
    alone = plan(*crowded, "--json", rate=3500.0)
    assert alone.exit_code == 1
    more = plan(*crowded, "--add", "barn=gateway*2", "--json", rate=3500.0)
    assert more.exit_code == 1  # one step alone is too fast for a gateway
    fits = plan(*crowded, "--add", "barn=ryzen-1800x", "--json", rate=3500.0)
    assert fits.exit_code == 0, fits.output
    assert json.loads(fits.stdout)["before"]["status"] == "infeasible"


# -- several flows ----------------------------------------------------------------------------------------------------------

BOTH = ("tanks_flow.py", "silos_flow.py")
BOTH_ENDS = ("tanks/levels=barn/0", "silos/levels=barn/1", "tanks/alarms=barn/1", "silos/alarms=barn/0")
BOTH_PINS = tuple(text for end in BOTH_ENDS for text in ("--pin", end))


def both(net, rate=RATE):
    tanks = problem(net, "tanks", rate, {"levels": "barn/0", "alarms": "barn/1"})
    silos = problem(net, "silos", rate, {"levels": "barn/1", "alarms": "barn/0"})
    return tanks, silos


def test_several_flows_are_placed_together_and_as_well_as_can_be(farm):
    ran = plan("--json", flow=BOTH, pins=BOTH_PINS)
    assert ran.exit_code == 0, ran.output
    document, whole = json.loads(ran.stdout), merge(both(farm))
    goal = Objective.parse(document["objective"])
    least, _ = min(everything(whole, goal), key=lambda found: found[0])
    assert document["value"] == pytest.approx(least, rel=1e-6)
    at = [farm.device(document["placement"][s]) for s in whole.steps]
    assert violations(whole, at) == []
    assert document["flows"]["silos"]["low"] == document["placement"]["silos/low"]


def test_together_is_never_worse_than_one_after_the_other(farm):
    tanks, silos = both(farm)
    fleet = Fleet(farm)
    values = [fleet.add(p, Budget(time_s=60)).device for p in (tanks, silos)]
    one_by_one = np.concatenate(values)
    whole = merge([tanks, silos])
    found = best.solve(whole, Budget(time_s=60))
    assert found.value <= found.objective.value(score(whole, one_by_one)) * (1 + 1e-9)


def test_limits_count_the_load_of_all_flows(farm):
    """Each flow alone fits beside its sensors, both together do not."""
    pins = (*BOTH_PINS, "--close", "cloud", "--time", "2", "--no-explain", "--json")
    assert plan("--close", "cloud", "--json", rate=2500.0).exit_code == 0
    assert plan(*pins, flow=BOTH, pins=(), rate=2500.0).exit_code == 1


def test_a_step_may_be_named_without_its_flow_only_if_that_is_clear(farm):
    with pytest.raises(PlacementError, match="several flows have a step 'levels': say which of"):
        raise plan("--json", flow=BOTH).exception
    with pytest.raises(PlacementError, match="two flows are called 'tanks'"):
        raise plan(flow=("tanks_flow.py", "tanks_flow.py"), pins=()).exception
    with pytest.raises(PlacementError, match=r"a rate is given for 'tank/levels'.*did you mean 'tanks/levels'"):
        raise plan(flow=BOTH, pins=BOTH_PINS, rate="tank/levels=3").exception


def test_flows_may_have_rates_of_their_own(farm):
    pins = (*BOTH_PINS, "--rate", "silos/levels=10", "--json")
    document = json.loads(plan(flow=BOTH, pins=pins, rate="tanks/levels=1000").stdout)
    busy = {row["device"]: row["utilisation"] for row in document["devices"]}
    assert sum(busy.values()) < 0.6  # 1,000 records/s fill half a gateway, ten next to nothing


# -- repair ----------------------------------------------------------------------------------------------------------------


def test_a_loss_moves_only_what_must_move(farm):
    pins = ("--pin", "levels=barn/0", "--objective", "critical")
    old = plan("--json", pins=(*pins, "--pin", "low=barn/1"))
    Path("old.json").write_text(old.stdout)
    was = json.loads(old.stdout)["placement"]
    ran = plan("--from", "old.json", "--lost", "barn/1", "--json", pins=pins)
    assert ran.exit_code == 0, ran.output
    document = json.loads(ran.stdout)
    asked = constrain(problem(farm, pins={"levels": "barn/0"}), Constraints(closed=frozenset({"barn/1"})))
    before = np.array([farm.device(was[s]) for s in asked.steps])
    fewest = min(int((d != before).sum()) for _, d in everything(asked, Objective.parse("critical")))
    assert len(document["moves"]) == fewest
    assert {move["step"] for move in document["moves"]} == {s for s, d in was.items() if d == "barn/1"}
    assert all(move["from"] == "barn/1" for move in document["moves"])
    assert document["state_bytes_moved"] == 1000 * sum(m["step"] in ("sound", "low") for m in document["moves"])
    assert any("is lost" in text for text in document["broken"])
    assert {s: d for s, d in document["placement"].items() if was[s] != "barn/1"} == {
        s: d for s, d in was.items() if d != "barn/1"
    }
    shown = plan("--from", "old.json", "--lost", "barn/1", pins=pins).output
    assert "the old placement: step 'low' is on 'barn/1', which is lost" in shown


def test_a_higher_rate_moves_what_no_longer_fits(farm):
    Path("old.json").write_text(plan("--json", pins=(*PINS, "--pin", "sound=barn/0", "--pin", "low=barn/0")).stdout)
    same = json.loads(plan("--from", "old.json", "--json").stdout)
    assert same["moves"] == []
    assert same["broken"] == []
    grown = json.loads(plan("--from", "old.json", "--json", rate=2500.0).stdout)
    assert len(grown["moves"]) == 1
    assert any("100 % is all it has" in text for text in grown["broken"])


@pytest.mark.parametrize("seed", range(20))
def test_a_repair_makes_as_few_moves_as_brute_force(seed):
    asked = queue_problem(seed, n=5, net=nets.cloud_edge(1, 2, 2, seed=seed), dense=True)
    old = best.solve(asked, Budget(time_s=0.2))
    if old.device is None:
        return
    changed = slower(asked, 1.6)
    ways = [int((d != old.device).sum()) for _, d in everything(changed, old.objective)]
    found = repair(changed, old.device, Budget(time_s=1))
    assert (found.device is None) == (not ways)
    if ways:
        assert int((found.device != old.device).sum()) == min(ways)


# -- size ------------------------------------------------------------------------------------------------------------------


def size(*arguments, rate=RATE, pins=PINS):
    asked = ("--profile", "tanks.json", "--model", "shared", "--rate", rate, *pins)
    return run("size", "tanks_flow.py", "farm.toml", *asked, *arguments)


def test_size_finds_the_fewest_devices_for_a_latency(farm):
    goal = Objective.parse("devices")
    for latency, seconds in (("200ms", 0.2), ("10ms", 0.01)):
        ran = size("--latency", latency, "--json")
        valid = [v for v, d in everything(problem(farm), goal) if score(problem(farm), d).critical <= seconds]
        if not valid:
            assert ran.exit_code == 1
            continue
        assert ran.exit_code == 0, ran.output
        document = json.loads(ran.stdout)
        assert document["plan"]["measures"]["devices"] == min(valid)
        assert document["plan"]["measures"]["critical"] <= seconds


def test_size_says_how_far_rates_can_grow_and_what_stops_them(farm):
    document = json.loads(size("--latency", "200ms", "--json").stdout)
    at = np.array([farm.device(document["plan"]["placement"][s]) for s in problem(farm).steps])
    limit = ((("critical", 1.0),), 0.2)
    bounded = dataclasses.replace(problem(farm), at_most=(limit,))
    assert document["room"]["as_placed"] == pytest.approx(headroom(bounded, at), rel=1e-3)
    assert document["room"]["stopped_by"]
    most = document["room"]["if_steps_move"]
    assert most >= document["room"]["as_placed"]
    goal = Objective.parse("critical")
    assert any(True for _ in everything(slower(bounded, most * 0.999), goal))
    assert not any(True for _ in everything(slower(bounded, most * 1.05), goal))
    shown = size("--latency", "200ms").output
    assert "rates may grow" in shown


def test_size_draws_what_one_measure_costs_in_another(farm):
    ran = size("--front", "critical,money", "--points", "3", "--picture", "front.png", "--json", pins=PINS[:2])
    assert ran.exit_code == 0, ran.output
    rows = json.loads(ran.stdout)["front"]
    api = front(problem(farm, pins={"levels": "barn/0"}), "critical", "money", points=3, budget=Budget(time_s=60))
    assert [(r["critical"], r["money"]) for r in rows] == [
        pytest.approx((p.score.measure("critical"), p.score.measure("money"))) for p in api
    ]
    assert len({(round(r["critical"], 12), r["money"]) for r in rows}) == len(rows)
    assert Path("front.png").stat().st_size > 5_000


def test_no_placement_is_fast_enough_exits_with_1(farm):
    ran = size("--latency", "1ms", "--json", pins=("--pin", "levels=barn/0", "--pin", "alarms=cloud"))
    assert ran.exit_code == 1
    assert json.loads(ran.stdout)["plan"]["status"] == "infeasible"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("plan", "tanks_flow.py", "farm.toml", "--lost", "barn/0"), "give that with --from"),
        (("plan", "tanks_flow.py", "farm.toml", "--from", "x", "--add", "barn=gateway"), "ask one after the other"),
        (("plan", "--problem", "x.json", "--add", "barn=gateway"), "brings its own"),
        (("plan", "tanks_flow.py", "farm.toml", "--add", "barn"), "--add is written NAME=VALUE"),
        (
            ("plan", "tanks_flow.py", "farm.toml", "--add", "barn=gatewy", "--profile", "tanks.json"),
            "no class 'gatewy'",
        ),
        (
            ("plan", "tanks_flow.py", "farm.toml", "--from", "absent.json", "--profile", "tanks.json"),
            "no placement file",
        ),
        (("size", "tanks_flow.py"), "say what to size and where"),
        (("size", "tanks_flow.py", "farm.toml", "--fewest", "steps"), "--fewest is"),
        (("size", "tanks_flow.py", "farm.toml", "--front", "critical,mony"), "did you mean 'money'"),
        (("size", "tanks_flow.py", "farm.toml", "--front", "money,money"), "between two measures"),
        (("size", "tanks_flow.py", "farm.toml", "--picture", "x.png"), "say between which measures"),
    ],
)
def test_slips_are_told(farm, arguments, message):
    ran = run(*arguments)
    assert isinstance(ran.exception, HeadwaterError)
    assert message in str(ran.exception)


@pytest.mark.parametrize("command", ["plan", "size"])
def test_help_has_an_example(command):
    shown = run(command, "--help").output
    assert f"headwater {command} flow.py net.toml" in shown
