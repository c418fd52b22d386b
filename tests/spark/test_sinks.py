"""Sinks hold each record once, however often and wherever writing was cut off."""

import random
from typing import Any

import pyarrow.dataset as ds
import pytest

from headwater import Batch, Flow, Schema, io
from headwater.errors import FlowError, InputError
from headwater.flow.endpoints import StagedWriter
from headwater.io.transactions.journal import Journal
from headwater.io.transactions.table import TableParts
from headwater.spark.sinks import delivery_text, guarantee, open_sink
from headwater_bench.riot.in_order import InOrder
from numbers_in import csv_numbers, json_numbers, sqlite_numbers

SCHEMA = Schema.of({"n": int, "city": str})
BATCHES = 12


def of(numbers):
    return Batch.of({"n": list(numbers), "city": [f"c{n % 3}" for n in numbers]}, SCHEMA)


def micro_batch(number):
    """Two batches, the same whenever a micro-batch is processed again."""
    first = number * 20
    return [of(range(first, first + 7)), of(range(first + 7, first + 20))]


def step_for(sink, name="out/1"):
    flow = Flow("f")
    flow.read("in", io.Items([], SCHEMA)).write(name, sink)
    return flow.steps[name]


def table_numbers(path):
    return ds.dataset(path, partitioning="hive").to_table()["n"].to_pylist()


KINDS = {
    "json lines": (lambda path: io.JsonLines(path), json_numbers),
    "csv": (lambda path: io.Csv(path), csv_numbers),
    "sqlite": (lambda path: io.Sqlite(path, "t"), sqlite_numbers),
    "parquet": (lambda path: io.Parquet(path), table_numbers),
    "table": (lambda path: io.ParquetTable(path, by="city"), table_numbers),
    "in order": (lambda path: InOrder(io.JsonLines(path), ["n"]), json_numbers),
}


def begun(sink, batch_id):
    """Begin a micro-batch as the runner does; say whether it has still to be written."""
    if batch_id <= sink.committed:
        return False
    sink.rollback()
    return True


class Killed(Exception):  # noqa: N818  no error, but an end
    """Stands for a kill -9 at this place."""


def write_all(sink, batch_id, kill_at, monkeypatch):
    """Write a micro-batch as the runner does, up to the place where the process is killed."""
    if begun(sink, batch_id):
        for number, batch in enumerate(micro_batch(batch_id)):
            if kill_at == f"write {number}":
                raise Killed
            if isinstance(sink, TableParts) and number:
                sink.stage(sink.staging.write(batch)[0])
            else:
                sink.write(batch)
        if kill_at == "before commit":
            raise Killed
        if kill_at == "in commit":
            with monkeypatch.context() as patch:
                patch.setattr(TableParts, "_publish", lambda self, part, safe: (_ for _ in ()).throw(Killed))
                sink.commit(batch_id)
        else:
            sink.commit(batch_id)
    if kill_at is not None:
        raise Killed


@pytest.mark.parametrize("kind", KINDS)
def test_each_record_is_there_once_however_often_the_process_was_killed(tmp_path, monkeypatch, kind):
    make, numbers = KINDS[kind]
    step = step_for(make(tmp_path / "out"))
    assert guarantee(step) == "exactly once"
    choose = random.Random(kind)
    places = ["write 0", "write 1", "before commit", "in commit", "after commit"]
    sink, batch_id, kills = open_sink(step, tmp_path / "checkpoint"), 0, 0
    while batch_id < BATCHES:
        kill_at = choose.choice([None, *places])
        try:
            write_all(sink, batch_id, kill_at, monkeypatch)
            batch_id += 1
        except Killed:
            kills += 1
            if kind in ("sqlite", "json lines", "csv"):
                sink.close()  # as the system does: uncommitted records are gone, files are nobody's
            step = step_for(make(tmp_path / "out"))
            sink = open_sink(step, tmp_path / "checkpoint")
    sink.close()
    assert kills >= 10
    assert sorted(numbers(tmp_path / "out")) == list(range(BATCHES * 20))


def numbers_after_two_checkpoints(folder, kind):
    """Write the same numbers with two checkpoints; return what is there then."""
    make, numbers = KINDS[kind]
    for run in ("a", "b"):
        sink = open_sink(step_for(make(folder / "out")), folder / run)
        assert begun(sink, 0)
        sink.write(of([1, 2]))
        sink.commit(0)
        sink.close()
    return numbers(folder / "out")


@pytest.mark.parametrize("kind", ["json lines", "csv", "parquet"])
def test_a_new_checkpoint_begins_a_file_anew(tmp_path, kind):
    assert numbers_after_two_checkpoints(tmp_path, kind) == [1, 2]


