"""A run that cannot start leaves what runs before it have written."""

import pytest

from headwater import Flow, engine, io
from headwater.errors import InputError


def two_outputs(folder, second):
    flow = Flow("two")
    rows = flow.read("rows", io.JsonLines(folder / "rows.jsonl", {"n": int}))
    rows.write("first", io.JsonLines(folder / "first.jsonl"))
    rows.write("second", second)
    return flow


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"n":1}\n{"n":2}\n')
    (tmp_path / "out").mkdir()
    return tmp_path


@pytest.mark.parametrize("options", [{}, {"lanes": 2}, {"on": "threads"}, {"checkpoint": "kept"}], ids=str)
def test_a_run_of_which_one_sink_cannot_be_written_leaves_the_other_as_it_is(folder, options, monkeypatch):
    monkeypatch.chdir(folder)
    first = folder / "first.jsonl"
    engine.run(two_outputs(folder, io.Csv(folder / "out" / "second.csv")))
    before = first.read_bytes()
    assert before.count(b"\n") == 2
    (folder / "out" / "second.csv").unlink()
    (folder / "out").rmdir()
    with pytest.raises(InputError, match="directory does not exist"):
        engine.run(two_outputs(folder, io.Csv(folder / "out" / "second.csv")), **options)
    assert first.read_bytes() == before


@pytest.mark.parametrize("options", [{}, {"lanes": 2}], ids=str)
def test_a_run_without_its_source_leaves_the_sinks_as_they_are(folder, options):
    flow = two_outputs(folder, io.Csv(folder / "out" / "second.csv"))
    engine.run(flow)
    before = [(folder / name).read_bytes() for name in ("first.jsonl", "out/second.csv")]
    (folder / "rows.jsonl").rename(folder / "away.jsonl")
    with pytest.raises(InputError, match=r"cannot read .*rows\.jsonl"):
        engine.run(flow, **options)
    assert [(folder / name).read_bytes() for name in ("first.jsonl", "out/second.csv")] == before


def test_a_folder_in_the_place_of_a_source_is_told_before_sinks_begin_anew(folder):
    flow = two_outputs(folder, io.Csv(folder / "out" / "second.csv"))
    engine.run(flow)
    before = (folder / "first.jsonl").read_bytes()
    (folder / "rows.jsonl").unlink()
    (folder / "rows.jsonl").mkdir()
    with pytest.raises(InputError, match=r"cannot read .*rows\.jsonl: it is a directory"):
        engine.run(flow)
    assert (folder / "first.jsonl").read_bytes() == before


def test_a_folder_that_a_run_with_a_checkpoint_wrote_in_place_of_a_parquet_file_is_told_as_such(folder):
    flow = two_outputs(folder, io.Parquet(folder / "second.parquet"))
    engine.run(flow, checkpoint=folder / "kept")
    assert (folder / "second.parquet").is_dir()
    before = (folder / "first.jsonl").read_bytes()
    with pytest.raises(InputError, match="as a run with a checkpoint makes one"):
        engine.run(flow)
    assert (folder / "first.jsonl").read_bytes() == before


@pytest.mark.parametrize("options", [{}, {"lanes": 2}], ids=str)
def test_a_parquet_file_is_not_replaced_by_the_folder_that_a_run_with_a_checkpoint_writes(folder, options):
    path = folder / "second.parquet"
    flow = two_outputs(folder, io.Parquet(path))
    engine.run(flow)
    before = [(folder / name).read_bytes() for name in ("first.jsonl", "second.parquet")]
    with pytest.raises(
        InputError, match=r"second\.parquet: it is a file, and a run with a checkpoint.* writes a folder"
    ):
        engine.run(flow, checkpoint=folder / "kept", **options)
    assert [(folder / name).read_bytes() for name in ("first.jsonl", "second.parquet")] == before
    path.rename(folder / "other.parquet")
    for _ in range(2):  # the second goes on with the folder
        engine.run(flow, checkpoint=folder / "kept", **options)
    lengths = [len(io.Parquet(each).open(pytest.fail).read(9, 0.0)) for each in path.glob("part-*")]
    assert sum(lengths) == 2


@pytest.mark.parametrize("options", [{}, {"checkpoint": "kept"}], ids=str)
def test_a_file_in_the_place_of_a_table_is_told_before_other_sinks_begin(folder, options):
    (folder / "table").write_text("notes")
    with pytest.raises(InputError, match="table: it is a file, and a table is a folder of files"):
        engine.run(
            two_outputs(folder, io.ParquetTable(folder / "table")),
            **{name: folder / given for name, given in options.items()},
        )
    assert (folder / "table").read_text() == "notes"
    assert not (folder / "first.jsonl").exists()
