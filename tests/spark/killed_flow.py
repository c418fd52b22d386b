"""The flow that test_kill.py kills: numbers at a rate, counted by key, into every sink that promises exactly once."""

import sys
from pathlib import Path

from headwater import Flow, col, io, spark

KEYS = 7


def numbers(n):
    return {"n": n, "key": n % KEYS}


def count(state, record):
    """Number the records of each key: shows whether state is neither lost nor counted twice."""
    state = (state or 0) + 1
    return state, {"n": record["n"], "key": record["key"], "place": state}


def built(folder, records, rate):
    flow = Flow("killed")
    source = io.Generate(numbers, {"n": int, "key": int}, rate, count=records)
    made = flow.read("numbers", source)
    kept = made.filter("no tens", col.n % 10 != 0)
    kept.write("lines", io.JsonLines(folder / "out.jsonl"))
    kept.write("rows", io.Csv(folder / "out.csv"))
    kept.write("table", io.ParquetTable(folder / "table", by="key"))
    kept.write("file", io.Parquet(folder / "out.parquet"))
    kept.write("database", io.Sqlite(folder / "out.db", "numbers"))
    counted = kept.key_by("key").process("count", count, out={"n": int, "key": int, "place": int})
    counted.write("counted", io.JsonLines(folder / "counted.jsonl"))
    return flow


if __name__ == "__main__":
    place, total, rate_hz = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    report = spark.run(built(place, total, rate_hz), master="local[2]", checkpoint=place / "checkpoint")
    print("done", report.last.records_in)
