"""A checkpoint of so many lanes goes on with another number: what comes out is what comes out undisturbed."""

import json
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pyarrow.dataset as ds
import pytest

from headwater import Flow, agg, col, engine, io
from headwater.errors import RunError
from headwater.flow.state import Cell
from headwater.flow.windows import Sliding, Tumbling
from headwater.operators import Operator
from kept_flow import add_up
from killed import cut_off
from properties import share_of
from waiting import PATIENCE_S

RECORDS = 4_000


def flow(folder, keys=13, rate=1e9, count=RECORDS, spread_by=("key",)):
    """State by key, windows of event time with late records, a join, a query; sinks of one lane and of all."""
    made = Flow("rescaled")

    def numbers(at):
        late = (at % 97 == 0) * 40_000_000  # behind what the lateness allows
        return {
            "key": [f"k{n % keys}" for n in at.tolist()],
            "part": at % 3,
            "n": at,
            "at": 10**9 + at * 100_000 + (at * 7919 % 11) * 100_000,
            "rough": 10**9 + at * 100_000 - late,
        }

    def source():
        fields = {"key": str, "part": int, "n": int, "at": "time", "rough": "time"}
        return io.Generate(numbers, fields, rate=rate, count=count)

    left = made.read("left", source()).event_time("time", "at", lateness="2 s")
    right = made.read("right", source()).event_time("its time", "at", lateness="2 s")
    keyed = left.filter("some", col.n % 7 != 3).key_by("key")
    keyed.process("sum", add_up, out={"key": str, "n": int, "total": int}).write(
        "sums", io.JsonLines(folder / "sums.jsonl")
    )
    paired = keyed.join("pair", right.key_by("key"), within="1 s").select(
        "pairs", "key", n=col.n, other=col["its time_n"]
    )
    paired.write("joined", io.Sqlite(folder / "pairs.db", table="pairs"))
    paired.key_by("key").process("again", add_up, out={"key": str, "n": int, "total": int}).write(
        "table", io.ParquetTable(folder / "again")
    )
    rough = made.read("third", source()).event_time("rough time", "rough", lateness="1 s")
    windows = rough.key_by(*spread_by, "part").window(
        "windows", Sliding("20 s", every="5 s"), count=agg.count(), highest=agg.max("n")
    )
    windows.write("counted", io.JsonLines(folder / "windows.jsonl"))
    windows.late.write("late", io.JsonLines(folder / "late.jsonl"))
    windows.key_by(*spread_by).window("more", Tumbling("1 min"), windows=agg.count()).write(
        "of windows", io.JsonLines(folder / "more.jsonl")
    )
    made.query(
        "query",
        "partition with (key of time) begin from every a = time -> b = time[b.n == a.n + 13] within 1 min "
        "select a.n as first, b.n as second, a.key as key insert into found end",
    ).write("found", io.JsonLines(folder / "found.jsonl"))
    return made


def held(folder):
    found = {
        path.name: Counter(tuple(sorted(json.loads(line).items())) for line in path.read_text().splitlines())
        for path in sorted(folder.glob("*.jsonl"))
    }
    with sqlite3.connect(folder / "pairs.db") as db:
        found["pairs"] = Counter(db.execute("select key, n, other from pairs").fetchall())
    rows = ds.dataset(folder / "again", format="parquet").to_table().to_pylist()
    # the order in which the pairs of a key come is that of two streams: the totals that it has on the way are open
    found["again"] = Counter((row["key"], row["n"]) for row in rows)
    found["totals"] = {
        key: max(row["total"] for row in rows if row["key"] == key) for key in {row["key"] for row in rows}
    }
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    report = engine.run(flow(folder), workers=1)
    found = held(folder)
    assert all(found.values())
    assert report.last.steps["windows"].late
    return found


def lanes_of(number):
    return {"workers": 1} if number == 1 else {"lanes": number}


@pytest.mark.parametrize("seed", range(share_of(4)))
def test_a_killed_run_goes_on_with_any_number_of_lanes(tmp_path, whole, seed):
    chance = random.Random(seed)
    lanes = chance.choice([1, 2, 3])
    for _ in range(5):
        rate = chance.choice([3_000, 5_000, 9_000])

        def run(lanes=lanes, rate=rate):
            engine.run(flow(tmp_path, rate=rate), checkpoint=tmp_path / "kept", every="20 ms", **lanes_of(lanes))

        if cut_off(run, 0.25 + chance.random() * 0.4):
            break
        lanes = chance.choice([other for other in (1, 2, 3) if other != lanes])
    engine.run(flow(tmp_path), checkpoint=tmp_path / "kept", **lanes_of(lanes))
    assert held(tmp_path) == whole


@pytest.mark.parametrize(
    ("before", "after"),
    [(1, 2), (3, 2), *(pytest.param(*lanes, marks=pytest.mark.thorough) for lanes in ((2, 1), (2, 3), (3, 1), (1, 3)))],
)
def test_a_stopped_run_goes_on_with_another_number_of_lanes(tmp_path, whole, before, after):
    run = engine.start(flow(tmp_path, rate=4_000), checkpoint=tmp_path / "kept", every="20 ms", **lanes_of(before))
    until = time.monotonic() + PATIENCE_S
    while run.report().extra["checkpoints"]["complete"] < 2 and time.monotonic() < until:
        time.sleep(0.02)
    run.stop()
    run.wait()
    report = engine.run(flow(tmp_path), checkpoint=tmp_path / "kept", **lanes_of(after))
    assert report.extra["checkpoints"]["resumed"] is not None
    assert held(tmp_path) == whole


