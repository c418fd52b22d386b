"""`headwater takeover`: a checkpoint goes to the other runner, on the command line."""

import json

FLOW = """
from headwater import Flow, io


def counted(count, record):
    return (count or 0) + 1, {"k": record["k"], "n": (count or 0) + 1}


flow = Flow("counts")
read = flow.read("read", io.JsonLines("in.jsonl", {"k": str}))
read.key_by("k").process("count", counted, out={"k": str, "n": int}).write("write", io.JsonLines("out.jsonl"))
"""


def more(folder, count):
    with (folder / "in.jsonl").open("a") as file:
        file.writelines(f'{{"k":"{"ab"[i % 2]}"}}\n' for i in range(count))


def numbers(folder):
    rows = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    return [[row["n"] for row in rows if row["k"] == key] for key in "ab"]


def test_there_and_back(typed, tmp_path):
    (tmp_path / "flow.py").write_text(FLOW)
    more(tmp_path, 10)
    assert typed("run", "flow.py", "--checkpoint", "first")[0] == 0
    code, out, _ = typed("takeover", "flow.py", "--from", "first", "--to", "second")
    assert code == 0
    assert "step count keeps" in out
    assert f"go on with: headwater run flow.py --on spark --checkpoint {tmp_path / 'second'}" in out
    code, out, _ = typed("takeover", "flow.py", "--from", "second", "--to", "third", "--json")
    assert code == 0
    told = json.loads(out)
    assert (told["flow"], told["on"], told["positions"]["read"][1]) == ("counts", "engine", 10)
    more(tmp_path, 6)
    assert typed("run", "flow.py", "--checkpoint", "third")[0] == 0
    assert numbers(tmp_path) == [list(range(1, 9))] * 2
    code, out, _ = typed("checkpoint", "first")
    assert code == 0
    assert f"moved to {tmp_path / 'second'} at" in out
    code, _, said = typed("run", "flow.py", "--checkpoint", "first")
    assert code == 2
    assert "was moved to" in said


def test_what_the_run_was_given_is_given_again(typed, tmp_path):
    (tmp_path / "flow.py").write_text(FLOW)
    more(tmp_path, 4)
    (tmp_path / "in.jsonl").rename(tmp_path / "other.jsonl")
    given = ["--input", "other.jsonl", "--output", "outs"]
    assert typed("run", "flow.py", "--checkpoint", "first", *given)[0] == 0
    code, _, said = typed("takeover", "flow.py", "--from", "first", "--to", "second")
    assert code == 2
    assert "source 'read' is another: it read JsonLines" in said
    assert typed("takeover", "flow.py", "--from", "first", "--to", "second", *given)[0] == 0


def test_what_is_asked_for_wrongly_is_told(typed, tmp_path):
    (tmp_path / "flow.py").write_text(FLOW)
    code, _, said = typed("takeover", "flow.py", "--from", "away", "--to", "second")
    assert code == 2
    assert "there is no checkpoint" in said
