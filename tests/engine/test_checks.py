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


def test_a_folder_that_a_run_with_a_checkpoint_wrote_in_place_of_a_parquet_file_is_told_as_such(folder):
    flow = two_outputs(folder, io.Parquet(folder / "second.parquet"))
    engine.run(flow, checkpoint=folder / "kept")
    assert (folder / "second.parquet").is_dir()
    before = (folder / "first.jsonl").read_bytes()
    with pytest.raises(InputError, match="as a run with a checkpoint makes one"):
        engine.run(flow)
    assert (folder / "first.jsonl").read_bytes() == before
