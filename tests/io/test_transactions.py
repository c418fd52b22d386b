"""Sinks in parts that are prepared first: after a kill the run says which part counts, and each record is there once."""

import json
import os
import random
import sqlite3
from contextlib import contextmanager, nullcontext
from shutil import rmtree
from threading import Thread

import pyarrow.dataset as ds
import pytest

from headwater import Batch, Flow, Schema, engine, io
from headwater.errors import FlowError, InputError, RunError
from headwater.flow.endpoints import delivery_of
from headwater.io.files import replace_whole
from headwater.io.transactions import journal, ledger_of, transaction_of
from headwater.io.transactions import sqlite as sqlite_parts
from headwater.io.transactions import table as table_parts
from headwater.io.transactions.spool import Spool
from numbers_in import csv_numbers, json_numbers, sqlite_numbers

SCHEMA = Schema.of({"n": int, "city": str})
PARTS = 25


def of(numbers):
    return Batch.of({"n": list(numbers), "city": [f"c{n % 3}" for n in numbers]}, SCHEMA)


def table_numbers(path):
    return ds.dataset(path, partitioning="hive").to_table()["n"].to_pylist()


class AtTheEnd:
    """A sink that writes all it was given when it is closed."""

    delivery = "transactional"

    def __init__(self, path):
        self.path = path

    def open(self, schema):
        return io.JsonLines(self.path).open(schema)

    def transaction(self, schema, ledger):
        return Spool(self, schema, ledger)


KINDS = {
    "json lines": (lambda path: io.JsonLines(path), json_numbers),
    "csv": (lambda path: io.Csv(path), csv_numbers),
    "sqlite": (lambda path: io.Sqlite(path, "t"), sqlite_numbers),
    "sqlite with a key": (lambda path: io.Sqlite(path, "t", key="n"), sqlite_numbers),
    "parquet": (lambda path: io.Parquet(path), table_numbers),
    "table": (lambda path: io.ParquetTable(path, by="city"), table_numbers),
    "at the end": (AtTheEnd, json_numbers),
}


class Checkpoints:
    """Writes 0, 1, 2, … as a run with checkpoints does: a part is prepared, others go on, and later it is committed.

    A source that is read again from the last checkpoint is the number with which that checkpoint's part ended.
    """

    def __init__(self, make, folder):
        self.make, self.folder = make, folder
        self.ends = {-1: 0}  # where the source was at each checkpoint that is whole
        self.kept = -1
        self.open()

    def open(self):
        ledger = ledger_of(self.folder / "checkpoint", "out", None if self.kept < 0 else self.kept)
        self.sink = transaction_of(self.make(self.folder / "out"), SCHEMA, ledger)
        assert self.sink.committed == self.kept
        self.next, self.number = self.ends[self.kept], self.kept
        self.begun = {}  # parts that are prepared, and whose checkpoint is not whole
        self.cutting = None  # what has the last part safe, until somebody calls it

    def write(self, count):
        assert not self.sink.write(of(range(self.next, self.next + count)))
        self.next += count

    def prepare(self):
        self.number += 1
        self.sink.prepare(self.number)
        self.begun[self.number] = self.next

    def cut(self):
        """End a part whose checkpoint may yet come to nothing; one that was ended before and is not safe has."""
        self.number += 1
        self.cutting = self.number, self.next, self.sink.cut(self.number)

    def make_safe(self):
        """Do what another thread does, while records of the next part come."""
        number, end, safe = self.cutting
        thread = Thread(target=safe)
        thread.start()
        self.write(2)
        thread.join()
        self.begun[number], self.cutting = end, None

    def complete(self, *, told):
        """Let the oldest checkpoint under way be whole; a kill may come before the sink is told."""
        number = min(self.begun)
        self.ends[number] = self.begun.pop(number)
        self.kept = number
        if told:
            self.sink.commit(number)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_each_record_is_there_once_whichever_checkpoint_a_run_goes_on_from(tmp_path, kind, seed):
    make, numbers = KINDS[kind]
    assert delivery_of(make(tmp_path / "out")) == "transactional"
    run, choose, kills = Checkpoints(make, tmp_path), random.Random(f"{kind} {seed}"), 0
    while run.kept < PARTS:
        did = choose.choice(["write", "write", "prepare", "cut", "safe", "complete", "complete", "kill"])
        if did == "write":
            run.write(choose.randrange(1, 9))
        elif did == "prepare" and len(run.begun) < 3 and run.cutting is None:
            run.prepare()
        elif did == "cut" and len(run.begun) < 3:
            run.cut()
        elif did == "safe" and run.cutting is not None:
            run.make_safe()
        elif did == "complete" and run.begun:
            run.complete(told=True)
        elif did == "kill" and run.number >= 0:
            if run.begun and choose.random() < 0.5:
                run.complete(told=False)
            release(run.sink, kind)
            run.open()
            kills += 1
    run.sink.rollback()
    while run.begun:
        run.complete(told=True)
    written = run.ends[run.kept]
    run.sink.close()
    assert kills >= 3
    assert sorted(numbers(tmp_path / "out")) == list(range(written))


