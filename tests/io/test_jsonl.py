import os
import re
import sys
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import rows_of

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.io import JsonLines

SCHEMA = {"id": str, "x": float, "n": int, "ok": bool, "t": "time"}
GOOD = b'{"id": "a", "x": 1, "n": 2, "ok": true, "t": 3}'


@pytest.fixture
def path(tmp_path):
    return tmp_path / "in.jsonl"


def read(path, reject, schema=SCHEMA, limit=50):
    return rows_of(JsonLines(path, schema).open(reject), limit)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"id": "a"', "not JSON"),
        (b"hello", "not JSON"),
        (b'{"x": NaN}', "JSON has no NaN, write null"),
        (b"[1, 2]", "expected object, got array"),
        (b"7", "expected object, got int"),
        (b'{"x": "1.5"}', "x: expected float, got str"),
        (b'{"id": 5}', "id: expected text, got int"),
        (b'{"n": 1.5}', "n: expected int, got float"),
        (b'{"n": true}', "n: expected int, got bool"),
        (b'{"ok": 1}', "ok: expected bool, got int"),
        (b'{"n": 9223372036854775808}', "n: expected int <= 9223372036854775807"),
        (b'{"t": "yesterday"}', "t: expected a time, such as 2026-11-15T08:00:00Z .* got 'yesterday'"),
        (b'{"t": 1.5}', "t: expected time, got float"),
        (b'{"t": 9223372036854775808}', "t: expected time, got 9223372036854775808, which is beyond 64 bits"),
        (b'{"x": 1e999}', "x: number out of range"),
        (b'{"id": "\xff"}', "not UTF-8"),
        (b'{"x": 1} {"x": 2}', "not JSON: trailing characters"),
        (b'{"id": ' + b"[" * 100_000, "nested too deeply|expected text"),
    ],
)
def test_a_bad_line_is_rejected_with_its_number_and_reading_goes_on(path, rejected, line, reason):
    path.write_bytes(b"\n".join([GOOD, line, GOOD, b""]))
    assert len(read(path, rejected)) == 2
    [(text, why)] = rejected
    assert text == line.decode(errors="replace")
    assert why.startswith(f"{path} line 2: ")
    assert re.search(reason, why), why


def test_a_field_that_is_absent_or_null_is_missing(path, rejected):
    path.write_text('{"id": "a", "x": null}\n{"extra": 1}\n')
    nothing = dict.fromkeys(SCHEMA)
    assert read(path, rejected) == [{**nothing, "id": "a"}, nothing]
    assert rejected == []


def test_moments_are_read_from_iso_text_and_from_microseconds(path, rejected):
    path.write_text('{"t": "1970-01-01T00:00:01Z"}\n{"t": 5}\n{"t": "1970-01-01T01:00:00.000001+01:00"}\n{"t": null}\n')
    assert [row["t"] for row in read(path, rejected, {"t": "time"})] == [1_000_000, 5, 1, None]


def test_moments_are_written_as_iso_text(path):
    writer = JsonLines(path).open(Schema.of({"t": "time"}))
    writer.write(Batch.of({"t": [1_000_001, None, 2**60]}, Schema.of({"t": "time"})))
    writer.close()
    assert path.read_text() == '{"t":"1970-01-01T00:00:01.000001Z"}\n{"t":null}\n{"t":1152921504606846976}\n'


def test_nan_is_written_as_null(path):
    writer = JsonLines(path).open(Schema.of({"x": float}))
    writer.write(Batch.of({"x": [float("nan"), 1.5]}, Schema.of({"x": float})))
    writer.close()
    assert path.read_text() == '{"x":null}\n{"x":1.5}\n'


