"""`headwater checkpoint`: what a folder holds."""

import json

import pytest

from headwater import Flow, engine, io
from headwater.engine.checkpoint.store import Store

FIELDS = {"k": str, "x": int}


@pytest.fixture
def kept(tmp_path):
    (tmp_path / "in.jsonl").write_text("".join(f'{{"k":"{"ab"[i % 2]}","x":{i}}}\n' for i in range(100)))
    for _ in range(2):
        flow = Flow("counts")
        keyed = flow.read("read", io.JsonLines(tmp_path / "in.jsonl", FIELDS)).key_by("k")
        keyed.process("count", lambda n, r: ((n or 0) + 1, None), out={"n": int}).write("write", io.Collect())
        engine.run(flow, checkpoint=tmp_path / "kept")
    return tmp_path / "kept"


def test_each_checkpoint_is_listed_with_what_it_holds(kept, typed):
    code, out, _ = typed("checkpoint", str(kept), "--json")
    assert code == 0
    first, second = json.loads(out)
    assert (first["number"], second["number"]) == (0, 1)
    assert first["flow"] == "counts"
    assert first["restorable"]
    assert first["since"] is None
    assert first["state_bytes"]["count"] > 0
    assert first["bytes"] > first["state_bytes"]["count"]
    assert first["positions"]["read"] == second["positions"]["read"] != [None]
    code, out, _ = typed("checkpoint", str(kept))
    assert code == 0
    assert "count: " in out


def test_one_that_is_spoilt_says_why_and_none_that_can_be_read_is_an_error(kept, typed):
    last = max(kept.glob("*.checkpoint"))
    last.write_bytes(last.read_bytes()[:-3])
    code, out, _ = typed("checkpoint", str(kept), "--json")
    assert code == 0
    assert [each["restorable"] for each in json.loads(out)] == [True, False]
    assert "bytes where" in json.loads(out)[1]["why"]
    min(kept.glob("*.checkpoint")).write_bytes(b"no")
    assert typed("checkpoint", str(kept), "--json")[0] == 1


def test_a_folder_without_checkpoints_is_told(tmp_path, typed):
    code, _, said = typed("checkpoint", str(tmp_path / "away"))
    assert code != 0
    assert "no such folder" in said
    code, _, said = typed("checkpoint", str(tmp_path))
    assert code != 0
    assert "there is no checkpoint in" in said


def test_one_that_a_run_removes_meanwhile_is_left_out(kept, typed, monkeypatch):
    there = Store.numbers
    monkeypatch.setattr(Store, "numbers", lambda store: [-1, *there(store)])
    code, out, _ = typed("checkpoint", str(kept), "--json")
    assert code == 0
    assert [each["number"] for each in json.loads(out)] == [0, 1]