def test_what_writers_of_lanes_that_are_no_more_had_prepared_is_there(tmp_path):
    """A lane's part of the last checkpoint is there, also where its run was killed before it could be seen."""
    folders = {name: tmp_path / name for name in ("table", "kept")}

    def numbers(rate=1e9):
        made = Flow("parts")
        read = made.read("read", io.Generate(lambda at: {"n": at}, {"n": int}, rate=rate, count=RECORDS))
        read.map("same", lambda record: record, out={"n": int}).write("table", io.ParquetTable(folders["table"]))
        return made

    for lanes in (3, 2, 3, 1, 2):

        def run(lanes=lanes):
            engine.run(numbers(6_000), checkpoint=folders["kept"], every="10 ms", **lanes_of(lanes))

        cut_off(run, 0.3)
    engine.run(numbers(), checkpoint=folders["kept"])
    rows = ds.dataset(folders["table"], format="parquet").to_table()["n"].to_pylist()
    assert sorted(rows) == list(range(RECORDS))


def test_lanes_by_a_column_that_the_state_does_not_tell_are_refused_with_what_would_do(tmp_path):
    def orders():
        made = Flow("orders")
        read = made.read("read", io.Items([{"order": n, "customer": n % 5} for n in range(500)]))
        together = read.key_by("customer").scan("sums", Sums(), out={"order": int, "customer": int, "total": int})
        together.key_by("order", of="customer").process("first", counted, out={"order": int, "customer": int}).write(
            "write", io.JsonLines(tmp_path / "out.jsonl")
        )
        return made

    engine.run(orders(), lanes=2, checkpoint=tmp_path / "kept")
    engine.run(orders(), lanes=1, checkpoint=tmp_path / "kept")
    with pytest.raises(RunError, match=r"step 'first' had 1 instance then and has 2 lanes now; its state is by order"):
        engine.run(orders(), lanes=2, checkpoint=tmp_path / "kept")


class Sums:
    """Counts what came of each key."""

    state: Mapping[str, Cell] = {"total": Cell("int64")}
    reads = ()
    makes = ("total",)

    def run(self, batch, slots, state):
        np.add.at(state["total"], slots, 1)
        return {"total": state["total"][slots]}


def counted(state, record):
    return (state or 0) + 1, {"order": record["order"], "customer": record["customer"]}


FLOW = """
from headwater import Flow, io

def added(total, record):
    total = (total or 0) + record["n"]
    return total, {"key": record["key"], "total": total}

flow = Flow("typed")
read = flow.read("read", io.JsonLines("in.jsonl", {"key": str, "n": int}))
read.key_by("key").process("sum", added, out={"key": str, "total": int}).write("write", io.JsonLines("out.jsonl"))
"""


def test_lanes_on_the_command_line_may_be_others_than_then(typed, tmp_path):
    (tmp_path / "flow.py").write_text(FLOW)
    (tmp_path / "in.jsonl").write_text("")
    for round_, lanes in enumerate((1, 2, 3, 1)):
        with (tmp_path / "in.jsonl").open("a") as file:
            file.writelines(f'{{"key":"k{n % 7}","n":1}}\n' for n in range(70))
        code, _, said = typed("run", "flow.py", "--checkpoint", "kept", "--lanes", lanes)
        assert code == 0, said
        totals = [json.loads(line)["total"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
        assert max(totals) == 10 * (round_ + 1)
    assert sorted(totals) == sorted(list(range(1, 41)) * 7)


class Keeper(Operator):
    """Saves what it keeps, and cannot part with some of it."""

    stateless = False

    def __init__(self):
        self.seen = {}

    def process(self, batch, port):
        for key in batch["key"].tolist():
            self.seen[key] = self.seen.get(key, 0) + 1
        return batch

    def snapshot(self, select=None):
        return json.dumps(self.seen).encode()

    def restore(self, data):
        for key, count in json.loads(data).items():
            self.seen[key] = self.seen.get(key, 0) + count


@pytest.mark.parametrize("keyed", [True, False])
def test_state_that_cannot_be_split_is_refused_with_its_step_and_what_would_do(tmp_path, keyed):
    def kept(parallel):
        made = Flow("kept")
        read = made.read("read", io.Items([{"key": f"k{n % 5}"} for n in range(50)]))
        stream = read.key_by("key") if keyed else read
        stream.apply("keep", Keeper, out={"key": str}, parallel=parallel).write("write", io.JsonLines(tmp_path / "out"))
        return made

    engine.run(kept(2), checkpoint=tmp_path / "kept")
    why = "has no method forget" if keyed else "not by key, so it cannot be split. Give it as many instances as it had"
    with pytest.raises(RunError, match=f"step 'keep' had 2 instances then and has 3 instances now; .*{why}"):
        engine.run(kept(3), checkpoint=tmp_path / "kept")
    engine.run(kept(2), checkpoint=tmp_path / "kept")
