"""A flow that keeps all kinds of state, for runs in lanes that are killed and go on; and what its sinks hold."""

import json
from collections import Counter

from headwater import Flow, agg, col, io
from headwater.flow.windows import Tumbling

RECORDS = 6_000


def flow(folder, rate=1e9, count=RECORDS):
    """State by key, windows of event time, a join and a pattern; every result can be told from all others."""
    made = Flow("lanes kept")

    def numbers(at):
        return {"key": [f"k{n % 13}" for n in at.tolist()], "n": at, "at": at * 100_000 + (at * 7919 % 11) * 100_000}

    def source():
        return io.Generate(numbers, {"key": str, "n": int, "at": "time"}, rate=rate, count=count)

    left = made.read("left", source()).event_time("time", "at", lateness="2 s")
    right = made.read("right", source()).event_time("its time", "at", lateness="2 s")
    keyed = left.filter("some", col.n % 7 != 3).key_by("key")
    summed = keyed.process("sum", add_up, out={"key": str, "n": int, "total": int})
    summed.write("sums", io.JsonLines(folder / "sums.jsonl"))
    keyed.window("minute", Tumbling("1 min"), count=agg.count(), highest=agg.max("n")).write(
        "windows", io.JsonLines(folder / "windows.jsonl")
    )
    joined = keyed.join("pair", right.key_by("key"), within="1 s")
    joined.select("pairs", "key", n=col.n, other=col["its time_n"]).write(
        "joined", io.JsonLines(folder / "pairs.jsonl")
    )
    made.query(
        "query",
        "from every a = time -> b = time[a.key == b.key and b.n == a.n + 13] within 1 min "
        "select a.n as first, b.n as second, a.key as key insert into found",
    ).write("found", io.JsonLines(folder / "found.jsonl"))
    return made


def add_up(total, record):
    total = (total or 0) + record["n"]
    return total, {"key": record["key"], "n": record["n"], "total": total}


def held(folder):
    return {
        path.name: Counter(tuple(json.loads(line).items()) for line in path.read_text().splitlines())
        for path in sorted(folder.glob("*.jsonl"))
    }
