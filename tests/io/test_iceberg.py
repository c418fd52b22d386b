"""Iceberg tables on disk: what is written is read back by pyiceberg itself, also after kills and beside other writers."""

import errno
import os
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from threading import Thread

import pytest

pytest.importorskip("pyiceberg", reason="pyiceberg is not installed: pip install 'headwater[iceberg]'")

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog, SqlCatalogBaseTable

from headwater import Flow, col, engine, io
from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import FlowError, InputError, NoRoomError, RunError
from headwater.flow.guarantees import guarantees
from headwater.io import files
from headwater.io.iceberg import uplink
from headwater.io.iceberg.uplink import IcebergUplink
from headwater.io.transactions import outbox
from killed import killed_until, kills_itself
from lake import NUMBERS, TABLE, Lake, levels, read_all

SCHEMA = Schema.of({"n": int, "city": str, "x": float, "small": "float32", "ok": bool, "at": "time", "more": "any"})


def copying(lake, count, **options):
    flow = Flow("copying")
    made = io.Generate(lambda n: {"n": n, "half": n / 2}, {"n": int, "half": float}, rate=20_000, count=count)
    flow.read("in", made).select("some", "n", "half", k=col.n % 7).write("out", levels(lake, **options))
    return flow


# -- writing ----------------------------------------------------------------------------------------------------------


def test_values_of_every_type_come_back(lake):
    rows = [
        {
            "n": 1,
            "city": "é\n",
            "x": 0.1,
            "small": 0.5,
            "ok": True,
            "at": 1_700_000_000_123_456,
            "more": {"a": [1, None]},
        },
        dict.fromkeys(SCHEMA),
    ]
    writer = levels(lake).open(SCHEMA)
    assert not writer.write(Batch.of_rows(rows, SCHEMA))
    writer.close()
    first, second = lake.table().scan().to_arrow().to_pylist()
    assert first["at"] == datetime.fromtimestamp(1_700_000_000, UTC).replace(microsecond=123_456)
    assert first | {"at": None} == rows[0] | {"at": None, "more": '{"a":[1,null]}'}
    assert second == rows[1]
    reader = levels(lake).open(pytest.fail)
    assert [row | {"more": None} for row in reader.read(10, 0).rows()] == [row | {"more": None} for row in rows]
    assert reader.read(10, 0) is None
    reader.close()


def test_a_table_that_is_made_is_cut_by_columns_and_days(lake, tmp_path, caplog):
    flow = Flow("days")
    rows = [{"city": f"c{n % 2}", "at": n * 12 * 3_600_000_000} for n in range(8)]
    flow.read("in", io.Items(rows, {"city": str, "at": "time"})).write("out", levels(lake, by=("city", "day(at)")))
    with caplog.at_level("INFO"):
        engine.run(flow, checkpoint=tmp_path / "checkpoint")
    assert f"table {levels(lake)} was not there, and is made" in caplog.text
    files = list(lake.table().scan().plan_files())
    assert len(files) == 8
    assert [field.name for field in lake.table().spec().fields] == ["city", "at_day"]
    found, read = [], levels(lake).open(pytest.fail)
    while (batch := read.read(3, 0)) is not None:
        found += batch.rows()
    read.close()
    assert sorted(found, key=lambda row: row["at"]) == rows
    engine.run(flow, checkpoint=tmp_path / "other")  # and added to as it is
    assert lake.table().scan().count() == 16


