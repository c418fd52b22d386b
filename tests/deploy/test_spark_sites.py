"""Sites of kind spark, as a user has them: processes, joined by TLS; what sinks have is read back."""

import json
from contextlib import suppress
from pathlib import Path

import pytest

from headwater import engine
from headwater.cli.locate import find_flow
from headwater.flow.profile import Demand, Profile, StepDemand, StepProfile
from headwater.processes import family
from headwater.rate import board
from headwater_bench.moves.sites import net_of
from sites_of import running, site, slow_flow, wait_for
from supervisors import end_supervisor

COUNTS = """
def seen(state, record):
    count, total = state or (0, 0)
    count, total = count + 1, total + record["n"]
    return (count, total), record | {{"seen": count, "total": total}}


def tanks(out="many"):
    flow = Flow("tanks")
    levels = flow.read("levels", Slow(ROWS, {{"n": int, "tank": str, "at": "time"}})).event_time("time", "at")
    known = {{"n": int, "tank": str, "at": "time", "seen": int, "total": int}}
    counted = levels.key_by("tank").process("seen", seen, out=known)
    sums = counted.key_by("tank").window("sums", Tumbling("10 s"), n=agg.sum("total"), records=agg.count())
    sums.write("archive", io.JsonLines(f"{folder}/{{out}}.jsonl"))
    return flow


def promised():
    return tanks().contract("100/s", "20 s")


def one():
    return tanks("one")
"""
AT = {"levels": "barn", "time": "barn", "seen": "barn", "sums": "barn", "archive": "barn"}


def written(folder, name):
    return sorted((folder / f"{name}.jsonl").read_text().splitlines())


def settled(commands, at):
    """Return how the site fares at which a step is, once all parts run and nothing is moved."""
    found = running(commands)
    return found and next(each for each in found["sites"] if at in each["steps"])


@pytest.mark.spark
@pytest.mark.thorough  # test_recut.py takes steps to Spark and back without processes
def test_a_step_with_state_moves_to_spark_and_back(commands, tmp_path):
    pytest.importorskip("pyspark")
    (tmp_path / "tanks.py").write_text(slow_flow(tmp_path, 100, COUNTS))
    (tmp_path / "farm.toml").write_text(net_of(("barn", "cloud"), spark=("cloud",)))
    plan = {"flow": "tanks.py:tanks", "net": "farm.toml", "placement": AT}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    commands.start("up", "farm.toml", "--no-namespaces")
    deploy = commands.start("deploy", "plan.json", "--within", "180s")
    wait_for(lambda: settled(commands, "seen"), commands, "a flow that runs")
    commands.json("move", "seen", "sums", "cloud", "--within", "180s")
    there = wait_for(lambda: settled(commands, "sums"), commands, "a flow that runs on Spark")
    assert (there["name"], there["kind"]) == ("cloud", "spark")
    wait_for(lambda: (found := settled(commands, "sums")) and found["records_in"] > 100, commands, "records on Spark")
    commands.json("move", "seen", "sums", "barn", "--within", "180s")
    back = wait_for(lambda: settled(commands, "sums"), commands, "a flow that runs on engines again")
    assert (back["name"], back["kind"]) == ("barn", "engine")
    (tmp_path / "hurry").touch()
    assert deploy.wait(180) == 0, commands.logs()
    engine.run(find_flow(f"{tmp_path}/tanks.py:one"))
    assert written(tmp_path, "many") == written(tmp_path, "one")
    assert len(written(tmp_path, "many")) > 100


@pytest.fixture
def runtime(tmp_path, monkeypatch):
    """Return the runtime folder of all sites, whose supervisor ends after them."""
    run = tmp_path / "run"
    monkeypatch.setenv("HEADWATER_RUNTIME", str(run))
    yield run
    end_supervisor(run)


@pytest.fixture
def commands_of_one_ledger(runtime, commands):
    """Return commands that are ended before their supervisor is."""
    return commands


def measured(folder):
    """Write what the steps cost: too much for the barn beside its source and its sink, and less than a core for Spark."""
    names = ("levels", "time", "seen", "sums", "archive")
    costs = dict.fromkeys(names, 5e-4) | {"levels": 1e-4, "archive": 1e-4}
    need = {name: StepDemand(1.0, 10, 1.0, 0.001, cost, 1e-6) for name, cost in costs.items()}
    steps = dict.fromkeys(names, StepProfile(time_s=1e-5, bytes_in=32.0, bytes_out=32.0))
    Profile("tanks", "box", steps, demand=Demand(100.0, 0.01, 2e-4, need)).write(folder / "profile.json")


def protected(runtime, pid):
    """Say whether Java is at work for a part, in the group of its promise where the machine has such."""
    found = board(runtime)
    held = next((lane for lane in found.lanes if lane.pid == pid), None)
    for each in family(pid) if held else ():
        with suppress(OSError):  # it has ended
            if Path(f"/proc/{each}/comm").read_text().strip() == "java":
                group = Path(f"/proc/{each}/cgroup").read_text()
                return found.grade != "reserved" or f"headwater.{held.id}" in group
    return False


@pytest.mark.thorough
@pytest.mark.spark
def test_a_policy_moves_a_promised_step_to_spark_and_back_as_its_price_is_by_the_hour(
    commands_of_one_ledger, runtime, tmp_path
):
    pytest.importorskip("pyspark")
    commands = commands_of_one_ledger
    (tmp_path / "tanks.py").write_text(slow_flow(tmp_path, 100, COUNTS))
    (tmp_path / "farm.toml").write_text(net_of(("barn", "shed", "cloud"), spark=("cloud",)))
    (tmp_path / "price.csv").write_text("0,9\n")
    measured(tmp_path)
    site(commands, "barn", "--price", "0.1", "--cores", "0.2")
    site(commands, "shed", "--price", "1")
    site(commands, "cloud", "--kind", "spark", "--master", "local[*]", "--price", "price.csv")
    words = ("tanks.py:promised", "farm.toml", "--policy", "min-cost", "--profile", "profile.json", "--best-effort")
    pins = ("--pin", "levels=barn", "--pin", "archive=barn", "--whole", "--settle", "1s", "--rest", "2s")
    deploy = commands.start("deploy", *words, *pins, "--within", "180s")

    def at(name):
        def met():
            found = settled(commands, "sums")
            return found if found and found["name"] == name and found["promise"] else None

        return met

    before = wait_for(at("shed"), commands, "a promise that the engine keeps, where it is cheaper")
    assert before["promise"]["cores"] < 0.8
    (tmp_path / "price.csv").write_text("0,0.1\n")
    there = wait_for(at("cloud"), commands, "a move to Spark")
    assert there["promise"]["cores"] == 1.0
    wait_for(lambda: protected(runtime, there["pid"]), commands, "Java in the group of the promise")

    def windows():
        found = at("cloud")()
        return found if found and found["promise"]["kept"] + found["promise"]["broken"] > 3 else None

    told = wait_for(windows, commands, "windows of Spark's promise")
    assert sum(told["promise"]["causes"].values()) == told["promise"]["broken"]
    (tmp_path / "price.csv").write_text("0,9\n")
    wait_for(at("shed"), commands, "a move back")
    (tmp_path / "hurry").touch()
    assert deploy.wait(180) == 0, commands.logs()
    engine.run(find_flow(f"{tmp_path}/tanks.py:one"))
    assert written(tmp_path, "many") == written(tmp_path, "one")
