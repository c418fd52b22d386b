"""A run that goes from the engine to Spark and back gives what one undisturbed run does: nothing lost, nothing twice."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from collections import Counter

import pyarrow.dataset as ds
import pytest

import moved_flow
from headwater import Flow, engine, io
from headwater import spark as on_spark
from headwater.deploy.takeover import take_over
from headwater.engine.checkpoint.listing import summaries as checkpoints
from headwater.errors import RunError
from headwater.spark.checkpoint import Checkpoint
from moved_flow import built, write_inputs, written

RECORDS = 6000
RATE = 25.0  #: so slow that no machine is at the end before it is stopped
PATIENCE_S = 200


def killed_on_the_engine(folder, checkpoint):
    """Run in a child until some checkpoints are there that have state, and kill it."""
    child = subprocess.Popen([sys.executable, moved_flow.__file__, folder, checkpoint, str(2 * RATE)])
    try:
        wait_for(lambda: read_of(checkpoint) >= 100, child)
    finally:
        child.kill()
        child.wait()


def read_of(checkpoint):
    """Return how many records of a source are in the last checkpoint that can be read."""
    if not any(checkpoint.glob("*.checkpoint")):
        return 0
    return max((each.positions["levels"][0] or 0 for each in checkpoints(checkpoint) if each.restorable), default=0)


def wait_for(condition, child=None):
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert child is None or child.poll() is None, "it has ended"
        assert time.monotonic() < until, "it takes too long"
        time.sleep(0.02)


def stopped_on_spark(flow, checkpoint):
    """Run until some micro-batches are done, and stop."""
    running = on_spark.start(flow, checkpoint=checkpoint)
    done = Checkpoint(checkpoint)
    wait_for(lambda: (done.committed() >= 1 and running.sample().records_in > 100) or running.done.is_set())
    running.stop()
    report = running.wait(PATIENCE_S)
    assert 0 < report.last.records_in < 2 * RECORDS
    return report


def test_a_flow_killed_on_the_engine_goes_on_on_spark_and_back(spark, tmp_path):
    moving, whole = tmp_path / "moving", tmp_path / "whole"
    for folder in (moving, whole):
        folder.mkdir()
        write_inputs(folder, RECORDS)
    engine.run(built(whole, 1e9))
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    killed_on_the_engine(moving, first)
    there = take_over(built(moving, RATE), first, second, buckets=3)
    assert there.on == "spark"
    assert there.positions["levels"] >= 100
    stopped_on_spark(built(moving, RATE), second)
    back = take_over(built(moving, 1e9, parallel=2), second, third)
    assert back.on == "engine"
    assert there.positions["levels"] < back.positions["levels"] < RECORDS
    engine.run(built(moving, 1e9, parallel=2), checkpoint=third)
    found, expected = written(moving), written(whole)
    for name, rows in expected.items():
        assert rows == found[name], name
    for origin, other in ((first, second), (second, third)):
        with pytest.raises(RunError, match=f"checkpoint {origin} was moved to {other} at .*go on from there"):
            engine.run(built(moving, 1e9), checkpoint=origin) if origin == first else on_spark.run(
                built(moving, 1e9), checkpoint=origin
            )


def placed(state, record):
    state = (state or 0) + 1
    return state, {"k": record["k"], "n": state}


def numbered(folder, rate, count, items):
    """Numbers that a generator makes and numbers in a list, each counted by key."""
    flow = Flow("numbered")
    made = flow.read("made", io.Generate(lambda n: {"n": n, "k": n % 5}, {"n": int, "k": int}, rate, count=count))
    listed = flow.read("listed", io.Items([{"n": n, "k": n % 5} for n in range(items)]))
    for name, stream in (("made", made), ("listed", listed)):
        counts = stream.key_by("k").process(f"count {name}", placed, out={"k": int, "n": int})
        counts.write(f"{name} lines", io.JsonLines(folder / f"{name}.jsonl"))
        stream.write(f"{name} rows", io.Sqlite(folder / f"{name}.db", "numbers"))
        stream.write(f"{name} table", io.ParquetTable(folder / f"{name} table"))
    return flow


def numbers_in(folder, name):
    database = sqlite3.connect(folder / f"{name}.db")
    rows = [n for (n,) in database.execute("SELECT n FROM numbers")]
    database.close()
    lines = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
    table = ds.dataset(folder / f"{name} table").to_table()["n"].to_pylist()
    return sorted(rows), sorted(table), Counter((line["k"], line["n"]) for line in lines)


def test_a_micro_batch_that_spark_had_not_noted_when_it_was_killed_comes_again_on_the_engine(spark, tmp_path):
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    engine.run(numbered(tmp_path, 1e6, 60, 100), checkpoint=first)
    flow = numbered(tmp_path, RATE, None, 200)
    take_over(flow, first, second, buckets=2)
    running = on_spark.start(flow, checkpoint=second)
    noted = Checkpoint(second)
    wait_for(lambda: noted.committed() >= 2 or running.done.is_set())
    running.stop()
    running.wait(PATIENCE_S)
    for path in (noted.folder / "query" / "commits").glob(
        f"*{noted.committed()}*"
    ):  # its sinks have it, and Spark does not know
        path.unlink()
    done = take_over(flow, second, third).positions["made"]
    assert done >= 60
    engine.run(numbered(tmp_path, 1e6, done + 500, 200), checkpoint=third)
    for name, count in (("made", done + 500), ("listed", 200)):
        rows, table, lines = numbers_in(tmp_path, name)
        assert rows == table == list(range(count)), name
        assert lines == Counter((n % 5, n // 5 + 1) for n in range(count)), name
