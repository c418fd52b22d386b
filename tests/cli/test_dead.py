"""Dead letters are kept, looked at, mended and replayed, as a user does it."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter

import pyarrow.dataset as ds
import pytest

FLOW = """
from headwater import Flow, col, io

def metres(record):
    return {"tank": record["tank"], "height": record["centimetres"] / record["per_metre"]}

flow = Flow("tanks")
read = flow.read("read", io.JsonLines("in.jsonl", {"tank": str, "centimetres": float, "per_metre": float}))
levels = read.map("metres", metres, out={"tank": str, "height": float})
levels.filter("low", col.height < 5.0).write("out", io.JsonLines("out.jsonl"))
"""
GOOD = [{"tank": "a", "centimetres": float(n), "per_metre": 100.0} for n in range(3)]
BAD = [{"tank": "b", "centimetres": 150.0, "per_metre": 0.0}, {"tank": "c", "centimetres": 250.0, "per_metre": 0.0}]


@pytest.fixture
def broken(typed, tmp_path):
    """A run that has kept two records that broke a step, and one line that is no record."""
    (tmp_path / "flow.py").write_text(FLOW)
    lines = [*map(json.dumps, [*GOOD[:1], *BAD, *GOOD[1:]]), '{"tank": "d", "centimetres": "many", "per_metre": 100.0}']
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    code, out, _ = typed("run", "flow.py", "--dead", "dead", "--json")
    assert code == 0
    assert json.loads(out)["dead_letters"] == 3
    return typed


def written(tmp_path):
    return [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]


def listed(typed, *words):
    code, out, _ = typed("dead", "list", "dead", "--json", *words)
    assert code == 0
    return json.loads(out)


def test_a_record_is_shown_as_it_is_whatever_a_terminal_or_a_table_would_make_of_it(typed, tmp_path):
    (tmp_path / "flow.py").write_text(FLOW)
    (tmp_path / "in.jsonl").write_bytes(b"[/nope] \x1b[2Jgone :car:\n")
    shown = [
        typed("run", "flow.py", "--dead", "dead"),
        typed("dead", "list", "dead"),
        typed("dead", "show", "dead", "0"),
    ]
    for _, out, _ in shown:
        assert r"[/nope] \x1b[2Jgone :car:" in out


def test_letters_are_listed_with_step_error_record_and_times(broken):
    letters = listed(broken, "--step", "metres")
    assert [letter["record"] for letter in letters] == BAD
    assert all("ZeroDivisionError" in letter["error"] and "in metres" in letter["error"] for letter in letters)
    assert all(letter["at_ns"] >= letter["created_ns"] > 0 for letter in letters)
    assert [letter["step"] for letter in listed(broken)].count("read") == 1
    code, out, _ = broken("dead", "list", "dead")
    assert code == 0
    assert "ZeroDivisionError" in out


def test_one_letter_is_shown(broken):
    number = listed(broken, "--step", "metres")[1]["id"]
    code, out, _ = broken("dead", "show", "dead", number, "--json")
    assert code == 0
    assert json.loads(out)["record"] == BAD[1]
    code, out, _ = broken("dead", "show", "dead", number)
    assert "metres" in out
    assert '"tank":"c"' in out


def test_replayed_letters_that_are_mended_go_to_the_sinks_and_leave_the_folder(broken, tmp_path):
    before = written(tmp_path)
    code, out, _ = broken("dead", "replay", "flow.py", "dead", "--step", "metres", "--set", "per_metre=100", "--json")
    assert code == 0
    assert len(json.loads(out)["released"]) == 2
    assert written(tmp_path) == [*before, {"tank": "b", "height": 1.5}, {"tank": "c", "height": 2.5}]
    assert [letter["step"] for letter in listed(broken)] == ["read"]
    code, out, _ = broken("dead", "replay", "flow.py", "dead", "--set", "centimetres=40")
    assert code == 0
    assert "released 1 of 1" in out
    assert written(tmp_path)[-1] == {"tank": "d", "height": 0.4}
    assert listed(broken) == []


def test_those_that_break_a_step_again_stay(broken, tmp_path):
    first, second = (letter["id"] for letter in listed(broken, "--step", "metres"))
    code, _, err = broken("dead", "replay", "flow.py", "dead", first)
    assert code == 1
    assert f"{first} stays: metres: ZeroDivisionError" in err
    assert [letter["id"] for letter in listed(broken, "--step", "metres")] == [first, second]
    code, out, _ = broken("dead", "replay", "flow.py", "dead", second, "--set", "per_metre=100", "--json")
    assert json.loads(out)["released"] == [second]
    assert [letter["id"] for letter in listed(broken, "--step", "metres")] == [first]


def test_the_same_folder_serves_run_after_run(broken, tmp_path):
    broken("dead", "replay", "flow.py", "dead", "--step", "metres", "--set", "per_metre=100")
    code, _, _ = broken("run", "flow.py", "--dead", "dead", "--on", "threads")
    assert code == 0
    letters = listed(broken)
    assert len(letters) == 4
    assert len({letter["id"] for letter in letters}) == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "dead", "99"), "there is no dead letter 99 in 'dead'"),
        (("list", "nowhere"), "'nowhere' holds no dead letters"),
        (("replay", "flow.py", "dead", "--set", "per_metre"), "--set takes FIELD=VALUE"),
    ],
)
def test_mistakes_are_told(broken, words, said):
    code, _, err = broken("dead", *words)
    assert code == 2
    assert said in err


@pytest.mark.parametrize("words", [("list", "dead"), ("list", "dead", "--json"), ("replay", "flow.py", "dead")])
def test_a_step_without_letters_is_told_with_those_that_have_some(broken, words):
    code, _, err = broken("dead", *words, "--step", "meters")
    assert code == 0  # all of a step may be replayed
    assert "no dead letter in 'dead' is of step 'meters'; they are of 'metres', 'read'; did you mean 'metres'?" in err


def test_a_field_that_the_step_does_not_take_is_told_and_nothing_is_released(broken):
    code, _, err = broken("dead", "replay", "flow.py", "dead", "--step", "metres", "--set", "per_meter=100")
    assert code == 1
    assert "takes no field 'per_meter'" in err
    assert len(listed(broken)) == 3


@pytest.mark.parametrize("on", ["engine", "threads"])
def test_a_run_that_a_step_stops_still_gives_its_report(broken, tmp_path, on):
    stops = FLOW.replace('out={"tank": str, "height": float}', 'out={"tank": str, "height": float}, on_error="stop"')
    (tmp_path / "stops.py").write_text(stops)
    code, out, err = broken("run", "stops.py", "--on", on, "--json")
    document = json.loads(out)
    assert code == 1
    assert "step 'metres' stopped the run, as its on_error says: ZeroDivisionError" in document["error"]
    assert document["error"] in err
    assert document["records_in"] == document["left"] + sum(document["records_out"].values()) + document["dead_letters"]
    code, out, _ = broken("run", "stops.py", "--on", on)
    assert code == 1
    assert "metres" in out  # the table of steps


@pytest.mark.parametrize("checkpoint", [[], ["--checkpoint", "kept"]])
def test_a_replay_into_a_parquet_file_keeps_what_it_holds(typed, tmp_path, checkpoint):
    (tmp_path / "p.py").write_text(
        "from headwater import Flow, io\n"
        "flow = Flow('p')\n"
        "numbers = flow.read('in', io.JsonLines('in.jsonl', {'n': int}))\n"
        "shares = numbers.map('share', lambda record: {'n': 60 // record['n']}, out={'n': int})\n"
        "shares.write('out', io.Parquet('out.parquet'))\n"
    )
    (tmp_path / "in.jsonl").write_text("".join(f'{{"n": {n}}}\n' for n in range(4)))
    assert typed("run", "p.py", "--dead", "dead", *checkpoint, "--json")[0] == 0
    assert typed("dead", "replay", "p.py", "dead", "--set", "n=6")[0] == 0
    assert sorted(ds.dataset(tmp_path / "out.parquet").to_table()["n"].to_pylist()) == [10, 20, 30, 60]


KILLED = """
import os, signal
from headwater import Flow, io

