"""Folders that files are put into: every file once, when it is complete, by one run or by several."""

import json
import os
import random
import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reading import taken

from headwater import Flow, engine, io
from headwater.errors import FlowError, InputError
from killed import killed_until
from waiting import PATIENCE_S

FIELDS = {"n": int}
OLD_S = 1_000_000_000


def put(folder, name, numbers, *, old=True):
    """Put a file there as one should: under another name first."""
    text = "".join(f'{{"n": {n}}}\n' for n in numbers)
    half = folder / f"{name}.tmp"
    half.write_text(text)
    if old:
        os.utime(half, (OLD_S, OLD_S))
    half.rename(folder / name)


def all_of(source, reject=pytest.fail):
    flow = Flow("all")
    flow.read("in", source).write("out", kept := io.Collect())
    engine.run(flow)
    return kept.records


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "drop"
    folder.mkdir()
    return folder


def test_files_are_read_in_the_order_of_their_names_or_of_their_time(folder):
    for place, name in enumerate(["b.jsonl", "c.jsonl", "a.jsonl"]):
        put(folder, name, [place])
        os.utime(folder / name, (OLD_S + place, OLD_S + place))
    assert [row["n"] for row in all_of(io.Folder(folder))] == [2, 0, 1]
    assert [row["n"] for row in all_of(io.Folder(folder, order="time"))] == [0, 1, 2]


def test_the_ending_says_what_a_file_is_and_its_name_can_be_a_column(folder):
    put(folder, "a.jsonl", [1])
    (folder / "b.csv").write_text("x,n\n-,2\n")
    pq.write_table(pa.table({"n": [3]}), folder / "c.parquet")
    source = io.Folder(folder, schema=FIELDS, file_column="file", settled="0 s")
    assert all_of(source) == [{"n": 1, "file": "a.jsonl"}, {"n": 2, "file": "b.csv"}, {"n": 3, "file": "c.parquet"}]
    (folder / "d.log").write_bytes(b"first\r\nsecond")
    assert all_of(io.Folder(folder, "*.log", settled="0 s")) == [{"line": "first"}, {"line": "second"}]
    (folder / "e.dat").write_text("n;m\n5;6\n")
    read = io.Folder(folder, "*.dat", form=lambda path: io.Csv(path, delimiter=";"), settled="0 s")
    assert all_of(read) == [{"n": 5, "m": 6}]


def test_a_file_that_is_being_written_is_not_read_before_it_is_complete(folder):
    reader = io.Folder(folder, "*.jsonl*", FIELDS, follow=True, settled="10 min").open(pytest.fail)
    (folder / "a.jsonl.part").write_text('{"n": 1}\n')
    (folder / ".b.jsonl").write_text('{"n": 2}\n')
    with (folder / "c.jsonl").open("w") as file:
        for n in range(20):
            file.write(f'{{"n": {n}}}\n'[:-3])  # half a line
            file.flush()
            assert reader.read(10, 0.0).length == 0
            file.write(f'{{"n": {n}}}\n'[-3:])
            file.flush()
    assert reader.read(10, 0.0).length == 0
    os.utime(folder / "c.jsonl", (OLD_S, OLD_S))  # as if a while had passed
    assert taken(reader, 20) == list(range(20))
    (folder / "a.jsonl.part").rename(folder / "a.jsonl")
    os.utime(folder / "a.jsonl", (OLD_S, OLD_S))
    assert taken(reader, 1) == [1]
    reader.close()


def test_files_that_are_added_are_read_whatever_their_names_and_none_twice(folder):
    put(folder, "m.jsonl", range(5))
    reader = io.Folder(folder, schema=FIELDS, follow=True).open(pytest.fail)
    assert taken(reader, 5) == list(range(5))
    put(folder, "a.jsonl", range(5, 8))
    put(folder, "z.jsonl", range(8, 10))
    assert taken(reader, 5) == list(range(5, 10))
    position = reader.position
    reader.close()
    put(folder, "b.jsonl", [10])
    (folder / "z.jsonl").unlink()
    later = io.Folder(folder, schema=FIELDS, follow=True).open(pytest.fail, position)
    assert taken(later, 1) == [10]
    assert later.read(10, 0.3).length == 0
    assert sorted(later.position[0]) == ["a.jsonl", "b.jsonl", "m.jsonl"]  # what is gone need not be known
    later.close()


def test_a_later_reader_goes_on_in_the_file(folder):
    put(folder, "a.jsonl", range(10))
    put(folder, "b.jsonl", range(10, 20))
    reader = io.Folder(folder, schema=FIELDS).open(pytest.fail)
    first = [row["n"] for row in reader.read(4, 0).rows()]
    position = json.loads(json.dumps(reader.position))
    reader.close()
    later = io.Folder(folder, schema=FIELDS).open(pytest.fail, position)
    assert first + taken(later, 16) == list(range(20))
    assert later.read(4, 0) is None


def test_a_file_that_cannot_be_read_is_a_dead_letter_and_the_others_are_read(folder):
    put(folder, "a.jsonl", [1])
    (folder / "b.parquet").write_bytes(b"no parquet")
    (folder / "c.csv").write_text("m\n2\n")
    (folder / "d.what").write_text("?")
    pq.write_table(pa.table({"n": ["three"]}), folder / "e.parquet")
    put(folder, "f.jsonl", [6])
    rejected = []
    source = io.Folder(folder, schema=FIELDS, settled="0 s")
    reader = source.open(lambda text, why: rejected.append((os.path.basename(text), why)))
    assert taken(reader, 2) == [1, 6]
    assert [name for name, _ in rejected] == ["b.parquet", "c.csv", "d.what", "e.parquet"]
    for (_, why), told in zip(rejected, ["parquet", "no column 'n'", "cannot tell the form", "n text"], strict=True):
        assert told in why.lower()


def test_what_cannot_be_meant_is_told(folder):
    with pytest.raises(InputError, match="no such file"):
        io.Folder(folder / "elsewhere", schema=FIELDS).open(print)
    with pytest.raises(InputError, match="no file is there yet; give a schema"):
        _ = io.Folder(folder).schema
    for options, told in (
        ({"form": "cvs"}, "did you mean 'csv'"),
        ({"order": "size"}, "'name', 'time'"),
        ({"pattern": "x/*.csv"}, "names of files"),
    ):
        with pytest.raises(FlowError, match=told):
            io.Folder(folder, **options)


def test_runs_that_are_killed_while_files_are_added_have_every_record_once(folder, tmp_path):
    out, checkpoint, files = tmp_path / "out.jsonl", tmp_path / "checkpoint", 60

    def add():
        chance = random.Random(5)
        names = [f"{chance.randrange(10**6):06d}.jsonl" for _ in range(files)]
        for number, name in enumerate(names):
            put(folder, name, range(20 * number, 20 * number + 20), old=number % 2 == 0)
            time.sleep(0.02)

    def run():
        flow = Flow("drop")
        flow.read("in", io.Folder(folder, schema=FIELDS, follow=True, settled="50 ms")).write("out", io.JsonLines(out))
        engine.run(flow, checkpoint=checkpoint, every="20 ms")

    def written():
        lines = out.read_text().splitlines() if out.exists() else []
        return [json.loads(line)["n"] for line in lines if line.endswith("}")]

    adding = threading.Thread(target=add)
    adding.start()
    killed_until(lambda: not adding.is_alive() and len(written()) >= 20 * files, run, kills=5)
    adding.join(PATIENCE_S)
    assert sorted(written()) == list(range(20 * files))
