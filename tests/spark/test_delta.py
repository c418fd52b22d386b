"""Delta tables that are added to without Delta's own connector, and what others find in their logs."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater import Flow, io
from headwater import spark as on_spark
from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import FlowError, InputError
from headwater.flow.ranges import RangeRequest, Sizes
from headwater.io.delta import log as delta_log
from headwater.io.delta.log import DeltaLog
from headwater.spark.history import table_of
from headwater.spark.sinks import guarantee, open_sink

COLUMNS = json.dumps({"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]})
SCHEMA = {"n": int, "city": str, "at": "time"}


class Folder:
    """Stands for a place at a URL: a folder, without Java."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self):
        return str(self.path)

    def names(self, folder=""):
        return [path.name for path in (self.path / folder).glob("*")]

    def raw(self, name):
        return (self.path / name).read_bytes()

    def put(self, name, data):
        if (self.path / name).exists():
            return False
        self.replace(name, data)
        return True

    def replace(self, name, data):
        (self.path / name).parent.mkdir(parents=True, exist_ok=True)
        (self.path / name).write_bytes(data)


def commits(folder):
    paths = sorted((folder / "_delta_log").glob("*.json"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def files_in(folder):
    """Return the files that a table has, by all commits of its log."""
    actions = commits(folder)
    gone = {action["remove"]["path"] for action in actions if "remove" in action}
    return [action["add"]["path"] for action in actions if "add" in action and action["add"]["path"] not in gone]


def rows_in(folder):
    return [row for name in files_in(folder) for row in pq.read_table(folder / name).to_pylist()]


@pytest.fixture
def place(tmp_path):
    return Folder(tmp_path / "table")


def test_a_part_is_added_once_whoever_else_adds_to_the_table(place):
    ours, others = DeltaLog(place, "us", COLUMNS), DeltaLog(place, "them", COLUMNS)
    ours.add(0, {"a.parquet": 10}, 1)
    others.add(0, {"b.parquet": 20}, 2)  # which finds ours there
    ours.add(1, {"c.parquet": 30}, 3)  # and the other way round
    ours.add(1, {"c2.parquet": 30}, 3)  # as after a kill: it is known, though somebody else was last
    again = DeltaLog(place, "us", COLUMNS)
    assert (again.committed, DeltaLog(place, "them", COLUMNS).committed) == (1, 0)
    assert DeltaLog(place, "nobody", COLUMNS).committed == -1
    assert files_in(place.path) == ["a.parquet", "b.parquet", "c.parquet"]
    founding = [action for action in commits(place.path) if "metaData" in action or "protocol" in action]
    assert len(founding) == 2  # by whoever was first


def test_what_commits_say_is_summed_up_and_they_may_be_removed(place, monkeypatch):
    monkeypatch.setattr(delta_log, "_EVERY", 4)
    log = DeltaLog(place, "us", COLUMNS)
    for part in range(10):
        log.add(part, {f"{part}.parquet": part}, 1)
    assert json.loads(place.raw("_delta_log/_last_checkpoint"))["version"] == 8
    for version in range(8):
        (place.path / "_delta_log" / f"{version:020d}.json").unlink()
    again = DeltaLog(place, "us", COLUMNS)
    assert (again.committed, list(again.files)) == (9, [f"{part}.parquet" for part in range(10)])
    for part in range(10, 14):
        again.add(part, {f"{part}.parquet": part}, 1)
    assert json.loads(place.raw("_delta_log/_last_checkpoint"))["version"] == 12
    assert len(DeltaLog(place, "us", COLUMNS).files) == 14
    (place.path / "_delta_log" / f"{13:020d}.json").rename(place.path / "_delta_log" / f"{14:020d}.json")
    with pytest.raises(InputError, match="commit 13 is missing"):
        DeltaLog(place, "us", COLUMNS)


@pytest.mark.parametrize(
    ("protocol", "metadata", "why"),
    [
        ({"minReaderVersion": 3, "minWriterVersion": 7}, {}, "of version 3 of Delta's protocol for readers"),
        ({}, {"partitionColumns": ["city"]}, "lies in folders by city"),
        ({}, {"schemaString": COLUMNS.replace("long", "string")}, "the table has the columns n string, records have n long"),
        ({}, {"schemaString": COLUMNS.replace("{}", '{"delta.invariants": "n > 0"}')}, "rules that only Delta itself keeps"),
    ],
)  # fmt: skip
def test_tables_that_take_more_are_refused(place, protocol, metadata, why):
    known = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2, **protocol}}
    told = {"metaData": {"schemaString": COLUMNS, "partitionColumns": [], **metadata}}
    place.put(f"_delta_log/{0:020d}.json", "\n".join(map(json.dumps, (known, told))).encode())
    with pytest.raises(InputError, match=why):
        DeltaLog(place, "us", COLUMNS)