def share(record):
    if os.environ.get("BREAKS"):
        raise ValueError("not yet")
    if record["n"] == int(os.environ.get("KILLED_AT", -1)):
        os.kill(os.getpid(), signal.SIGKILL)
    return record

flow = Flow("parts")
numbers = flow.read("in", io.Generate(lambda n: {"n": n}, {"n": int}, rate=100000, count=6000))
numbers.map("share", share, out={"n": int}).write("out", io.JsonLines("out.jsonl"))
"""


def test_a_replay_that_is_killed_repeats_one_part_at_most(typed, tmp_path, monkeypatch):
    (tmp_path / "flow.py").write_text(KILLED)
    monkeypatch.setenv("BREAKS", "1")
    assert typed("run", "flow.py", "--dead", "dead")[0] == 1  # all of them are dead letters
    monkeypatch.delenv("BREAKS")
    words = [sys.executable, "-m", "headwater", "dead", "replay", "flow.py", "dead"]
    killed = subprocess.run(words, cwd=tmp_path, env={**os.environ, "KILLED_AT": "4500"}, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [letter["record"]["n"] for letter in listed(typed)] == list(range(4000, 6000))
    code, out, _ = typed("dead", "replay", "flow.py", "dead", "--json")
    assert code == 0
    assert json.loads(out)["report"]["records_in"] == 2000
    numbers = Counter(row["n"] for row in written(tmp_path))
    assert numbers.keys() == set(range(6000))
    assert all(numbers[n] == 1 for n in range(4000))


def test_the_report_of_a_replay_is_of_all_its_parts(typed, tmp_path, monkeypatch):
    (tmp_path / "flow.py").write_text(KILLED)
    monkeypatch.setenv("BREAKS", "1")
    assert typed("run", "flow.py", "--dead", "dead")[0] == 1
    monkeypatch.delenv("BREAKS")
    code, out, _ = typed("dead", "replay", "flow.py", "dead", "--json")
    done = json.loads(out)
    assert code == 0
    assert len(done["released"]) == 6000
    assert (done["report"]["records_in"], done["report"]["records_out"]) == (
        6000,
        {"out": 6000, "dead letters kept": 0},
    )
    assert {step["name"]: step["in"] for step in done["report"]["steps"]}["share"] == 6000


def test_the_latency_of_replayed_records_is_that_of_the_replay(broken):
    code, out, _ = broken("dead", "replay", "flow.py", "dead", "--step", "metres", "--set", "per_metre=100", "--json")
    report = json.loads(out)["report"]
    assert code == 0
    for latency in (report["latency_ms"], report["emit_latency_ms"]):
        assert 0 < latency["p99"] < 24 * 3600 * 1000  # not since 1970


THREES = """
import os, signal
from headwater import Flow, io

