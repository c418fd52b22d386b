"""What every kind of file promises, read or written."""

import gzip
import lzma
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from io_strategies import batches, names, same, values

from headwater import Flow, engine
from headwater.data.schema import Schema
from headwater.errors import InputError, RunError
from headwater.io import Csv, Items, JsonLines, Parquet

KINDS = [JsonLines, Csv, Parquet]
every_kind = pytest.mark.parametrize("kind", KINDS)
finite = {
    **values,
    "float": st.floats(allow_nan=False, allow_infinity=False),
    "float32": st.floats(width=32, allow_nan=False, allow_infinity=False),
}
ROWS = Schema.of({"id": str, "x": float})


def written(path, kind, batch, schema):
    writer = kind(path).open(schema)
    writer.write(batch)
    writer.close()


def everything(reader, limit=50):
    rows = []
    while (batch := reader.read(limit, 1)) is not None:
        rows += batch.rows()
    reader.close()
    return rows


def numbered(count, start=0):
    from headwater.data.batch import Batch

    numbers = range(start, start + count)
    return Batch.of({"id": [f"s{n}" for n in numbers], "x": [n / 2 for n in numbers]}, ROWS)


@given(batches(finite, names=names.filter(lambda name: name.isprintable() and not set(name) & set('\\"'))))
def test_json_lines_come_back_as_they_were(tmp_path_factory, drawn):
    batch, schema = drawn
    path = tmp_path_factory.mktemp("jsonl") / "file"
    written(path, JsonLines, batch, schema)
    assert same(everything(JsonLines(path, schema).open(pytest.fail), 2), batch.rows())


@given(batches({**values, "float": st.floats(), "text": values["text"]}, nulls=set(values) - {"text"}))
def test_csv_rows_come_back_as_they_were(tmp_path_factory, drawn):
    batch, schema = drawn
    path = tmp_path_factory.mktemp("csv") / "file"
    written(path, Csv, batch, schema)
    names_in_file = {name.strip() for name in schema}
    if names_in_file != set(schema):
        return  # a header's names lose their blanks
    assert same(everything(Csv(path, schema).open(pytest.fail), 2), batch.rows())


@given(batches({**values, "float": st.floats()}))
def test_parquet_comes_back_as_it_was_with_its_schema(tmp_path_factory, drawn):
    batch, schema = drawn
    path = tmp_path_factory.mktemp("parquet") / "file"
    written(path, Parquet, batch, schema)
    assert Parquet(path).schema == schema
    assert same(everything(Parquet(path).open(pytest.fail), 2), batch.rows())


@every_kind
@given(limits=st.lists(st.integers(1, 30), max_size=8))
def test_a_reader_opened_at_a_position_goes_on_from_there(tmp_path_factory, kind, limits):
    path = tmp_path_factory.mktemp("position") / "file"
    written(path, kind, numbered(100), ROWS)
    reader, before = kind(path).open(pytest.fail), []
    for limit in limits:
        before += batch.rows() if (batch := reader.read(limit, 1)) else []
    position = reader.position
    reader.close()
    after = everything(kind(path).open(pytest.fail, position))
    assert before + after == numbered(100).rows()


@every_kind
def test_a_missing_file_is_named_with_the_likely_fix(tmp_path, kind):
    with pytest.raises(InputError, match=r"cannot read .*nothing: there is no such file; is the path right"):
        _ = kind(tmp_path / "nothing").schema


@every_kind
def test_a_directory_is_not_a_file(tmp_path, kind):
    with pytest.raises(InputError, match=r"cannot read .*: it is a directory"):
        _ = kind(tmp_path).schema
    with pytest.raises(InputError, match=r"cannot write .*: it is a directory"):
        kind(tmp_path).open(ROWS)


@every_kind
def test_a_directory_that_is_missing_cannot_be_written_to(tmp_path, kind):
    with pytest.raises(InputError, match=r"cannot write .*: its directory does not exist"):
        kind(tmp_path / "no" / "file").open(ROWS)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@every_kind
def test_a_file_without_permission_is_unreadable(tmp_path, kind):
    (tmp_path / "file").touch(mode=0)
    with pytest.raises(InputError, match=r"cannot read .*: permission denied"):
        _ = kind(tmp_path / "file").schema


@pytest.mark.parametrize("kind", [JsonLines, Csv])
def test_a_full_disk_is_one_clear_error(kind):
    """The kernel itself says that the device is full."""
    with pytest.raises(InputError, match=r"cannot write /dev/full: the disk is full; free some space"):
        written("/dev/full", kind, numbered(1), ROWS)


@pytest.mark.parametrize("kind", [JsonLines, Csv])
def test_a_batch_that_does_not_fit_the_disk_leaves_the_file_as_it_was(tmp_path, kind, file_limit):
    writer = kind(tmp_path / "file").open(ROWS)
    writer.write(numbered(10))
    with (
        file_limit((tmp_path / "file").stat().st_size + 20),
        pytest.raises(InputError, match="as large as it may get"),
    ):
        writer.write(numbered(10, start=10))
    writer.write(numbered(5, start=20))
    writer.close()
    rows = everything(kind(tmp_path / "file").open(pytest.fail))
    assert rows == numbered(10).rows() + numbered(5, start=20).rows()