def test_arrays_are_written_as_lists_and_other_objects_refused(path):
    schema = Schema.of({"v": object})
    writer = JsonLines(path).open(schema)
    refused = writer.write(Batch.of({"v": [object(), np.array([1, 2]), object(), 3]}, schema))
    assert set(refused) == {0, 2}
    assert all("type object has no JSON form" in reason for reason in refused.values())
    writer.close()
    assert path.read_text() == '{"v":[1,2]}\n{"v":3}\n'


def test_columns_are_guessed_from_the_first_lines(path):
    path.write_text(
        '{"id": "a", "n": 1, "x": 1, "ok": true, "t": "2026-11-15T08:00:00Z", "v": [1]}\n'
        'bad line\n{"id": "b", "n": null, "x": 2.5, "ok": false, "t": "2026-11-15 08:00:00.5", "w": "?"}\n'
    )
    assert JsonLines(path).schema == Schema.of(
        {"id": str, "n": int, "x": float, "ok": bool, "t": "time", "v": object, "w": str}
    )


@pytest.mark.parametrize("text", ["", "nothing\nlike it\n"])
def test_nothing_to_guess_from_asks_for_a_schema(path, text):
    path.write_text(text)
    with pytest.raises(InputError, match=r"cannot guess the columns of .*give a schema"):
        _ = JsonLines(path).schema


def test_a_name_that_json_decoding_cannot_hold_is_refused(path):
    path.write_text('{"a\\\\b": 1}\n')
    with pytest.raises(InputError, match="cannot be read from JSON by its name"):
        JsonLines(path).open(pytest.fail)


@given(
    st.lists(st.sampled_from([GOOD, b"", b"  \r", b"{", b'{"x": []}', GOOD + b"\r"]), max_size=30),
    st.booleans(),
)
def test_every_line_comes_out_or_is_rejected_once(tmp_path_factory, lines, ends):
    path = tmp_path_factory.mktemp("count") / "in.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + b"\n".join(lines) + (b"\n" if ends and lines else b""))
    rejected = []
    rows = read(path, lambda *bad: rejected.append(bad), limit=4)
    records = [line for line in lines if line.strip()]
    assert len(rows) == sum(line.strip() == GOOD for line in records)
    assert len(rows) + len(rejected) == len(records)


def test_a_slow_pipe_gives_what_is_there_and_ends_when_it_is_closed(tmp_path, rejected):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    opened = []
    thread = threading.Thread(target=lambda: opened.append(os.open(path, os.O_WRONLY)))
    thread.start()
    reader = JsonLines(path, {"x": int}).open(rejected)
    thread.join()
    [pipe] = opened
    assert len(reader.read(50, 0.0)) == 0
    os.write(pipe, b'{"x": 1}\n{"x": 2}\n{"x"')
    assert reader.read(50, 60)["x"].tolist() == [1, 2]
    assert len(reader.read(50, 0.0)) == 0
    os.write(pipe, b": 3}\n")
    assert reader.read(50, 60)["x"].tolist() == [3]
    os.write(pipe, b'{"x": 4}')
    os.close(pipe)
    assert reader.read(50, 60)["x"].tolist() == [4]
    assert reader.read(50, 60) is None
    reader.close()


def test_a_dash_is_standard_input_and_guessing_takes_nothing_from_it(monkeypatch, rejected):
    inside, outside = os.pipe()
    os.write(outside, b'{"x": 1}\n{"x": 2}\n')
    os.close(outside)
    with os.fdopen(inside) as pipe:
        monkeypatch.setattr(sys, "stdin", pipe)
        source = JsonLines("-")
        assert source.schema == Schema.of({"x": int})
        reader = source.open(rejected)
        assert reader.read(50, 60)["x"].tolist() == [1, 2]
        assert reader.read(50, 60) is None
        reader.close()


def test_a_dash_is_standard_output(capfd):
    writer = JsonLines("-").open(Schema.of({"x": int}))
    writer.write(Batch.of({"x": [1, 2]}, Schema.of({"x": int})))
    writer.close()
    assert capfd.readouterr().out == '{"x":1}\n{"x":2}\n'
