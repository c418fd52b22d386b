"""Every file sink, read back: what is on disk is what the report says was written, and the rest are dead letters.

A new sink of `headwater.io` has to be given a case here, or be named among those that keep no file.
"""

import csv
import inspect
import json
import sqlite3
from collections import Counter
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from headwater import Flow, engine, io

#: sinks with no file to read back, and where they are tested
ELSEWHERE = {
    "Collect": "memory",
    "Console": "the terminal",
    "Discard": "nowhere",
    "Failing": "nowhere",
    "Forward": "forwarding/test_forward.py",
    "Http": "posting/test_http.py",
    "Iceberg": "test_iceberg.py",
    "Jdbc": "on Spark only",
    "Kafka": "test_kafka.py",
    "Mqtt": "test_mqtt.py",
    "Postgres": "test_postgres.py",
    "SparkTable": "on Spark only",
}


def json_lines(path):
    return [json.loads(line)["n"] for line in path.read_text().splitlines()]


def csv_rows(path):
    with path.open(newline="") as file:
        return [int(row["n"]) for row in csv.DictReader(file)]


def sqlite_rows(path):
    with sqlite3.connect(path) as connection:
        return [n for (n,) in connection.execute("SELECT n FROM t")]


def dataset_rows(path):
    return ds.dataset(path, partitioning="hive").to_table()["n"].to_pylist()


def by_id(path):
    return io.ParquetTable(path, by="id")


#: class name → how to make it for a path, how to read its `n` back
CASES: dict[str, list[Any]] = {
    "JsonLines": [(io.JsonLines, json_lines)],
    "Csv": [(io.Csv, csv_rows)],
    "Parquet": [(io.Parquet, lambda path: pq.read_table(path)["n"].to_pylist())],
    "ParquetTable": [(io.ParquetTable, dataset_rows), (by_id, dataset_rows)],
    "Sqlite": [(lambda path: io.Sqlite(path, "t"), sqlite_rows), (lambda path: io.Sqlite(path, "t", "n"), sqlite_rows)],
}
SCHEMA = {"n": int, "id": str, "extra": object}


class NoJson:
    """What no file can hold."""


def records(count, *, dead):
    """Every seventh record holds what cannot be written, if `dead`."""
    broken = NoJson()
    return [
        {"n": n, "id": ["a/b", "", None, "__EMPTY__", "é"][n % 5], "extra": broken if dead and n % 7 == 3 else {"n": n}}
        for n in range(count)
    ]


def is_sink(made):
    return inspect.isclass(made) and "write" not in vars(made) and hasattr(made, "open") and _opens_to_write(made)


def _opens_to_write(made):
    first = list(inspect.signature(made.open).parameters)[1]
    return first in ("schema", "reject_or_schema")


def test_every_sink_has_a_case_here():
    sinks = {name for name in io.__all__ if is_sink(getattr(io, name))} | {"Discard", "Failing"}
    assert sinks == {*CASES, *ELSEWHERE}
    assert {"JsonLines", "Mqtt", "Console"} <= sinks


@pytest.mark.parametrize("parallel", [1, 2, 3, 4])
@pytest.mark.parametrize(("name", "case"), [(name, case) for name, cases in CASES.items() for case in cases])
def test_what_is_on_disk_is_what_the_report_says(tmp_path, name, case, parallel):
    make, read = case
    for count, dead in ((0, False), (1, False), (1000, True), (5000, False)):
        path = tmp_path / f"{count}"
        flow, letters = Flow("sink"), io.Collect()
        flow.read("in", io.Items(records(count, dead=dead), SCHEMA)).write("out", make(path), parallel=parallel)
        flow.dead_letters.write("letters", letters)
        report = engine.run(flow)
        expected = [n for n in range(count) if not (dead and n % 7 == 3)]
        found = read(path) if count or name != "ParquetTable" else []
        assert Counter(found) == Counter(expected)
        assert report.last.records_out["out"] == len(expected)
        assert report.last.steps["out"].dead_letters == report.dead_letters == count - len(expected)
        assert report.last.records_in == count
        assert len(letters.records) == count - len(expected)
        assert all("no JSON form" in letter["error"] for letter in letters.records)


@pytest.mark.parametrize("name", ["JsonLines", "Csv", "Parquet", "Sqlite"])
def test_one_writer_keeps_the_order_of_records(tmp_path, name):
    make, read = CASES[name][0]
    flow = Flow("order")
    flow.read("in", io.Items(records(3000, dead=False), SCHEMA)).write("out", make(tmp_path / "x"), parallel=3)
    engine.run(flow)
    assert read(tmp_path / "x") == list(range(3000))


def test_the_published_messages_of_etl_are_all_in_one_file(tmp_path):
    from headwater_bench.riot.etl import etl
    from headwater_bench.riot.sources import generated

    report = engine.run(etl(generated("CITY", 100_000, count=2000), publish=io.JsonLines(tmp_path / "p.jsonl")))
    lines = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert len(lines) == report.last.records_out["publish"] > 0
