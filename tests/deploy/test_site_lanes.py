"""Parts that run in lanes at their sites, as processes: killed, moved, shared out anew; what sinks have is read back."""

import json
import os
import signal

import pytest

from headwater import engine
from headwater.cli.locate import find_flow
from headwater.processes import children
from headwater_bench.moves.sites import net_of
from sites_of import as_one_engine_has_it, farm, running, site, slow_flow, wait_for

#: late records, the order of each key, a second key, and records that break a step
MANY = """
def picky(record):
    if record["n"] % 1000 == 999:
        raise ValueError("broken")
    return record


def counted(total, record):
    total = (total or 0) + record["n"]
    return total, {{"tank": record["tank"], "n": record["n"], "total": total}}


def tanks(out="many"):
    flow = Flow("tanks")
    rows = [row | {{"at": max(0, row["at"] - 3_000_000 * (row["n"] % 97 == 0))}} for row in ROWS]
    levels = flow.read("levels", Slow(rows, {{"n": int, "tank": str, "at": "time"}})).event_time("time", "at")
    sound = levels.map("picky", picky).filter("sound", col.n >= 0)
    means = sound.key_by("tank").window("means", Tumbling("1 s"), n=agg.sum("n"), records=agg.count())
    means.write("windows", io.JsonLines(f"{folder}/{{out}}/windows.jsonl"))
    means.late.write("late", io.JsonLines(f"{folder}/{{out}}/late.jsonl"))
    totals = sound.key_by("tank").process("totals", counted, out={{"tank": str, "n": int, "total": int}})
    totals.write("sums", io.JsonLines(f"{folder}/{{out}}/sums.jsonl"))
    numbered = totals.select("last", "n", digit=col.n % 7)
    numbered.key_by("digit").process("digits", digit, out={{"digit": int, "records": int}}).write(
        "of digits", io.JsonLines(f"{folder}/{{out}}/digits.jsonl")
    )
    flow.dead_letters.select("letters", "step", "error").write(
        "broken", io.JsonLines(f"{folder}/{{out}}/broken.jsonl")
    )
    return flow


def digit(count, record):
    return (count or 0) + 1, {{"digit": record["digit"], "records": (count or 0) + 1}}


def one():
    return tanks("one")
"""
STAY = {
    "levels": "barn",
    "time": "barn",
    **dict.fromkeys(("windows", "late", "sums", "of digits", "dead letters", "letters", "broken"), "shed"),
}
SINKS = ("windows.jsonl", "late.jsonl", "sums.jsonl", "digits.jsonl", "broken.jsonl")
MOVE = ("picky", "sound", "means", "totals", "last", "digits")


def in_lanes(folder, **lanes):
    """Have the sites of a farm run their parts in so many lanes, under `headwater up`."""
    net = folder / "farm" / "farm.toml"
    text = net.read_text()
    for name, count in lanes.items():
        text = text.replace(f'name = "{name}"', f'name = "{name}"\nlanes = {count}')
    net.write_text(text)


def part_of(commands, name, lanes):
    """Return what runs the part of a site, once that many lanes do, in the words of the coordinator."""

    def found():
        shown = running(commands)
        at = shown and next(each for each in shown["sites"] if each["name"] == name)
        return at if at and at.get("lanes") == lanes and at["records_in"] else None

    return wait_for(found, commands, f"a part at {name} in {lanes} lanes")


def lane_of(pid):
    """Return a lane of a part, other than the first: its own process is that, and one forks the others."""
    return next(lane for server in children(pid) for lane in children(server))


def test_lanes_of_a_part_are_killed_and_nothing_is_lost(commands, tmp_path):
    plan = farm(tmp_path)
    in_lanes(tmp_path, cloud=2)
    commands.start("up", "farm/farm.toml", "--no-namespaces")
    first = commands.start("deploy", plan, "--within", "180s")
    before = part_of(commands, "cloud", 2)
    assert "cloud (2 lanes)" in commands.run("status", "--state", ".headwater/deploy")
    os.kill(lane_of(before["pid"]), signal.SIGKILL)  # one lane: all start again, within the process of the part
    said = "all lanes start again from the last checkpoint"
    wait_for(lambda: said in commands.logs(), commands, "a word about a lane")
    os.kill(before["pid"], signal.SIGKILL)  # the first lane, which is the part: its site starts it again
    wait_for(
        lambda: (found := running(commands)) and any(each["restarts"] for each in found["sites"]), commands, "a restart"
    )
    after = part_of(commands, "cloud", 2)
    assert after["pid"] != before["pid"]
    (tmp_path / "hurry").touch()
    assert first.wait(180) == 0, commands.logs()
    assert as_one_engine_has_it(tmp_path)


@pytest.mark.thorough
def test_steps_move_between_parts_of_other_numbers_of_lanes(commands, tmp_path):
    for name in ("farm", "one", "many"):
        (tmp_path / name).mkdir()
    (tmp_path / "farm" / "tanks.py").write_text(slow_flow(tmp_path, 1000, MANY))
    (tmp_path / "farm" / "farm.toml").write_text(net_of(("barn", "shed", "cloud", "attic")))
    in_lanes(tmp_path, cloud=2, barn=1, attic=3)
    plan = {"flow": "tanks.py:tanks", "net": "farm.toml", "placement": STAY | dict.fromkeys(MOVE, "cloud")}
    (tmp_path / "farm" / "plan.json").write_text(json.dumps(plan))
    commands.start("up", "farm/farm.toml", "--no-namespaces")
    first = commands.start("deploy", tmp_path / "farm" / "plan.json", "--within", "180s")
    part_of(commands, "cloud", 2)
    for to, lanes in (("barn", 1), ("cloud", 2), ("attic", 3), ("cloud", 2)):
        wait_for(lambda to=to: moved(commands, to), commands, f"a move to {to}")
        assert set(MOVE) <= set(part_of(commands, to, lanes)["steps"])
    (tmp_path / "hurry").touch()
    assert first.wait(180) == 0, commands.logs()
    engine.run(find_flow(f"{tmp_path}/farm/tanks.py:one"))
    found, expected = held(tmp_path / "many"), held(tmp_path / "one")
    assert {name for name, lines in expected.items() if lines} == set(SINKS)
    assert found == expected


def held(folder):
    return {path.name: sorted(path.read_text().splitlines()) for path in folder.iterdir()}


def moved(commands, to):
    """Have windows go to a site; on a busy machine a site may be taken for gone, and come back a moment later."""
    return "are not here" not in commands.run("move", *MOVE, to, "--within", "180s", code=None)


@pytest.mark.thorough
def test_a_site_that_is_started_with_other_lanes_shares_its_part_out_anew(commands, tmp_path):
    plan = farm(tmp_path)
    for name in ("barn", "shed"):
        site(commands, name)
    cloud = site(commands, "cloud", "--lanes", 1)
    first = commands.start("deploy", plan, "--within", "180s")
    part_of(commands, "cloud", 1)
    for lanes in (2, 3, 1):
        cloud.send_signal(signal.SIGTERM)
        assert cloud.wait(180) == 0, commands.logs()
        cloud = site(commands, "cloud", "--lanes", lanes)
        part_of(commands, "cloud", lanes)
    (tmp_path / "hurry").touch()
    assert first.wait(180) == 0, commands.logs()
    assert as_one_engine_has_it(tmp_path)