def check(record):
    if record["n"] == int(os.environ.get("KILLED_AT", -1)):
        os.kill(os.getpid(), signal.SIGKILL)
    if record["n"] % 10 == 3:
        raise ValueError("three")
    return record

flow = Flow("threes")
numbers = flow.read("in", io.Generate(lambda n: {"n": n}, {"n": int}, rate=3000, count=3000))
numbers.map("check", check, out={"n": int}).write("out", io.JsonLines("out.jsonl"))
"""


def test_letters_of_a_run_that_is_killed_and_goes_on_are_kept_once(typed, tmp_path):
    (tmp_path / "flow.py").write_text(THREES)
    (tmp_path / "other.py").write_text(THREES.replace("3000", "100").replace("out.jsonl", "other.jsonl"))
    words = ["run", "flow.py", "--checkpoint", "kept", "--every", "200ms", "--dead", "dead", "--json"]
    for at in (1500, 2500):
        environment = {**os.environ, "KILLED_AT": str(at)}
        killed = subprocess.run([sys.executable, "-m", "headwater", *words], cwd=tmp_path, env=environment, check=False)
        assert killed.returncode == -signal.SIGKILL
    assert typed("run", "other.py", "--dead", "dead")[0] == 0  # another flow's letters in the same folder are its own
    assert typed(*words)[0] == 0
    letters = listed(typed)
    assert sorted(letter["record"]["n"] for letter in letters) == sorted([*range(3, 3000, 10), *range(3, 100, 10)])
    assert len({letter["id"] for letter in letters}) == len(letters)
    assert "by" not in letters[0]