def added(place, part, numbers):
    """Add a file of numbers to a table, and return its name."""
    name = f"part-{part}.parquet"
    place.path.mkdir(exist_ok=True)
    pq.write_table(pa.table({"n": pa.array(numbers, pa.int64())}), place.path / name)
    DeltaLog(place, "us", COLUMNS).add(part, {name: 100}, len(numbers))
    return name


def committed(place, *actions):
    version = len(list((place.path / "_delta_log").glob("*.json")))
    place.put(f"_delta_log/{version:020d}.json", "\n".join(map(json.dumps, actions)).encode())


def read_on(ranges, at):
    """Read all that there is behind an offset; return the numbers and how far that was."""
    found = []
    while (end := ranges.advance(at)) != at:
        for piece in ranges.cut(at, end):
            found += [n for batch in ranges.batches(piece, pytest.fail) for n in batch["n"].tolist()]
        at = end
        if at["ended"]:
            break
    return found, at


def ranges_over(place, *, follow, parallel=2):
    source = io.SparkTable(str(place.path), {"n": int}, follow=follow)
    assert source.form == "delta"  # which its log tells
    return source.ranges(RangeRequest(Sizes(parallel, batch_bytes=150, piece_bytes=10)))


def test_a_table_is_read_as_it_is_and_then_what_is_added(place):
    names = [added(place, part, range(10 * part, 10 * part + 10)) for part in range(3)]
    assert read_on(ranges := ranges_over(place, follow=False), ranges.start())[0] == list(range(30))
    ranges = ranges_over(place, follow=True)
    first = ranges.start()
    found, at = read_on(ranges, first)
    assert found == list(range(30))
    assert ranges.advance(at) == at
    small = {"path": names[0], "dataChange": False}
    whole = {"path": names[1], "size": 100, "dataChange": False, "partitionValues": {}}
    committed(place, {"remove": small}, {"add": whole})  # as who makes one file of several says
    added(place, 3, [30, 31])
    assert read_on(ranges, at)[0] == [30, 31]
    # a later run finds the same, though the table consists of other files by now
    assert read_on(ranges_over(place, follow=True), first)[0] == list(range(32))
    assert read_on(again := ranges_over(place, follow=False), again.start())[0] == [*range(10, 32)]


def test_records_that_are_taken_out_of_a_table_are_told(place):
    name = added(place, 0, [1, 2])
    ranges = ranges_over(place, follow=True)
    _, at = read_on(ranges, ranges.start())
    committed(place, {"remove": {"path": name, "dataChange": True}})
    with pytest.raises(InputError, match=r"records were taken out of .* in version 1"):
        ranges.advance(at)


def test_a_column_that_a_file_does_not_have_is_that_of_its_folder_or_missing(place):
    name = added(place, 0, [1, 2])
    add = {"path": name, "size": 100, "partitionValues": {"day": "7"}, "dataChange": True}
    fields = [{"name": name, "type": "string"} for name in ("n", "day", "new")]
    changed = {"schemaString": json.dumps({"fields": fields}), "partitionColumns": ["day"]}
    committed(place, {"metaData": changed}, {"add": add})
    source = io.SparkTable(str(place.path), {"n": int, "day": int, "new": str})
    ranges = source.ranges(RangeRequest(Sizes(1)))
    [(piece, *_)] = [ranges.cut(ranges.start(), ranges.advance(ranges.start()))]
    [batch] = ranges.batches(piece, pytest.fail)
    assert batch["day"].tolist() == [7, 7]
    assert batch["new"].tolist() == [None, None]