@pytest.mark.parametrize(
    ("by", "why"),
    [
        ("cty", "by of {}: there is no column 'cty'; columns are 'at', 'city', 'x'; did you mean 'city'?"),
        ("day(city)", "{} cannot be cut by 'day(city)': 'city' is text, and no time"),
        ("week(at)", "{} cannot be cut by 'week(at)': 'week' is none of 'day', 'hour', 'month', 'year'"),
        ("dy(at)", "{} cannot be cut by 'dy(at)': 'dy' is none of 'day', 'hour', 'month', 'year'; did you mean 'day'?"),
        ("day(at", "{} cannot be cut by 'day(at'; expected a column, or such as 'day(at)'"),
        ("x", "{} cannot be cut by column 'x', which is float: too many"),
    ],
)
def test_what_a_table_cannot_be_cut_by_is_told(lake, by, why):
    schema = Schema.of({"city": str, "at": "time", "x": float})
    with pytest.raises(FlowError) as error:
        levels(lake, by=by).check_write(schema)
    assert str(error.value) == why.format(levels(lake))


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_flow_writes_each_part_in_a_snapshot_with_its_number(lake, tmp_path, lanes):
    def run():
        flow = Flow("processes")
        made = flow.read("in", io.Generate(lambda n: {"n": n}, {"n": int}, rate=20_000, count=4_000))
        told = made.map("told", lambda row: {**row, "process": os.getpid()}, out={"n": int, "process": int})
        told.write("out", levels(lake))
        engine.run(flow, checkpoint=tmp_path / "checkpoint", every="50 ms", lanes=lanes)

    killed_until(None, run, kills=0, ends=True)  # in a child: lanes are forked, and the library has threads here
    assert lake.column("n") == list(range(4_000))
    assert len(set(lake.column("process"))) == lanes
    writers, parts, records = zip(*lake.parts(), strict=True)
    assert len(set(writers)) == 1  # who writes for all lanes
    assert len(parts) > 1
    assert list(parts) == sorted(set(parts))
    assert sum(records) == 4_000
    assert [held.holds for held in guarantees(copying(lake, 1))] == ["exactly once"]


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_flow_that_is_killed_has_every_record_in_the_table_once(lake, tmp_path, lanes):
    count = 12_000
    kills = killed_until(
        None,
        lambda: engine.run(copying(lake, count), checkpoint=tmp_path / "checkpoint", every="40 ms", lanes=lanes),
        ends=True,
        kills=6,
        longest_s=0.8,
    )
    assert kills
    assert lake.column("n") == list(range(count))
    writers, parts, records = zip(*lake.parts(), strict=True)
    assert len(set(writers)) == 1
    assert list(parts) == sorted(set(parts))
    assert sum(records) == count


def test_a_part_whose_commit_was_told_to_nobody_is_not_there_twice(lake, tmp_path):
    def run(die=True):
        written = files.replace_whole

        def replace_whole(path, data):  # the last moment at which nobody here knows that the table has it
            if path.name == "delivered" and die:
                os.kill(os.getpid(), 9)
            written(path, data)

        outbox.__dict__["replace_whole"] = replace_whole
        engine.run(copying(lake, 500), checkpoint=tmp_path / "checkpoint")

    kills_itself(run)
    assert lake.column("n") == list(range(500))
    lake.table().append(pa.table({"n": [-1], "half": [0.0], "k": [0]}))  # somebody else was last
    engine.run(copying(lake, 500), checkpoint=tmp_path / "checkpoint")
    assert lake.column("n") == list(range(-1, 500))


def delivered(lake, number, n, name="us", **options):
    way = IcebergUplink(levels(lake, **options), NUMBERS)
    way.deliver(name, number, [Batch.of({"n": [n]}, NUMBERS)])
    way.close()


def test_a_part_is_known_when_old_snapshots_are_expired_and_not_when_a_table_was_set_back(lake, tmp_path):
    delivered(lake, 0, 0)
    first = lake.table().current_snapshot().snapshot_id
    delivered(lake, 1, 1)
    ours = lake.table().current_snapshot().snapshot_id
    delivered(lake, 0, 10, name="them")
    lake.table().maintenance.expire_snapshots().by_ids([first, ours]).commit()
    delivered(lake, 1, 1)  # of which no snapshot is left
    assert lake.column("n") == [0, 1, 10]

    for before in ("us", "them"):  # whose part is the last that is left
        other = Lake(tmp_path / before)
        delivered(other, 0, 0, name=before)
        first = other.table().current_snapshot().snapshot_id
        delivered(other, 1, 1)
        other.table().manage_snapshots().rollback_to_snapshot(first).commit()
        delivered(other, 1, 1)
        assert other.column("n") == [0, 1]


def test_a_part_is_known_by_its_snapshot_in_a_table_of_format_1(lake):
    lake.make(pa.schema([("n", pa.int64())]), properties={"format-version": "1"})
    assert lake.table().format_version == 1
    for part in (0, 1, 1):
        delivered(lake, part, part)
    delivered(lake, 0, 10, name="them")
    delivered(lake, 1, 1)
    assert lake.column("n") == [0, 1, 10]
    assert sorted(read_all(levels(lake))[0]) == [0, 1, 10]


