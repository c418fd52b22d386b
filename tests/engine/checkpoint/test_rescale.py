"""Runs that go on with another number of instances, or with other sources."""

import json
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from headwater import Flow, agg, col, engine, io
from headwater.errors import RunError
from headwater.flow import Tumbling
from headwater.flow.state import Cell
from killed import cut_off

FIELDS = {"k": int, "x": int, "t": "time"}
RECORDS = 1200


class Sums:
    """Adds up what came of each key."""

    state: Mapping[str, Cell] = {"total": Cell("int64")}

    def run(self, batch, slots, state):
        np.add.at(state["total"], slots, 1)
        return {"x": batch["x"]}


def counted(state, record):
    return (state or 0) + 1, {"k": record["k"], "x": (state or 0) + 1}


def windows(left, right, parallel):
    keyed = left.key_by("k")
    return keyed.window("window", Tumbling("50 s"), n=agg.count(), parallel=parallel).select("cut", "k", "n", "start")


def joined(left, right, parallel):
    pairs = left.key_by("k").join("pair", right.key_by("k"), within="3 s", parallel=parallel)
    return pairs.select("cut", "k", a=col.x, b=col["time 1_x"])


def scanned(left, right, parallel):
    return left.key_by("k").scan("sums", Sums(), out=FIELDS, parallel=parallel).select("cut", "k", "x")


def upstream(left, right, parallel):
    """The step before a window has another number of instances; the window itself has not."""
    first = left.key_by("k").process("count", counted, out={"k": int, "x": int}, parallel=parallel)
    return first.key_by("k").process("again", counted, out={"k": int, "x": int}, parallel=2)


def queried(left, right, parallel):
    """A pattern over the records of each key: attempts that have begun go where their keys go."""
    made = left.filter("seen", col.x >= 0).flow
    found = made.query(
        "query",
        "partition with (k of seen) begin "
        "from every a = seen -> b = seen[b.x == a.x + 210] within 10 min "
        "select a.k as k, a.x as a, b.x as b insert into found end",
    )
    assert made.steps["query"].inputs[0].keys == ("k",)
    made.steps["query"] = replace(made.steps["query"], parallel=parallel)
    return found


def flow(folder, make, parallel, rate, sink):
    made = Flow("rescaled")
    read = [
        made.read(
            f"read {n}", io.Replay(io.JsonLines(folder / f"{n}.jsonl", FIELDS), rate=rate, loop=False)
        ).event_time(f"time {n}", "t")
        for n in range(2)
    ]
    make(*read, parallel).write("write", sink)
    read[1].write("rest", io.Collect())
    return made


def undisturbed(folder, make):
    """Write the inputs; return what one run to the end makes of them."""
    for n in range(2):
        lines = (f'{{"k":{i % 7},"x":{i},"t":{(i + n) * 1_000_000}}}\n' for i in range(RECORDS))
        (folder / f"{n}.jsonl").write_text("".join(lines))
    whole = io.Collect()
    engine.run(flow(folder, make, 1, 1e9, whole))
    return whole


@pytest.mark.parametrize("make", [windows, joined, scanned, upstream, queried])
def test_instances_may_change_after_a_stop(tmp_path, make):
    whole = undisturbed(tmp_path, make)
    out = tmp_path / "out.jsonl"
    for parallel in (1, 3, 2, 4):
        seconds = 0.15 if parallel != 4 else None
        rate = 3000 if seconds else 1e9
        engine.run(
            flow(tmp_path, make, parallel, rate, io.JsonLines(out)), checkpoint=tmp_path / "kept", seconds=seconds
        )
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert sorted(map(plain, found)) == sorted(map(plain, whole.records))


@pytest.mark.parametrize("make", [windows, joined, queried])
def test_instances_may_change_after_a_kill(tmp_path, make):
    """They have come differently far when they are saved; what was on its way to them brings them to one moment."""
    whole = undisturbed(tmp_path, make)
    out = tmp_path / "out.jsonl"
    for parallel in (1, 3, 2):

        def run(parallel=parallel):
            flow_ = flow(tmp_path, make, parallel, 2000, io.JsonLines(out))
            engine.run(flow_, checkpoint=tmp_path / "kept", every="20 ms")

        cut_off(run, 0.25)
    engine.run(flow(tmp_path, make, 4, 1e9, io.JsonLines(out)), checkpoint=tmp_path / "kept")
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert sorted(map(plain, found)) == sorted(map(plain, whole.records))


def plain(record):
    return tuple(str(record[name]) for name in ("k", "n", "x", "a", "b") if name in record)


def test_sources_may_be_added_and_taken_away(tmp_path):
    for name, first in (("a", 0), ("b", 100)):
        (tmp_path / name).write_text("".join(f'{{"k":1,"x":{first + i},"t":0}}\n' for i in range(50)))

    def sources(*names):
        made = Flow("sources")
        first, *others = [made.read(name, io.JsonLines(tmp_path / name, FIELDS)) for name in names]
        read = first.union("all", *others) if others else first.filter("all", col.x >= 0)
        read.key_by("k").process("count", counted, out={"k": int, "x": int}).write(
            "write", io.JsonLines(tmp_path / "out")
        )
        return made

    engine.run(sources("a"), checkpoint=tmp_path / "kept")
    with pytest.raises(RunError, match="step 'all' was of kind Filter then, and is Union now"):
        engine.run(sources("a", "b"), checkpoint=tmp_path / "kept")
    (tmp_path / "kept two").mkdir()
    (tmp_path / "out").unlink()
    engine.run(sources("a", "b"), checkpoint=tmp_path / "kept two")
    (tmp_path / "c").write_text('{"k":1,"x":7,"t":0}\n')
    engine.run(sources("a", "c"), checkpoint=tmp_path / "kept two")
    assert len((tmp_path / "out").read_text().splitlines()) == 101
