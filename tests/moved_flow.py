"""The flow that test_takeover.py moves between engine and Spark; run as a script, on the engine, until it is killed."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections import Counter
from pathlib import Path

import pyarrow.dataset as ds

from headwater import Flow, agg, col, engine, io
from headwater.flow import Tumbling

FIELDS = {"k": int, "site": str, "x": int, "t": "time"}
SECOND = 1_000_000


def write_inputs(folder, records):
    """Write two files of records a second apart; of the first, some come half a minute late."""
    for name in ("levels", "gates"):
        late = 30 if name == "levels" else 0
        with (folder / f"{name}.jsonl").open("w") as file:
            for i in range(records):
                at = max(0, i - late) if i % 50 == 49 else i
                file.write(json.dumps({"k": i % 7, "site": "ab"[i % 2], "x": i, "t": at * SECOND}) + "\n")


def counted(state, record):
    """Number the records of each key: shows whether state is neither lost nor counted twice."""
    state = (state or 0) + 1
    return state, {"k": record["k"], "x": record["x"], "n": state}


def checked(record):
    if record["x"] % 97 == 0:
        raise ValueError("not today")
    return {"k": record["k"], "x": record["x"]}


def built(folder, rate, parallel=1):
    """State by key, a second key behind it, windows, a join, a pattern, dead letters; into every kind of sink."""
    out = folder / "out"
    out.mkdir(exist_ok=True)
    flow = Flow("moved")
    levels = flow.read("levels", _paced(folder / "levels.jsonl", rate))
    gates = flow.read("gates", _paced(folder / "gates.jsonl", rate)).event_time("gate", "t")
    numbers = levels.key_by("k").process("count", counted, out={"k": int, "x": int, "n": int}, parallel=parallel)
    numbers.write("counted", io.JsonLines(out / "counted.jsonl"))
    tens = (
        numbers.select("ten of", "n", ten=col.n % 10).key_by("ten").process("again", _again, out={"ten": int, "n": int})
    )
    tens.write("tens", io.Csv(out / "tens.csv"))
    timed = levels.event_time("time", "t", lateness="10 s")
    minutes = timed.key_by("site").window("minute", Tumbling("60 s"), n=agg.count(), total=agg.sum("x"))
    minutes.write("minutes", io.ParquetTable(out / "minutes"))
    punctual = levels.filter("punctual", col.x % 50 != 49).event_time("level", "t")
    pairs = punctual.key_by("k").join("pair", gates.key_by("k"), within="3 s")
    pairs.select("both", "k", a=col.x, b=col["gate_x"]).write("pairs", io.Sqlite(out / "pairs.db", "pairs"))
    found = flow.query(
        "query",
        "partition with (k of level) begin "
        "from every a = level -> b = level[b.x == a.x + 210] within 10 min "
        "select a.k as k, a.x as a, b.x as b insert into found end",
    )
    found.write("found", io.JsonLines(out / "found.jsonl"))
    levels.map("check", checked, out={"k": int, "x": int}).write("checked", io.Parquet(out / "checked.parquet"))
    flow.dead_letters.write("broken", io.JsonLines(out / "broken.jsonl"))
    return flow


def written(folder):
    """Return what each sink holds, in whichever order."""
    out = folder / "out"
    found = {path.stem: path.read_text().splitlines() for path in [*out.glob("*.jsonl"), *out.glob("*.csv")]}
    database = sqlite3.connect(out / "pairs.db")
    found["pairs"] = list(database.execute("SELECT * FROM pairs"))
    database.close()
    for name, path in (("minutes", out / "minutes"), ("checked", out / "checked.parquet")):
        found[name] = [tuple(sorted(row.items())) for row in ds.dataset(path).to_table().to_pylist()]
    return {name: Counter(rows) for name, rows in found.items()}


def _again(state, record):
    state = (state or 0) + 1
    return state, {"ten": record["ten"], "n": state}


def _paced(path, rate):
    return io.Replay(io.JsonLines(path, FIELDS), rate=rate, loop=False)


if __name__ == "__main__":
    place, checkpoint, rate_hz = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
    engine.run(built(place, rate_hz), checkpoint=checkpoint, every="50 ms")
