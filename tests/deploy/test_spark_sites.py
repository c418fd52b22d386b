"""Sites of kind spark, as a user has them: processes, joined by TLS; what sinks have is read back."""

import json

import pytest

from headwater import engine
from headwater.cli.locate import find_flow
from headwater_bench.moves.sites import net_of
from sites_of import running, slow_flow, wait_for

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


def one():
    return tanks("one")
"""
AT = {"levels": "barn", "time": "barn", "seen": "barn", "sums": "barn", "archive": "barn"}


def written(folder, name):
    return sorted((folder / f"{name}.jsonl").read_text().splitlines())


def settled(commands, at):
    """Return how the site fares at which a step is, once all parts run and nothing is moved."""
    found = running(commands)
    return found and next(site for site in found["sites"] if at in site["steps"])


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
