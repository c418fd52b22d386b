"""A policy that looks after a flow at sites, all as processes: it moves steps by itself; what sinks have is read back."""

import json
import os
import signal
from pathlib import Path

import pytest

from headwater import engine
from headwater.cli.locate import find_flow
from headwater.deploy.coordinator.asking import NobodyError, ask
from headwater.deploy.coordinator.state import StateFolder
from headwater.flow.profile import Demand, Profile, StepDemand, StepProfile
from headwater.rate import cgroups
from sites_of import site, slow_flow, wait_for
from supervisors import end_supervisor

#: counts in windows
FLOW = """

def tanks(out="many"):
    flow = Flow("tanks")
    levels = flow.read("levels", Slow(ROWS, {{"n": int, "tank": str, "at": "time"}})).event_time("time", "at")
    means = levels.key_by("tank").window("means", Tumbling("1 s"), n=agg.sum("n"), records=agg.count())
    means.filter("some", col.records > 0).write("archive", io.JsonLines(f"{folder}/{{out}}.jsonl"))
    return flow


def promised():
    return tanks().contract("500/s", above="best effort")


def one():
    return tanks("one")
"""
NET = """
name = "farm"
[classes.post]
cpu_ips = 1e7
memory_bytes = 5e8
access_bps = 1e8
price_per_hour = 0.01
[classes.edge]
cpu_ips = 1e9
memory_bytes = 5e8
access_bps = 1e8
price_per_hour = 0.25
[classes.rented]
cpu_ips = 1e9
memory_bytes = 5e8
access_bps = 1e8
price_per_hour = 1.0
cloud = true
[wan]
kind = "matrix"
latency_s = [[0.0, 0.01, 0.03], [0.01, 0.0, 0.03], [0.03, 0.03, 0.0]]
[[zones]]
name = "barn"
devices = [{class = "post", sensors = ["levels"]}]
[[zones]]
name = "shed"
devices = [{class = "edge"}]
[[zones]]
name = "cloud"
devices = [{class = "rented"}]
"""
MOVABLE = ["time", "means", "some"]


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    run = tmp_path / "run"
    monkeypatch.setenv("HEADWATER_RUNTIME", str(run))
    yield
    end_supervisor(run)


@pytest.fixture
def commands(runtime, commands):
    """Return those of all tests of sites, with a supervisor of their own, which ends after them."""
    return commands


def farm(folder):
    """Write a flow, a net, and a profile of what its steps cost at an edge; the post at the barn is too slow for most."""
    (folder / "tanks.py").write_text(slow_flow(folder, 500, FLOW))
    (folder / "farm.toml").write_text(NET)
    shape = {"bytes_in": 32.0, "bytes_out": 32.0}
    steps = {name: StepProfile(time_s=2e-5, **shape) for name in ("levels", *MOVABLE)}
    steps["means"] = StepProfile(time_s=5e-5, selectivity={"out": 0.01}, state_bytes=1000, **shape)
    steps["archive"] = StepProfile(time_s=1e-7, **shape)
    scales = {"levels": 1.0, "time": 1.0, "means": 1.0, "some": 0.01, "archive": 0.01}
    need = {name: StepDemand(scale, 10, 1.0, 0.001, 1e-4, 1e-6) for name, scale in scales.items()}
    demand = Demand(500.0, 0.01, 2e-4, need)
    Profile("tanks", "edge", steps, demand=demand).write(folder / "profile.json")


def described(commands):
    try:
        return ask(StateFolder(commands.folder / ".headwater" / "deploy"), "status")
    except NobodyError:
        return None


def at(site):
    """Say whether a flow runs, with what can move at a site."""

    def met(commands):
        found = described(commands)
        if found is None or not found["flow"] or found["flow"]["moving"] or found["flow"]["phase"] != "running":
            return None
        there = [each for each in found["sites"] if each["name"] == site]
        return found if there and there[0]["steps"] == MOVABLE and there[0]["state"] == "running" else None

    return met


def as_one_engine_has_it(folder):
    engine.run(find_flow(f"{folder}/tanks.py:one"))
    lines = {name: sorted((folder / f"{name}.jsonl").read_text().splitlines()) for name in ("one", "many")}
    return lines["one"] == lines["many"]


def drained(commands, name):
    """Return what `headwater drain` shows; None where a site was taken for gone, as it may be on a busy machine."""
    try:
        return commands.json("drain", name, "--within", "180s")
    except AssertionError as failed:
        if not any(word in str(failed) for word in ("are not here", "is away")):
            raise
        return None


