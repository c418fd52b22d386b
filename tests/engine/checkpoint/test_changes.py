"""Checkpoints that hold what has changed since the one before."""

import json
import random
import time
from collections.abc import Mapping

import numpy as np
import pytest

from headwater import Batch, Flow, Schema, engine, io
from headwater.engine.checkpoint.store import Store
from headwater.errors import RunError
from headwater.flow.state import Cell
from headwater.operators import build
from headwater.sim.disk import SimulatedDisk

GIVEN = Schema.of({"k": int, "x": int})
OUT = {"k": int, "total": int}


class Sums:
    """Adds up what came of each key."""

    state: Mapping[str, Cell] = {"total": Cell("int64")}

    def run(self, batch, slots, state):
        np.add.at(state["total"], slots, batch["x"])
        return {"total": state["total"][slots]}


def summed(state, record):
    """Add up, and forget a key now and then."""
    total = (state or 0) + record["x"]
    return (None if record["x"] % 7 == 0 else total), {"k": record["k"], "total": total}


def operator(how):
    flow = Flow("changes")
    keyed = flow.read("read", io.Items([], GIVEN)).key_by("k")
    if how == "scan":
        keyed.scan("sum", Sums(), out=OUT).write("write", io.Collect())
    else:
        keyed.process("sum", summed, out=OUT).write("write", io.Collect())
    return build(flow.steps["sum"])


def records(chance, count, keys):
    return Batch.of_rows([{"k": chance.randrange(keys), "x": chance.randrange(50)} for _ in range(count)], GIVEN)


@pytest.mark.parametrize("how", ["scan", "process"])
def test_what_was_whole_and_the_changes_since_are_the_state(how):
    chance, old, new = random.Random(1), operator(how), operator(how)
    old.process(records(chance, 3000, 1000), 0)
    whole = old.freeze(whole=False)
    assert whole.whole, "nothing was frozen before"
    new.restore(whole.encode())
    for _ in range(5):
        old.process(records(chance, 20, 2000), 0)
        frozen = old.freeze(whole=False)
        old_then = old.snapshot()
        old.process(records(chance, 20, 2000), 0)  # encoded later, it is what it was
        changes = frozen.encode()
        assert not frozen.whole
        assert len(changes) < len(whole.encode()) / 10
        new.change(changes)
        assert contents(new.snapshot(), how) == contents(old_then, how)


def contents(snapshot, how):
    other = operator(how)
    other.restore(snapshot)
    if how == "process":
        return other._states
    slots = np.arange(len(other._keys))
    return dict(zip(other._keys.columns(slots)["k"].tolist(), other._state["total"][slots].tolist(), strict=True))


def content(number, whole):
    return {"tasks": {"sum": [{"state": 0, "whole": whole}]}, "n": number}


def written(store, number, *, whole):
    store.write(number, content(number, whole), [b"%d" % number], since=None if whole else number - 1)


def test_a_checkpoint_has_all_that_it_builds_on_for_as_long_as_it_is_kept():
    disk = SimulatedDisk(random.Random(1))
    store = Store("/c", disk)
    for number in range(6):
        written(store, number, whole=number in (0, 3))
        assert Store("/c", disk).latest().number == number
    assert store.numbers() == [3, 4, 5]
    task = Store("/c", disk).latest().content["tasks"]["sum"][0]
    assert (task["state"], task["changes"]) == (b"3", [b"4", b"5"])
    written(store, 6, whole=True)
    assert store.numbers() == [3, 4, 5, 6], "the one before can be gone on from too"
    written(Store("/c", disk), 7, whole=False)  # another run knows as well
    assert store.numbers() == [6, 7]


def test_changes_whose_base_is_gone_are_told_and_one_that_is_whole_is_used(caplog):
    disk = SimulatedDisk(random.Random(1))
    store = Store("/c", disk)
    for number in range(3):
        written(store, number, whole=number != 1)
    disk.unlink("/c/000000000.checkpoint")
    assert store.latest().number == 2
    disk.rot("/c/000000002.checkpoint", 60)
    with pytest.raises(RunError, match="no checkpoint in /c can be read"):
        store.latest()
    assert "checkpoint 0, which it builds on, is not there" in caplog.text


def test_a_run_that_is_cut_off_between_whole_checkpoints_goes_on(tmp_path):
    source, out, checkpoint = tmp_path / "in.jsonl", tmp_path / "out.jsonl", tmp_path / "checkpoint"
    source.write_text("".join(f'{{"k":{i % 3},"x":{i}}}\n' for i in range(4000)))

    def padded(state, record):  # more than what is always saved whole
        total = (state[0] if state else 0) + record["x"]
        return (total, "x" * 500_000), {"k": record["k"], "total": total}

    def flow(rate):
        made = Flow("padded")
        read = made.read("read", io.Replay(io.JsonLines(source, GIVEN), rate=rate, loop=False))
        read.key_by("k").process("sum", padded, out=OUT).write("write", io.JsonLines(out))
        return made

    for _ in range(3):
        run = engine.start(flow(200), checkpoint=checkpoint, every="10 ms")
        while run.checkpointer.to_json()["complete"] < 5 and not run.done.is_set():
            time.sleep(0.01)
        run.abort()
        run.wait()
    assert any(not task["whole"] for task in Store(checkpoint).latest().content["tasks"]["sum"])
    engine.run(flow(1e6), checkpoint=checkpoint)
    totals, expected = [0, 0, 0], []
    for i in range(4000):
        totals[i % 3] += i
        expected.append((i % 3, totals[i % 3]))
    assert sorted(tuple(json.loads(line).values()) for line in out.read_text().splitlines()) == sorted(expected)