def release(sink, kind):
    """Do what the system does for a process that is killed: what is open is closed, and nothing else."""
    if kind != "at the end":
        sink.close()


@pytest.mark.parametrize("kind", ["sqlite", "table"])
def test_a_part_that_was_prepared_and_is_committed_is_there_after_the_power_went(tmp_path, monkeypatch, kind):
    """What it is committed to is synced before what it was kept in is gone: SQLite's log, the folders that name files."""
    synced = set()

    def fsync(fd, sync=os.fsync):
        synced.add(os.fstat(fd).st_ino)
        sync(fd)

    run = Checkpoints(KINDS[kind][0], tmp_path)
    monkeypatch.setattr(os, "fsync", fsync)
    run.write(9)
    run.prepare()
    synced.clear()
    run.complete(told=True)
    places = [tmp_path / "out-wal"] if kind == "sqlite" else [tmp_path / "out", *(tmp_path / "out").glob("city=*")]
    assert len(places) == (1 if kind == "sqlite" else 4)
    assert {path.stat().st_ino for path in places} <= synced
    run.sink.close()


@pytest.mark.parametrize("kind", ["sqlite", "parquet", "table"])
def test_nobody_sees_a_part_before_it_is_committed(tmp_path, kind):
    make, numbers = KINDS[kind]
    run = Checkpoints(make, tmp_path)
    run.write(5)
    run.prepare()
    run.write(3)
    assert numbers(tmp_path / "out") == [] if kind == "sqlite" else not list((tmp_path / "out").glob("**/part-*"))
    run.complete(told=True)
    assert sorted(numbers(tmp_path / "out")) == list(range(5))
    run.sink.close()


def test_sqlite_refuses_a_record_while_a_part_waits_to_be_committed(tmp_path):
    connection = sqlite3.connect(tmp_path / "db")
    connection.execute("CREATE TABLE t (n INTEGER CHECK (n < 10), city TEXT)")
    connection.close()
    sink = transaction_of(io.Sqlite(tmp_path / "db", "t"), SCHEMA, ledger_of(tmp_path / "kept", "out"))
    assert set(sink.write(of([1, 11]))) == {1}
    sink.prepare(0)
    assert set(sink.write(of([12, 2]))) == {0}
    sink.commit(0)
    assert sqlite_numbers(tmp_path / "db") == [1]
    sink.commit(1)
    sink.close()
    assert sqlite_numbers(tmp_path / "db") == [1, 2]


@pytest.mark.parametrize("kind", ["json lines", "sqlite", "table"])
def test_a_checkpoint_that_the_sink_does_not_know_of_is_refused(tmp_path, kind):
    sink = KINDS[kind][0](tmp_path / "out")
    opened = transaction_of(sink, SCHEMA, ledger_of(tmp_path / "kept", "out"))
    opened.write(of([1]))
    opened.commit(4)
    opened.close()
    with pytest.raises(InputError, match="cannot go on after part 7"):
        transaction_of(sink, SCHEMA, ledger_of(tmp_path / "kept", "out", after=7))
    with pytest.raises(InputError, match=r"cannot go on after part 2: .* part 4"):
        transaction_of(sink, SCHEMA, ledger_of(tmp_path / "kept", "out", after=2))


def test_what_gathers_records_has_brought_them_to_its_place_when_a_part_is_prepared(tmp_path):
    class Gathering:
        def __init__(self):
            self.gathered, self.there = [], []

        def open(self, schema):
            return self

        def write(self, batch):
            self.gathered += batch["n"].tolist()

        def flush(self):
            self.there += self.gathered
            self.gathered = []

        def close(self):
            self.flush()

    sink = Gathering()
    opened = transaction_of(sink, SCHEMA, ledger_of(tmp_path, "out"))
    opened.write(of([1, 2]))
    assert sink.there == []
    opened.prepare(0)
    assert sink.there == [1, 2]
    opened.commit(0)
    assert transaction_of(sink, SCHEMA, ledger_of(tmp_path, "out", after=0)).committed == 0