@pytest.mark.parametrize("kind", ["sqlite", "table"])
def test_a_new_checkpoint_adds_to_a_table(tmp_path, kind):
    assert sorted(numbers_after_two_checkpoints(tmp_path, kind)) == [1, 1, 2, 2]


def test_a_reader_never_sees_files_of_a_micro_batch_that_is_not_committed(tmp_path):
    sink: Any = open_sink(step_for(io.ParquetTable(tmp_path / "t", by="city")), tmp_path / "checkpoint")
    assert begun(sink, 0)
    sink.stage(sink.staging.write(of(range(9)))[0])
    assert ds.dataset(tmp_path / "t").files == []
    sink.commit(0)
    assert sorted(table_numbers(tmp_path / "t")) == list(range(9))
    assert not any((tmp_path / "t").rglob("part.parquet"))


def test_a_file_that_is_shorter_than_it_was_is_not_written_on(tmp_path):
    step = step_for(io.JsonLines(tmp_path / "out"))
    sink = open_sink(step, tmp_path / "checkpoint")
    begun(sink, 0)
    sink.write(of([1]))
    sink.commit(0)
    (tmp_path / "out").write_text("")
    with pytest.raises(InputError, match="was it replaced"):
        open_sink(step, tmp_path / "checkpoint")


def test_what_sqlite_cannot_take_does_not_take_the_rest_with_it(tmp_path):
    schema = Schema.of({"n": "any"})
    flow = Flow("f")
    flow.read("in", io.Items([], schema)).write("out", io.Sqlite(tmp_path / "db", "t"))
    sink = open_sink(flow.steps["out"], tmp_path / "checkpoint")
    begun(sink, 0)
    sink.write(Batch.of({"n": [1]}, schema))
    assert set(sink.write(Batch.of({"n": [2, object()]}, schema))) == {1}
    sink.write(Batch.of({"n": [3]}, schema))
    sink.commit(0)
    assert sqlite_numbers(tmp_path / "db") == ["1", "2", "3"]


def test_other_sinks_get_a_micro_batch_again_only_if_it_was_cut_short(tmp_path):
    kept = io.Collect()
    step = step_for(kept)
    assert guarantee(step) == "at least once"
    sink = open_sink(step, tmp_path)
    assert begun(sink, 0)
    sink.write(of([1]))
    sink.commit(0)
    assert not begun(open_sink(step, tmp_path), 0)
    assert begun(open_sink(step, tmp_path), 1)
    assert [row["n"] for row in kept.records] == [1]


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_told_who_writes_a_sink(tmp_path, kind):
    step = step_for(KINDS[kind][0](tmp_path / "out"))
    parts = open_sink(step, tmp_path / "checkpoint")
    parts.close()
    who = "tasks" if isinstance(parts, StagedWriter) else "the driver"
    assert delivery_text(step) == f"written by {who}, exactly once"


def test_a_journal_that_is_no_journal_is_said_to_be_one(tmp_path):
    (tmp_path / "written").write_text("{")
    with pytest.raises(InputError, match="what a sink has written"):
        Journal(tmp_path / "written")


def test_a_database_behind_jdbc_holds_each_record_once(spark, tmp_path):
    """Derby, which comes with Spark, stands for all databases."""
    spark._jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    url = f"jdbc:derby:{tmp_path}/base;create=true"
    step = step_for(io.Jdbc(url, "readings"))
    assert guarantee(step) == "exactly once"
    for batch_id, kill_at in ((0, None), (1, "before commit"), (1, "after commit"), (1, None), (2, None)):
        sink: Any = open_sink(step, tmp_path / "checkpoint")
        if begun(sink, batch_id):
            for batch in micro_batch(batch_id):
                sink.write(batch)
            if kill_at == "before commit":
                sink._stage()
                continue
            sink.commit(batch_id)
        if kill_at is None:
            sink.close()
    rows = spark.read.jdbc(url, "readings").collect()
    assert sorted((row.n, row.city) for row in rows) == [(n, f"c{n % 3}") for n in range(60)]


def test_a_database_that_is_not_there_is_said_to_be_so(spark, tmp_path):
    spark._jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    step = step_for(io.Jdbc(f"jdbc:derby:{tmp_path}/absent", "readings"))
    with pytest.raises(InputError, match=r"cannot write jdbc:derby.*absent table readings"):
        open_sink(step, tmp_path / "checkpoint")
    with pytest.raises(FlowError, match="on Spark only"):
        step.kind.sink.open(SCHEMA)
    with pytest.raises(FlowError, match="begins with jdbc:"):
        io.Jdbc("postgresql://host/base", "readings")