def moved_by_hand(commands, *words):
    """Return what `headwater move` shows; None where a site was taken for gone, or the policy was moving."""
    try:
        return commands.json("move", *words, "--within", "180s")
    except AssertionError as failed:
        if not any(word in str(failed) for word in ("are not here", "is being moved")):
            raise
        return None


def measured(commands):
    """Return the cores that parts took since the last decision, and what crossed bridges; None before that is known."""
    found = described(commands)
    told = {} if found is None else found["flow"]["policy"]["decisions"][-1]["measured"]
    after = [told[name][1] for name in ("cores", "crossing_hz") if name in told]
    return after if len(after) == 2 and None not in after else None


def rated(commands):
    """Return what the source is taken to bring, once that was measured."""
    found = described(commands)
    return None if found is None else found["flow"]["policy"]["rates_hz"].get("levels")


def moved_by_itself(commands, folder):
    """Have a flow run at one site, and a policy move it to a cheaper one that comes; return the coordinator and why."""
    farm(folder)
    commands.start("up", "farm.toml", "--site", "barn", "--site", "cloud", "--no-namespaces")
    words = (
        "tanks.py:tanks",
        "farm.toml",
        "--policy",
        "min-cost",
        "--profile",
        "profile.json",
        "--pin",
        "archive=barn",
    )
    first = commands.start("deploy", *words, "--whole", "--settle", "1s", "--rest", "2s", "--within", "180s")
    wait_for(lambda: at("cloud")(commands), commands, "a flow that runs in the cloud, where there is no other site")
    site(commands, "shed", "--price", "0.2")
    found = wait_for(lambda: at("shed")(commands), commands, "a move to the cheaper site")
    told = found["flow"]["policy"]["decisions"][-1]
    assert told["moves"] == {step: ["cloud", "shed"] for step in MOVABLE}
    assert "site 'shed' has joined" in told["why"]
    assert told["expects"]["money"] == pytest.approx([1.01, 0.21])
    came = wait_for(
        lambda: (described(commands) or found)["flow"]["policy"]["decisions"][-1]["came"], commands, "what came of it"
    )
    assert came["measures"]["money"] == pytest.approx(0.21)
    assert came["undone"] == ""
    return first, told["why"]


def test_a_cheaper_site_appears_and_the_policy_moves_the_flow_by_itself(commands, tmp_path):
    first, _ = moved_by_itself(commands, tmp_path)
    (tmp_path / "hurry").touch()
    assert first.wait(180) == 0, commands.logs()
    assert as_one_engine_has_it(tmp_path)


@pytest.mark.thorough  # what a policy makes of sites that are drained and of moves by hand is shown in test_policies.py
def test_a_site_is_drained_and_steps_are_moved_by_hand_where_a_policy_looks_after_them(commands, tmp_path):
    first, why = moved_by_itself(commands, tmp_path)
    os.kill(first.pid, signal.SIGKILL)  # what the policy knows is kept
    first.wait()
    second = commands.start("deploy")
    wait_for(lambda: at("shed")(commands), commands, "a flow that still runs")
    shown = wait_for(lambda: drained(commands, "shed"), commands, "a site that is drained")
    assert next(each["steps"] for each in shown["sites"] if each["name"] == "cloud") == MOVABLE
    policy = described(commands)["flow"]["policy"]
    assert [each["why"] for each in policy["decisions"]] == [why, "site 'shed' is drained"]
    assert policy["drained"] == ["shed"]
    assert commands.json("drain", "shed", "--open")["flow"]["policy"]["drained"] == []
    wait_for(lambda: at("shed")(commands), commands, "a move back to where it is cheaper")
    shown = wait_for(lambda: moved_by_hand(commands, *MOVABLE, "cloud"), commands, "a move by hand")
    assert shown["flow"]["policy"]["held"] == dict.fromkeys(MOVABLE, "cloud")
    assert "moved by hand, and stays: time at cloud" in " ".join(
        commands.run("status", "--state", ".headwater/deploy").split()
    )
    refused = commands.run("move", "levels", "--open", code=2)
    assert "no policy holds 'levels'" in " ".join(refused.split())
    assert commands.json("move", "tanks", "--open")["flow"]["policy"]["held"] == {}
    wait_for(lambda: at("shed")(commands), commands, "a move back, once it may be")
    cores, crossed = wait_for(lambda: measured(commands), commands, "what was measured after it")
    assert 0 < cores < 2 * len(os.sched_getaffinity(0))
    assert crossed > 100
    rate = wait_for(lambda: rated(commands), commands, "a rate")
    assert 0 < rate < 800  # it is 500/s, and was said to be 1000
    journal = (tmp_path / ".headwater" / "deploy" / "journal.jsonl").read_text().splitlines()
    assert len([line for line in journal if json.loads(line)["came"] is None]) == 4
    shown = commands.run("status", "--state", ".headwater/deploy")
    assert "policy min-cost" in shown
    (tmp_path / "hurry").touch()
    assert second.wait(180) == 0, commands.logs()
    assert as_one_engine_has_it(tmp_path)