def test_several_writers_of_one_table_wait_for_each_other(lake):
    delivered(lake, 0, -1, name="first")
    threads = [
        Thread(target=lambda who=who: [delivered(lake, part, 100 * who + part, f"w{who}") for part in range(5)])
        for who in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lake.column("n") == [-1, *(100 * who + part for who in range(3) for part in range(5))]


def test_who_never_gets_a_turn_is_told(lake, monkeypatch):
    delivered(lake, 0, 0)
    monkeypatch.setattr(uplink, "_TRIES", 3)
    monkeypatch.setattr(uplink, "_PAUSE_S", 0.0)
    way, fresh = uplink.Appends(levels(lake), NUMBERS), uplink.Appends._fresh

    def overtaken(self):
        table = fresh(self)
        lake.table().append(pa.table({"n": [5]}))
        return table

    monkeypatch.setattr(uplink.Appends, "_fresh", overtaken)
    with pytest.raises(InputError, match="others commit to it all the time; 3 attempts came to nothing"):
        way.append([Batch.of({"n": [1]}, NUMBERS)], "us", 1)
    way.close()
    assert lake.column("n") == [0, 5, 5, 5]


# -- what is wrong ----------------------------------------------------------------------------------------------------


def test_a_table_with_other_columns_is_refused_with_names_and_types(lake, tmp_path):
    lake.make(pa.schema([("n", pa.string()), ("halves", pa.float64()), pa.field("k", pa.int64(), nullable=False)]))
    told = (
        "the table has the columns n string, halves double, k required long, records have n long, half double, k long: "
        "'n' is string there; the table has no 'half'; did you mean 'halves'"
    )
    for options in ({}, {"checkpoint": tmp_path / "checkpoint"}):
        with pytest.raises((InputError, RunError)) as error:
            engine.run(copying(lake, 10), **options)
        assert told in str(error.value)
        assert "'k' is required long there" in str(error.value)
        assert "records have no 'halves'" in str(error.value)


def test_what_is_no_name_of_a_table_is_told():
    for name in ("levels", "plant.", ".levels"):
        with pytest.raises(FlowError, match=r"has a namespace and a name, such as 'plant\.levels'"):
            io.Iceberg(name)
    with pytest.raises(FlowError, match="give snapshot or since, not both"):
        io.Iceberg(TABLE, snapshot=1, since=2)
    with pytest.raises(FlowError, match="has no properties"):
        io.Iceberg(TABLE, catalog={})


def test_a_wrong_catalog_is_told_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    for way in (io.Iceberg(TABLE, NUMBERS, catalog="nowhere"), io.Iceberg(TABLE, catalog={"name": "nowhere"})):
        with pytest.raises(InputError) as error:
            way.open(NUMBERS)
        assert str(error.value) == (
            "cannot write plant.levels in nowhere: there is no catalog 'nowhere'; in ~/.pyiceberg.yaml and the environment "
            "are none. Or give its properties, such as "
            'catalog={"type": "sql", "uri": "sqlite:///lake/catalog.db", "warehouse": "lake"}'
        )
    with pytest.raises(InputError) as error:
        io.Iceberg(TABLE, NUMBERS, catalog={"type": "sql", "url": "sqlite:///x"}).open(pytest.fail)
    assert str(error.value) == (
        "cannot read plant.levels in default: the catalog's properties have no 'uri': they are 'type', 'url'; "
        "did you mean 'url'?"
    )


def test_a_wrong_path_of_a_catalog_is_told_and_leaves_nothing_behind(lake, tmp_path, caplog):
    path = tmp_path / "no" / "catalog.db"
    gone = {"type": "sql", "uri": f"sqlite:///{path}", "warehouse": str(tmp_path)}
    flow = Flow("f")
    flow.read("in", io.Items([{"n": 1}])).write("out", io.Iceberg(TABLE, catalog=gone))
    with pytest.raises((InputError, RunError), match="is its folder there, and may this user write it"):
        engine.run(flow, checkpoint=tmp_path / "checkpoint")
    path.parent.mkdir()
    for asked in (lambda table: table.schema, lambda table: table.open(pytest.fail)):
        with pytest.raises(InputError, match=f"there is no file {path}, which would be its catalog; is the path right"):
            asked(io.Iceberg(TABLE, catalog=gone))
    assert not path.exists()
    sqlite3.connect(path).execute("CREATE TABLE ours (n)").connection.close()
    before = path.read_bytes()
    with pytest.raises(InputError, match="the database has none of the tables of a catalog: is the uri right"):
        io.Iceberg(TABLE, NUMBERS, catalog=gone).open(pytest.fail)
    assert path.read_bytes() == before

    way = IcebergUplink(levels(lake), NUMBERS)
    way.close()
    IcebergUplink(levels(lake), NUMBERS).close()
    assert [said.getMessage() for said in caplog.records if "catalog" in said.getMessage()] == [
        f"catalog {levels(lake).place} was not there, and is made: {tmp_path / 'lakes' / 'catalog.db'}"
    ]


def test_a_catalog_and_a_namespace_may_be_made_by_somebody_else_meanwhile(lake, monkeypatch):
    looked, made = SqlCatalog.namespace_exists, SqlCatalog.create_tables

    def overtaken_tables(self):
        made(self)
        SqlCatalogBaseTable.metadata.create_all(self.engine, checkfirst=False)

    def overtaken_namespace(self, name):
        found = looked(self, name)
        if not found:
            monkeypatch.setattr(SqlCatalog, "namespace_exists", looked)
            load_catalog("default", **lake.properties).create_namespace(name)
        return found

    monkeypatch.setattr(SqlCatalog, "create_tables", overtaken_tables)
    monkeypatch.setattr(SqlCatalog, "namespace_exists", overtaken_namespace)
    delivered(lake, 0, 7)
    assert lake.column("n") == [7]
    assert SqlCatalog.namespace_exists is looked


@pytest.mark.parametrize(
    "catalog",
    [
        {"type": "sql", "uri": "postgresql+nothing://me:s3cr:et@nowhere.invalid/base"},
        {"type": "sql", "uri": "sqlite+nothing://me:s3cr:et@nowhere.invalid/base"},
        {"type": "rest", "uri": "http://me:s3cr:et@127.0.0.1:9/x", "token": "s3cr:et"},
        {"type": "no", "uri": "x", "token": "s3cr:et"},
        {"py-catalog-impl": "no.Catalog", "credential": "me:s3cr:et"},
    ],
)
def test_no_password_is_in_messages_names_and_identities(catalog):
    table = io.Iceberg(TABLE, NUMBERS, catalog=catalog)
    with pytest.raises(InputError) as error:
        table.open(pytest.fail)
    for text in (str(table), repr(table), str(table.identity), str(error.value), repr(error.value)):
        assert "s3cr" not in text
    assert error.value.__suppress_context__


def test_while_the_catalog_is_away_records_wait_on_disk(lake, tmp_path, monkeypatch):
    away = {"type": "rest", "uri": "http://me:s3cret@127.0.0.1:9/"}
    flow, place = copying(lake, 300), lake.properties
    lake.properties = away
    away_flow = copying(lake, 300)
    monkeypatch.setattr(outbox, "_LINGER_S", 0.2)
    report = engine.run(away_flow, checkpoint=tmp_path / "checkpoint")
    assert report.dead_letters == 0
    assert report.extra["sinks"]["out"]["waiting"] == 300
    assert "s3cret" not in str(report.to_json())
    kept = [path for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert kept
    assert not any(b"s3cret" in path.read_bytes() for path in kept)
    lake.properties = place
    report = engine.run(flow, checkpoint=tmp_path / "checkpoint")
    assert report.extra["sinks"]["out"]["waiting"] == 0
    assert lake.column("n") == list(range(300))


def test_what_a_full_disk_has_no_room_for_is_kept_and_written_later(lake, monkeypatch):
    writer = levels(lake).open(NUMBERS)
    writer.write(Batch.of({"n": [1, 2]}, NUMBERS))
    with monkeypatch.context() as full:

        def write(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        full.setattr(SqlCatalog, "commit_table", write)
        with pytest.raises(NoRoomError, match="No space left on device; 2 records are not in the table"):
            writer.close()
    writer.close()  # as a runner does that waits for room
    assert lake.column("n") == [1, 2]


def test_a_missing_library_is_told_with_the_extra_that_has_it():
    program = (
        "import sys; sys.modules['pyiceberg'] = None\n"
        "from headwater import Flow, engine, io\n"
        "flow = Flow('f'); flow.read('in', io.Items([{'n': 1}])).write('out', io.Iceberg('a.b'))\n"
        "engine.run(flow)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert said.returncode
    assert "Iceberg tables need pyiceberg: pip install 'headwater[iceberg]'" in said.stderr
