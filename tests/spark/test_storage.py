"""Input, output and checkpoint at URLs that Spark's file systems know.

The file system is Hadoop's own `viewfs`, whose URLs name places that no path of this machine does: what went around Spark's
file systems would find nothing there.
"""

import json
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from counting import counting

from headwater import Batch, Flow, Schema, io
from headwater import spark as on_spark
from headwater.errors import FlowError, RunError
from headwater.flow.ranges import Sizes
from headwater.spark.checkpoint import Checkpoint
from headwater.spark.places import UrlPlace, place_of
from headwater.spark.sinks import delivery_text, guarantee, open_sink
from headwater.spark.storage import Storage

SCHEMA = {"n": int, "city": str}
SMALL = Sizes(parallel=2, batch_bytes=3000, batch_records=100, piece_bytes=1000)


@pytest.fixture
def lake(spark, tmp_path):
    """A folder of this machine, and the URL under which alone Spark is told of it."""
    folder = tmp_path / "lake"
    folder.mkdir()
    name = f"t{uuid4().hex[:8]}"
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    link = f"fs.viewfs.mounttable.{name}.link./lake"
    settings.set(link, f"file:{folder}")
    yield folder, f"viewfs://{name}/lake"
    settings.unset(link)


def written_lines(path, numbers):
    path.write_text("".join(json.dumps({"n": n, "city": f"c{n % 3}"}) + "\n" for n in numbers))
    return path


def json_rows(folder):
    """Return the records of a folder of JSON files, as any reader finds them; what begins with _ or . is none of it."""
    found = [path for path in folder.iterdir() if path.name[0] not in "._"]
    return [json.loads(line) for path in found for line in path.read_text().splitlines()]


@contextmanager
def stopped_half_way(flow, **options):
    """Run a flow until it has written something, and stop it; what is in between is done while it runs."""
    running = on_spark.start(flow, sizes=SMALL, **options)
    try:
        while running.wait(0.02) is None and not running.sample().records_out.get("out"):
            pass
        yield running
    finally:
        running.stop()
        running.wait()


def test_a_run_goes_on_from_a_checkpoint_at_a_url(lake, tmp_path):
    folder, url = lake
    source = io.JsonLines(written_lines(tmp_path / "in.jsonl", range(2000)), SCHEMA)
    kept = {"checkpoint": f"{url}/kept"}
    flow = counting(source, io.SparkTable(f"{url}/out", form="json"))
    in_use = pytest.raises(RunError, match=r"checkpoint viewfs://.*/lake/kept is in use by process \d+")
    with stopped_half_way(flow, **kept) as running, in_use:
        on_spark.run(flow, **kept)
    read = running.wait().last.records_in
    assert 0 < read < 2000
    assert on_spark.run(flow, **kept).last.records_in == 2000 - read
    rows = json_rows(folder / "out")
    assert sorted(row["n"] for row in rows) == list(range(2000))
    for city in range(3):
        mine = sorted((row["n"], row["place"]) for row in rows if row["city"] == f"c{city}")
        assert [place for _, place in mine] == list(range(1, len(mine) + 1))
    with pytest.raises(RunError, match="has come to its end"):
        on_spark.run(flow, **kept)
    assert (folder / "kept" / "query" / "commits").is_dir()
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(("viewfs", "file:"))]