def test_a_pipe_is_no_transaction(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for sink in (io.JsonLines(tmp_path / "pipe"), io.Csv("-")):
        assert delivery_of(sink) == "neither"


def test_a_wrong_declaration_is_told():
    class Odd:
        delivery = "exactly once"

        def open(self, schema):
            return self

    with pytest.raises(FlowError, match=r"Odd: delivery is one of .*'transactional'; got 'exactly once'"):
        delivery_of(Odd())
    Odd.delivery = "transactional"
    with pytest.raises(FlowError, match=r"Odd says that it is transactional, and has no method transaction"):
        transaction_of(Odd(), SCHEMA, None)


@contextmanager
def full_disk(monkeypatch, parts):
    """Nothing can be written: notes are refused, and SQLite takes its whole transaction back."""

    def refuse(path, data):
        raise InputError("the disk is full")

    connection = parts._writer._connection if isinstance(parts, sqlite_parts.SqliteTable) else None
    with monkeypatch.context() as patched:
        patched.setattr(journal, "replace_whole", refuse)
        patched.setattr(sqlite_parts, "replace_whole", refuse)
        if connection is not None:
            connection.set_progress_handler(lambda: 1, 1)  # every statement fails
        yield
        if connection is not None:
            connection.set_progress_handler(None, 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("call", ["prepare", "commit"])
def test_a_part_that_could_not_be_noted_is_there_with_the_next(tmp_path, monkeypatch, kind, call):
    make, numbers = KINDS[kind]
    parts = transaction_of(make(tmp_path / "out"), SCHEMA, ledger_of(tmp_path / "checkpoint", "sink", -1))
    for number in range(4):
        parts.write(of(range(number * 10, number * 10 + 10)))
        if number != 1:
            parts.prepare(number)
            parts.commit(number)
            continue
        if call == "commit":
            parts.prepare(number)
        # what is committed after it was prepared needs no note of its own, but in SQLite
        fails = pytest.raises(InputError) if call == "prepare" or kind.startswith("sqlite") else nullcontext()
        with full_disk(monkeypatch, parts), fails:
            getattr(parts, call)(number)
    parts.close()
    assert sorted(numbers(tmp_path / "out")) == list(range(40))


def test_files_of_a_part_that_could_not_be_made_safe_are_not_written_twice(tmp_path, monkeypatch):
    parts = transaction_of(io.ParquetTable(tmp_path / "t"), SCHEMA, ledger_of(tmp_path / "checkpoint", "sink", -1))
    parts.write(of(range(10)))

    def failing(path):
        raise OSError("cannot sync")

    with monkeypatch.context() as patched:
        patched.setattr(table_parts, "sync", failing)
        with pytest.raises(OSError, match="cannot sync"):
            parts.prepare(0)
    parts.prepare(1)
    parts.commit(1)
    parts.close()
    assert sorted(table_numbers(tmp_path / "t")) == list(range(10))


@pytest.mark.parametrize("kind", ["parquet", "table"])
def test_files_that_others_have_moved_on_are_told_and_not_missed(tmp_path, caplog, kind):
    make, numbers = KINDS[kind]
    for first in (0, 10, 20):
        after = first // 10 - 1
        parts = transaction_of(make(tmp_path / "out"), SCHEMA, ledger_of(tmp_path / "checkpoint", "sink", after))
        parts.write(of(range(first, first + 10)))
        parts.prepare(after + 1)
        parts.commit(after + 1)
        parts.close()
        assert sorted(numbers(tmp_path / "out")) == list(range(first, first + 10))
        for file in (tmp_path / "out").rglob("part-*.parquet"):
            file.unlink()
    assert "is not there any more; going on without it" in caplog.text


def test_files_that_never_had_their_places_are_missed_by_the_run_that_wrote_them(tmp_path):
    parts = transaction_of(io.ParquetTable(tmp_path / "t"), SCHEMA, ledger_of(tmp_path / "checkpoint", "sink", -1))
    parts.write(of(range(10)))
    parts.prepare(0)
    [staged] = (tmp_path / "t" / "_headwater").glob("*/")
    rmtree(staged)
    with pytest.raises(InputError, match="cannot write"):
        parts.commit(0)


def two_parts(sink, folder, between=lambda: None):
    """Write two parts, each of one record, with something else in between, and one more that is prepared alone."""
    parts = transaction_of(sink, SCHEMA, ledger_of(folder, "sink", -1))
    for number in range(2):
        parts.write(of([number]))
        parts.prepare(number)
        parts.commit(number)
        between()
    parts.write(of([2]))
    parts.prepare(2)
    parts.close()


def test_a_database_that_is_gone_is_told(tmp_path):
    two_parts(io.Sqlite(tmp_path / "db", "t"), tmp_path / "checkpoint")
    (tmp_path / "db").unlink()
    with pytest.raises(InputError, match=r"cannot go on after part 1: .* was the database replaced"):
        transaction_of(io.Sqlite(tmp_path / "db", "t"), SCHEMA, ledger_of(tmp_path / "checkpoint", "sink", 1))


def test_sqlite_goes_back_by_one_part_and_leaves_the_rows_of_others(tmp_path):
    sink, folder = io.Sqlite(tmp_path / "t.db", "t"), tmp_path / "checkpoint"

    def another_writes():
        with sqlite3.connect(tmp_path / "t.db") as other:
            other.execute("INSERT INTO t (n) VALUES (-1)")

    two_parts(sink, folder, another_writes)
    parts = transaction_of(sink, SCHEMA, ledger_of(folder, "sink", 0))
    assert parts.committed == 0
    assert sorted(sqlite_numbers(tmp_path / "t.db")) == [-1, -1, 0]
    parts.write(of([1, 2]))
    parts.prepare(1)
    parts.commit(1)
    parts.close()
    assert sorted(sqlite_numbers(tmp_path / "t.db")) == [-1, -1, 0, 1, 2]
    with pytest.raises(InputError, match=r"has part 1 already"):
        transaction_of(sink, SCHEMA, ledger_of(folder, "sink", -1))


def test_sqlite_with_a_key_goes_back_and_takes_again_what_comes_again(tmp_path):
    sink, folder = io.Sqlite(tmp_path / "t.db", "t", key="n"), tmp_path / "checkpoint"
    two_parts(sink, folder)
    parts = transaction_of(sink, SCHEMA, ledger_of(folder, "sink", 0))
    parts.write(of([1, 2]))
    parts.prepare(1)
    parts.commit(1)
    parts.close()
    assert sqlite_numbers(tmp_path / "t.db") == [0, 1, 2]


def test_sqlite_says_how_to_go_on_where_it_cannot_go_back(tmp_path):
    sink, folder = io.Sqlite(tmp_path / "t.db", "t"), tmp_path / "checkpoint"
    with sqlite3.connect(tmp_path / "t.db") as own:  # its rows are numbered by a column
        own.execute(f"CREATE TABLE t ({', '.join(f'{name}' for name in SCHEMA)}, PRIMARY KEY (n))")
    two_parts(sink, folder)
    with pytest.raises(InputError, match=r"has part 1 already.*Bring back the last checkpoint"):
        transaction_of(sink, SCHEMA, ledger_of(folder, "sink", 0))


def test_a_last_checkpoint_that_cannot_be_made_is_told_once(tmp_path, monkeypatch):
    calls = []

    def refuse(path, data):
        calls.append(path)
        if len(calls) > 1:  # it is opened while there is room
            raise InputError("the disk is full")
        replace_whole(path, data)

    monkeypatch.setattr(journal, "replace_whole", refuse)
    flow = Flow("numbers")
    flow.read("in", io.Items([{"n": 1}])).write("out", io.JsonLines(tmp_path / "out.jsonl"))
    with pytest.raises(RunError, match="the disk is full") as raised:
        engine.run(flow, checkpoint=tmp_path / "checkpoint")
    assert str(raised.value).count("could not be made") == 1


@pytest.mark.parametrize("noted", [16, "16", [16], {"end": 16}])
def test_notes_of_another_version_are_told_and_the_file_stays_as_it_is(tmp_path, noted):
    made = Flow("noted")
    made.read("read", io.Items([{"n": n} for n in range(3)])).write("write", io.JsonLines(tmp_path / "out.jsonl"))
    engine.run(made, checkpoint=tmp_path / "kept")
    written, notes = (tmp_path / "out.jsonl").read_text(), tmp_path / "kept" / "sinks" / "write" / "written"
    known = json.loads(notes.read_text())
    notes.write_text(json.dumps({**known, "parts": dict.fromkeys(known["parts"], noted)}))
    with pytest.raises(InputError, match=r"cannot go on writing .*out\.jsonl: .*another version of Headwater"):
        engine.run(made, checkpoint=tmp_path / "kept")
    assert (tmp_path / "out.jsonl").read_text() == written