@pytest.mark.parametrize("kind", [JsonLines, Csv])
def test_appending_keeps_what_was_there(tmp_path, kind):
    for start in (0, 10):
        writer = kind(tmp_path / "file", append=True).open(ROWS)
        writer.write(numbered(10, start))
        writer.close()
    assert everything(kind(tmp_path / "file").open(pytest.fail)) == numbered(20).rows()


@every_kind
def test_writing_replaces_what_was_there(tmp_path, kind):
    for count in (20, 3):
        written(tmp_path / "file", kind, numbered(count), ROWS)
    assert everything(kind(tmp_path / "file").open(pytest.fail)) == numbered(3).rows()


@pytest.mark.parametrize("kind", [JsonLines, Csv])
@pytest.mark.parametrize(
    ("packed", "what"),
    [
        (gzip.compress(b"n,word\n1,a\n"), r"it is packed; unpack it first \(gzip -d\)"),
        (lzma.compress(b"n,word\n1,a\n"), r"it is packed; unpack it first \(xz -d\)"),
        ("n,word\n1,a\n".encode("utf-16"), "it is text in UTF-16; write it in UTF-8"),
    ],
)
def test_a_file_that_is_no_text_is_told_and_is_not_an_empty_one(tmp_path, kind, packed, what):
    path = tmp_path / "file"
    path.write_bytes(packed)
    with pytest.raises(InputError, match=what):
        assert kind(path).schema  # guessed: what is packed may have no second line, and the first was the header
    with pytest.raises(InputError, match=what):
        everything(kind(path, {"n": int}).open(pytest.fail))


@pytest.mark.parametrize("kind", [JsonLines, Csv])
def test_a_line_that_never_ends_is_not_swallowed(kind):
    with pytest.raises(InputError, match=r"line 1 has no end within .* is it a text file\?"):
        kind("/dev/zero", ROWS).open(pytest.fail).read(10, 1)


def test_a_line_that_is_too_long_is_told_by_its_number(tmp_path):
    path = tmp_path / "long.jsonl"
    path.write_bytes(b'{"n": 1}\n{"n": 2}\n' + b"x" * 20_000_000 + b"\n")
    with pytest.raises(InputError, match="line 3 has no end within"):
        assert JsonLines(path).schema  # guessed
    with pytest.raises(InputError, match="line 3 has no end within"):
        everything(JsonLines(path, {"n": int}).open(pytest.fail))


@pytest.mark.parametrize("kind", [JsonLines, Csv])
def test_a_file_that_shrank_cannot_be_gone_on_with(tmp_path, kind):
    written(tmp_path / "file", kind, numbered(3), ROWS)
    with pytest.raises(InputError, match=r"from byte 9,999.*was the file replaced\?"):
        kind(tmp_path / "file", ROWS).open(pytest.fail, [9999, 9])


@every_kind
def test_a_position_of_another_kind_is_refused(tmp_path, kind):
    written(tmp_path / "file", kind, numbered(3), ROWS)
    with pytest.raises(InputError, match=r"from position 'here'"):
        kind(tmp_path / "file").open(pytest.fail, "here")


@every_kind
def test_a_file_that_another_run_writes_is_refused_and_stays_as_it_is(tmp_path, kind):
    path = tmp_path / "file"
    first = kind(path).open(ROWS)
    first.write(numbered(3))
    for options in ({}, {"append": True}) if kind is not Parquet else ({},):
        with pytest.raises(InputError, match="another run is writing it"):
            kind(path, **options).open(ROWS)
    first.write(numbered(3, start=3))
    first.close()
    assert everything(kind(path).open(pytest.fail)) == numbered(6).rows()
    written(path, kind, numbered(1), ROWS)
    assert everything(kind(path).open(pytest.fail)) == numbered(1).rows()


@pytest.mark.parametrize("kind", [JsonLines, Csv])
def test_a_last_line_without_an_end_is_ended_before_more_is_added(tmp_path, kind):
    path = tmp_path / "file"
    written(path, kind, numbered(2), ROWS)
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    writer = kind(path, append=True).open(ROWS)
    writer.write(numbered(2, start=2))
    writer.close()
    assert everything(kind(path).open(pytest.fail)) == numbered(4).rows()


def test_what_a_killed_run_left_of_a_parquet_file_is_overwritten(tmp_path):
    (tmp_path / ".file.part").write_bytes(b"x" * 100_000)
    written(tmp_path / "file", Parquet, numbered(2), ROWS)
    assert everything(Parquet(tmp_path / "file").open(pytest.fail)) == numbered(2).rows()
    assert sorted(os.listdir(tmp_path)) == ["file"]


def test_a_parquet_file_that_breaks_off_is_no_success(tmp_path, file_limit, monkeypatch):
    from headwater.io import parquet

    monkeypatch.setattr(parquet, "_ROWS", 1000)
    path = tmp_path / "file"
    flow = Flow("parquet")
    rows = [{"id": f"{n * 7919:x}", "x": float(n)} for n in range(5000)]
    flow.read("in", Items(rows, ROWS)).write("out", Parquet(path))
    with file_limit(20_000):
        run = engine.start(flow, chunk=100)
        with pytest.raises(RunError, match=r"step 'out' could not finish: .* records are lost with it"):
            run.wait()
    document = run.report().to_json()
    assert (document["records_out"]["out"], document["dead_letters"]) == (0, 5000)
    assert os.listdir(tmp_path) == []