def test_notes_of_files_that_the_driver_writes_are_kept_at_the_url(lake, tmp_path, monkeypatch):
    _, url = lake
    source = io.JsonLines(written_lines(tmp_path / "in.jsonl", range(2000)), SCHEMA)
    flow, kept = counting(source, io.JsonLines(tmp_path / "out.jsonl")), {"checkpoint": f"{url}/kept"}
    save, saved = UrlPlace.save, []

    def killed(self):
        """Bring notes to the URL twice, and never again: what the file then gets, nobody knows of."""
        saved.append(self)
        if len(saved) > 2:
            raise RunError("as if it were killed")
        save(self)

    with monkeypatch.context() as patch:
        patch.setattr(UrlPlace, "save", killed)
        with pytest.raises(RunError, match="as if it were killed"):
            on_spark.run(flow, sizes=SMALL, **kept)
    assert (tmp_path / "out.jsonl").read_text()
    on_spark.run(flow, **kept)
    lines = [json.loads(line)["n"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted(lines) == list(range(2000))


def test_a_url_of_this_machines_files_is_a_folder(tmp_path):
    where = place_of(f"file://{tmp_path}/kept")
    assert (where.is_far, where.folder) == (False, tmp_path / "kept")
    Checkpoint(f"file://{tmp_path}/kept").claim(counting(io.Items([], SCHEMA), io.Discard()), 2)
    assert (tmp_path / "kept" / "headwater.json").is_file()


def test_what_needs_a_folder_beside_the_checkpoint_says_so(lake):
    _, url = lake
    kept = {"checkpoint": f"{url}/kept"}
    with pytest.raises(
        RunError, match=r"cannot be read twice needs a log beside the checkpoint, and viewfs://.* is not a"
    ):
        on_spark.run(counting(io.Items([{"n": 1, "city": "a"}], SCHEMA), io.Discard()), **kept)
    flow = Flow("sending")
    flow.read("r", io.Generate(lambda n: {"n": n}, {"n": int}, rate=10)).write("out", io.Http("http://127.0.0.1:9/x"))
    with pytest.raises(RunError, match=r"sink 'out' keeps records on disk until .* has them, and checkpoint viewfs://"):
        on_spark.run(flow, **kept)
    with pytest.raises(RunError, match=r"history keeps state .* and viewfs://.* is a URL; give a folder"):
        on_spark.backfill(flow, "t", **kept)


def test_a_file_at_a_url_is_as_it_was_or_as_it_was_just_written(lake):
    folder, url = lake
    storage = Storage(url)
    assert storage.read("note") is None
    for said in (b"one", b"two", b"three"):
        storage.write("note", said)
        assert Storage(url).read("note") == said
    assert [path.name for path in folder.iterdir()] == ["note.3"]
    (folder / "note.new").write_bytes(b"half")  # whoever wrote it was killed
    assert Storage(url).read("note") == b"three"
    (folder / "note.4").write_bytes(b"another's")
    with pytest.raises(RunError, match="in use by another run"):
        storage.write("note", b"four")
    with pytest.raises(RunError, match=r"cannot read nosuchfs://x/y: Spark knows no file system nosuchfs"):
        Storage("nosuchfs://x/y").read("note")


def test_lines_at_a_url_are_records_or_dead_letters_and_files_that_come_later_are_read_too(lake):
    folder, url = lake
    (folder / "in").mkdir()
    written_lines(folder / "in" / "a.jsonl", range(100))
    with (folder / "in" / "a.jsonl").open("a") as file:
        file.write('\n{"n": "no number"}\n')
    flow, out, dead = Flow("reading"), io.Collect(), io.Collect()
    flow.read("r", io.SparkTable(f"{url}/in", SCHEMA, form="json", follow=True)).write("out", out)
    flow.dead_letters.write("dead", dead)
    running = on_spark.start(flow)
    try:
        while len(out.records) < 100 and running.wait(0.02) is None:
            pass
        written_lines(folder / "in" / "b.jsonl", range(100, 150))
        while len(out.records) < 150 and running.wait(0.02) is None:
            pass
    finally:
        running.stop()
        running.wait()
    assert sorted(row["n"] for row in out.records) == list(range(150))
    assert [(letter["record"], letter["error"]) for letter in dead.records] == [
        ('{"n": "no number"}', "n: expected int, got str")
    ]


def test_what_is_written_at_a_url_is_read_from_there(lake):
    folder, url = lake
    rows = [{"n": n, "city": f"c {n % 3}"} for n in range(40)]
    flow = Flow("writing")
    read = flow.read("r", io.Items(rows, SCHEMA))
    read.write("csv", io.SparkTable(f"{url}/csv", form="csv"))
    read.write("parquet", io.SparkTable(f"{url}/parquet"))
    read.select("cities", "city").write("text", io.SparkTable(f"{url}/text", form="text"))
    on_spark.run(flow)
    [path] = [path for path in (folder / "csv").iterdir() if path.suffix == ".csv"]
    with path.open("a") as file:
        file.write("x,y\n")
    flow, kept = Flow("reading"), {form: io.Collect() for form in ("csv", "parquet", "text")}
    for form, source in {
        "csv": io.SparkTable(f"{url}/csv/{path.name}", SCHEMA),  # one file, by its ending
        "parquet": io.SparkTable(f"{url}/parquet", SCHEMA),
        "text": io.SparkTable(f"{url}/text", {"line": str}, form="text"),
    }.items():
        flow.read(f"from {form}", source).write(form, kept[form])
    report = on_spark.run(flow)
    for form in ("csv", "parquet"):
        assert sorted((row["n"], row["city"]) for row in kept[form].records) == [(n, f"c {n % 3}") for n in range(40)]
    assert sorted(row["line"] for row in kept["text"].records) == sorted(row["city"] for row in rows)
    assert report.dead_letters == 1


@pytest.mark.parametrize("form", ["parquet", "json"])
def test_a_micro_batch_is_one_file_however_often_it_is_written(lake, tmp_path, form):
    folder, url = lake
    schema = Schema.of(SCHEMA)
    flow = Flow("f")
    flow.read("in", io.Items([], schema)).write("out", io.SparkTable(f"{url}/t", form=form))
    step = flow.steps["out"]
    assert guarantee(step) == "exactly once"
    for number, killed in ((0, ""), (1, "before"), (1, "behind"), (1, ""), (2, "")):
        sink: Any = open_sink(step, tmp_path / "checkpoint")
        if number <= sink.committed:
            continue
        sink.rollback()
        sink.write(Batch.of({"n": [number, -number], "city": ["a", "b"]}, schema))
        if killed == "behind":
            sink._append(number)  # it is there, and nobody has noted it
        elif not killed:
            sink.commit(number)
    found = ds.dataset(folder / "t", format=form, exclude_invalid_files=False).to_table()["n"].to_pylist()
    assert sorted(found) == [-2, -1, 0, 0, 1, 2]
    assert len(list((folder / "t").glob("part-*"))) == 3


@pytest.mark.parametrize("form", ["parquet", pytest.param("json", marks=pytest.mark.thorough)])
def test_tasks_write_files_of_this_machine_which_are_there_once(spark, tmp_path, form):
    source = io.JsonLines(written_lines(tmp_path / "in.jsonl", range(2000)), SCHEMA)
    flow = counting(source, io.SparkTable(f"file://{tmp_path}/out", form=form))
    assert delivery_text(flow.steps["out"]) == "written by tasks, exactly once"
    with stopped_half_way(flow, checkpoint=tmp_path / "kept"):
        pass
    on_spark.run(flow, checkpoint=tmp_path / "kept")
    found = ds.dataset(tmp_path / "out", format=form, exclude_invalid_files=False).to_table()["n"].to_pylist()
    assert sorted(found) == list(range(2000))
    assert spark.read.format(form).load(str(tmp_path / "out")).count() == 2000


def test_what_has_no_json_form_is_a_dead_letter(spark, tmp_path):
    flow = Flow("f")
    rows = flow.read("r", io.Items([{"n": 1}, {"n": 2}], {"n": int}))
    made = rows.map("objects", lambda r: {"n": r["n"], "x": 1j if r["n"] == 2 else [1]}, out={"n": int, "x": "any"})
    made.write("out", io.SparkTable(str(tmp_path / "out"), form="json"))
    report = on_spark.run(flow)
    assert json_rows(tmp_path / "out") == [{"n": 1, "x": [1]}]
    assert report.dead_letters == 1


def test_the_command_line_takes_urls(lake, tmp_path, typed):
    folder, url = lake
    written_lines(folder / "in.jsonl", range(50))
    (tmp_path / "copying.py").write_text(
        "from headwater import Flow, io\n"
        "flow = Flow('copy')\n"
        "flow.read('r', io.Items([], {'n': int, 'city': str})).write('kept out', io.Discard())\n"
    )
    words = ["run", "copying.py", "--input", f"{url}/in.jsonl", "--output", f"{url}/out", "--checkpoint", f"{url}/kept"]
    code, _, err = typed(*words)
    assert (code, "--checkpoint at a URL is for --on spark" in " ".join(err.split())) == (2, True)
    code, out, err = typed(*words, "--on", "spark", "--json")
    assert code == 0, err
    assert json.loads(out)["records_in"] == 50
    rows = [line for path in (folder / "out" / "kept_out").glob("part-*") for line in path.read_text().splitlines()]
    assert sorted(rows)[-2:] == ["9,c0", "n,city"]
    assert len(rows) == 51


def test_forms_and_columns_that_cannot_be_are_told_before_spark_starts(monkeypatch):
    monkeypatch.setattr("headwater.spark.running.session", lambda *given: pytest.fail("Spark was started"))

    def run(source, sink):
        flow = Flow("f")
        flow.read("r", source).write("out", sink)
        on_spark.run(flow)

    def refused(source, sink, why):
        with pytest.raises(FlowError, match=why):
            run(source, sink)

    refused(io.SparkTable("a/b"), io.Discard(), "takes a schema")
    refused(io.SparkTable("a/b.txt", SCHEMA), io.Discard(), "has one text column, the lines")
    refused(io.SparkTable("a/b", {"x": "any"}), io.Discard(), "has no columns of any type: read 'x' as text")
    refused(io.Items([], SCHEMA), io.SparkTable("lines", form="text"), "has one text column")
    with pytest.raises(FlowError, match=r"no form 'jsno'.*did you mean 'json'"):
        io.SparkTable("a/b", form="jsno")
    with pytest.raises(
        FlowError, match=r"no release of Iceberg's runtime works with Spark 4\.3: the newest, 1\.12\.0, is for"
    ):
        io.SparkTable("a/b", form="iceberg")
    with pytest.raises(FlowError, match="on Spark only"):
        io.SparkTable("a/b", SCHEMA).open(None)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"n": int, "citty": str}, "has no column 'citty'; columns are 'city', 'day', 'later', 'n'; did you mean 'city'"),
        ({"city": int}, "column 'city' is string there, and cannot be read as int; read it as text"),
        ({"n": float}, "column 'n' is (int64|bigint) there, and cannot be read as float; read it as int"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("place", ["path", "url"])
def test_a_column_that_files_do_not_have_or_have_otherwise_is_told(spark, lake, schema, said, place):
    folder, url = lake
    path, flow = in_folders(folder), Flow("f")
    address = str(path) if place == "path" else f"{url}/table"
    flow.read("r", io.SparkTable(address, schema)).write("out", io.Discard())
    with pytest.raises(FlowError, match=said):
        on_spark.run(flow)


@pytest.mark.parametrize("place", [pytest.param("path", marks=pytest.mark.thorough), "url"])
def test_columns_of_some_files_and_of_folders_are_read_in_any_case(spark, lake, place):
    folder, url = lake
    path, flow, out = in_folders(folder), Flow("f"), io.Collect()
    address = str(path) if place == "path" else f"{url}/table"
    schema = {"n": int, "City": str, "later": float, "day": str}
    flow.read("r", io.SparkTable(address, schema)).write("out", out)
    on_spark.run(flow)
    assert sorted(tuple(row.values()) for row in out.records) == [(1, "a", None, "07"), (2, "b", 0.5, "08")]


def in_folders(folder):
    """Write a table by days, to which a column came later."""
    for day, columns in {"07": {"n": [1], "city": ["a"]}, "08": {"n": [2], "city": ["b"], "later": [0.5]}}.items():
        path = folder / "table" / f"day={day}"
        path.mkdir(parents=True)
        pq.write_table(pa.table(columns), path / "part.parquet")
    return folder / "table"