def test_a_promise_is_admitted_by_the_ledgers_of_sites_or_refused_with_the_numbers(commands, tmp_path):
    farm(tmp_path)
    (tmp_path / "farm.toml").write_text(NET.replace("cpu_ips = 1e7", "cpu_ips = 1e9"))
    (tmp_path / "lent.csv").write_text("0,0.02\n")
    words = ("tanks.py:promised", "farm.toml", "--policy", "min-cost", "--profile", "profile.json", "--pin")
    words += ("archive=barn", "--whole", "--best-effort")
    for name in ("barn", "cloud"):
        site(commands, name, "--cores", "lent.csv" if name == "cloud" else "0.15")  # what sources and sinks take
    first = commands.start("deploy", *words, "--within", "180s")
    wait_for(lambda: "no site admits" in first.log.read_text(), commands, "a word about sites that are full")
    said = " ".join(first.log.read_text().split())
    assert "no site admits flow 'tanks'" in said
    assert "It is promised 500/s, which takes" in said
    assert "'cloud' has 0.02 cores to promise" in said
    (tmp_path / "lent.csv").write_text("0,4\n")  # and now there is room

    def promised():
        found = at("cloud")(commands)
        here = [] if found is None else [each.get("promise") for each in found["sites"]]
        return found if here and all(each and each["kept"] + each["broken"] for each in here) else None

    found = wait_for(promised, commands, "windows of both parts")
    assert found["flow"]["policy"]["contract"] == "500/s"
    for each in found["sites"]:
        assert 0 < each["promise"]["cores"] < 0.8
        assert each["promised"]["held"] >= each["promise"]["cores"]
    (tmp_path / "hurry").touch()
    assert first.wait(180) == 0, commands.logs()
    assert as_one_engine_has_it(tmp_path)


def test_sites_of_a_net_tell_what_it_says_of_them_and_lend_the_share_of_the_machine_that_they_have(commands, tmp_path):
    farm(tmp_path)
    told = NET.replace("cpu_ips = 1e7", "cpu_ips = 1e9")
    for name, words in {"shed": "carbon = 300", "cloud": "carbon = 40\nprice = 0.5"}.items():
        told = told.replace(f'name = "{name}"', f'name = "{name}"\n{words}')
    (tmp_path / "farm.toml").write_text(told)
    commands.start("up", "farm.toml", "--no-namespaces", "--measured-on", "1.25e9")
    words = ("tanks.py:tanks", "farm.toml", "--policy", "min-carbon", "--profile", "profile.json", "--pin")
    first = commands.start("deploy", *words, "archive=barn", "--within", "180s")
    found = wait_for(lambda: at("cloud")(commands), commands, "a flow where the least carbon is")
    sites = {each["name"]: each for each in found["sites"]}
    assert {name: (site["carbon"], site["price"]) for name, site in sites.items()} == {
        "barn": (None, None),
        "shed": (300.0, None),
        "cloud": (40.0, 0.5),
    }
    lent = 0.8 if cgroups.find() is not None else float(len(os.sched_getaffinity(0)))
    assert {(site["cores"], site["promised"]["capacity"]) for site in sites.values()} == {(lent, round(0.9 * lent, 4))}
    ledgers = [dict(environment(sites[name]["pid"]))["HEADWATER_RUNTIME"] for name in ("barn", "cloud")]
    assert len({os.environ["HEADWATER_RUNTIME"], *ledgers}) == 3
    (tmp_path / "hurry").touch()
    assert first.wait(180) == 0, commands.logs()
    assert as_one_engine_has_it(tmp_path)


def environment(pid):
    return (each.split("=", 1) for each in Path(f"/proc/{pid}/environ").read_text().split("\0") if "=" in each)
