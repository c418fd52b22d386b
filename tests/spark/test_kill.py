"""Kill -9 at random moments under load, restart with the same checkpoint: each record is in every sink exactly once.

HEADWATER_KILLS=20 python -m pytest tests/spark/test_kill.py -s
"""

import csv
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from killed_flow import KEYS

import headwater.spark
from headwater import Flow, io

KILLS = int(os.environ.get("HEADWATER_KILLS", 2))
RATE = 1000
PATIENCE_S = 600
NO_END = 10**9


def start(folder, records):
    script = Path(__file__).with_name("killed_flow.py")
    with (folder / "said").open("ab") as said:
        return subprocess.Popen(
            [sys.executable, script, folder, str(records), str(RATE)],
            stdout=said, stderr=said, start_new_session=True,
        )  # fmt: skip


def committed(folder):
    """Return the last micro-batch that Spark knows to be done, -1 before the first."""
    return max((int(path.name) for path in folder.glob("checkpoint/query/commits/[0-9]*")), default=-1)


def wait_for_progress(process, folder):
    before, until = committed(folder), time.monotonic() + PATIENCE_S
    while committed(folder) <= max(before, 0):  # the first one may be empty
        assert process.poll() is None, (folder / "said").read_text()[-2000:]
        assert time.monotonic() < until, "no progress"
        time.sleep(0.01)


def kill(process, *, driver_alone):
    """Kill the driver; Java ends by itself when the driver is gone, unless it is killed too."""
    if driver_alone:
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    until = time.monotonic() + PATIENCE_S
    while group_lives(process.pid):
        assert time.monotonic() < until, "Java outlived its driver"
        time.sleep(0.05)


def group_lives(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def planned(folder):
    """Return how many records the last micro-batch that was begun goes up to."""
    offsets = max(folder.glob("checkpoint/query/offsets/[0-9]*"), key=lambda path: int(path.name))
    return json.loads(offsets.read_text().splitlines()[-1])["number"]


def numbers_in(folder):
    """Return the numbers that each sink holds, in whichever order."""
    with (folder / "out.csv").open() as file:
        rows = [int(row["n"]) for row in csv.DictReader(file)]
    database = sqlite3.connect(folder / "out.db")
    found = {
        "JSON Lines": [json.loads(line)["n"] for line in (folder / "out.jsonl").read_text().splitlines()],
        "CSV": rows,
        "Parquet table": ds.dataset(folder / "table", partitioning="hive").to_table()["n"].to_pylist(),
        "Parquet": ds.dataset(folder / "out.parquet").to_table()["n"].to_pylist(),
        "SQLite": [n for (n,) in database.execute("SELECT n FROM numbers")],
        "counted by key": [json.loads(line)["n"] for line in (folder / "counted.jsonl").read_text().splitlines()],
    }
    database.close()
    return found


@pytest.mark.thorough  # test_sinks.py shows it of each sink without Spark
def test_each_record_is_in_every_sink_exactly_once_whenever_the_driver_is_killed(tmp_path):
    choose = random.Random(KILLS)
    for number in range(KILLS):
        process = start(tmp_path, NO_END)
        wait_for_progress(process, tmp_path)
        time.sleep(choose.uniform(0, 2.5))
        assert process.poll() is None, (tmp_path / "said").read_text()[-2000:]
        kill(process, driver_alone=number % 2 == 0)
    records = planned(tmp_path) + 2 * RATE
    process = start(tmp_path, records)
    assert process.wait(PATIENCE_S) == 0, (tmp_path / "said").read_text()[-2000:]

    expected = [n for n in range(records) if n % 10]
    batches = len(list(tmp_path.glob("checkpoint/query/commits/*")))
    print(f"\n{KILLS} kills, {records:,} records made, {len(expected):,} for each sink, {batches} micro-batches kept")
    wrong = {}
    for sink, found in numbers_in(tmp_path).items():
        counts = Counter(found)
        lost, twice = len(set(expected) - set(counts)), sum(counts.values()) - len(counts)
        print(f"{sink:>15}: {len(found):,} records, {lost} lost, {twice} twice")
        if sorted(found) != expected:
            wrong[sink] = (lost, twice)
    assert not wrong
    places = {key: [] for key in range(KEYS)}
    for line in (tmp_path / "counted.jsonl").read_text().splitlines():
        record = json.loads(line)
        places[record["key"]].append((record["n"], record["place"]))
    for found in places.values():
        assert [place for _, place in sorted(found)] == list(range(1, len(found) + 1))


def test_a_run_that_was_killed_just_before_it_could_say_that_it_was_done_ends_at_once(spark, tmp_path):
    def run():
        flow = Flow("numbers")
        made = flow.read("made", io.Generate(lambda n: {"n": n}, {"n": int}, 1e6, count=100))
        made.write("lines", io.JsonLines(tmp_path / "out.jsonl"))
        return headwater.spark.run(flow, checkpoint=tmp_path / "checkpoint")

    run()
    note = tmp_path / "checkpoint" / "headwater.json"
    note.write_text(json.dumps({**json.loads(note.read_text()), "ended": False}))
    assert run().last.records_in == 0
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 100