def test_a_column_that_a_table_does_not_have_is_told(place):
    added(place, 0, [1, 2])
    source = io.SparkTable(str(place.path), {"n": int, "nn": int})
    with pytest.raises(InputError, match="it has no column 'nn'; columns are 'n'; did you mean 'n'"):
        source.ranges(RangeRequest(Sizes(1))).start()


def test_a_delta_table_at_a_url_is_refused_before_java_starts(monkeypatch):
    flow = Flow("far")
    flow.read("r", io.SparkTable("s3a://lake/levels", {"n": int}, form="delta")).write("w", io.Discard())
    monkeypatch.setattr("headwater.spark.running.session", lambda *_: pytest.fail("Spark was asked for a session"))
    with pytest.raises(FlowError, match=r"delta s3a://lake/levels cannot be read: .* for Spark 4.2 and breaks on 4.3"):
        on_spark.start(flow)


def test_what_is_no_delta_table_is_told(tmp_path):
    with pytest.raises(InputError, match="is no Delta table, which has a folder _delta_log"):
        io.SparkTable(str(tmp_path), {"n": int}, form="delta").ranges(RangeRequest(Sizes(1))).start()


def test_a_micro_batch_is_in_a_delta_table_once_whenever_its_driver_is_killed(spark, tmp_path):
    schema = Schema.of(SCHEMA)
    flow = Flow("f")
    flow.read("in", io.Items([], schema)).write("out", io.SparkTable(str(tmp_path / "t"), form="delta"))
    step = flow.steps["out"]
    assert guarantee(step) == "exactly once"

    def opened(number):
        sink = open_sink(step, tmp_path / "checkpoint")
        sink.rollback()
        rows = {"n": [number], "city": ["a"], "at": [number]} if number else {"n": [], "city": [], "at": []}
        sink.write(Batch.of(rows, schema))
        return sink

    opened(0).commit(0)  # nothing came
    opened(1).commit(1)
    opened(2)._append(2)  # killed before it was noted
    sink = opened(2)
    assert sink.committed == 1
    sink.commit(2)
    (tmp_path / "t" / (sink._file(3) + "-c000.snappy.parquet")).write_bytes(b"half")  # killed before the log has it
    opened(3).commit(3)
    assert [row["n"] for row in rows_in(tmp_path / "t")] == [1, 2, 3]
    assert len(list((tmp_path / "t").glob("part-*.parquet"))) == 3


def test_a_delta_table_is_one_to_flows_to_history_and_to_others(spark, tmp_path):
    rows = [{"n": n, "city": f"c {n % 3}", "at": n * 1_000_000} for n in range(40)]
    flow, address = Flow("writing"), str(tmp_path / "t")
    flow.read("r", io.Items(rows, SCHEMA)).write("out", io.SparkTable(address, form="delta"))
    on_spark.run(flow, checkpoint=tmp_path / "checkpoint")
    assert sorted(row["n"] for row in rows_in(tmp_path / "t")) == list(range(40))
    pq.write_table(pa.table({"n": [-1]}), tmp_path / "t" / "part-of-nobody.parquet")  # which no commit names
    flow, out = Flow("reading"), io.Collect()
    timed = flow.read("r", io.SparkTable(address, SCHEMA)).event_time("time", "at")
    timed.write("out", out)
    on_spark.run(flow)
    assert sorted(out.records, key=lambda row: row["n"]) == rows
    for named in (address, f"file://{address}", f"file://{address}/"):
        assert table_of(spark, named, flow, "r", None).rows.count() == 40
    deltalake = pytest.importorskip("deltalake")
    assert sorted(deltalake.DeltaTable(address).to_pyarrow_table()["n"].to_pylist()) == list(range(40))
