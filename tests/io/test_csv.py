import os
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reading import rows_of

from headwater import Flow, engine
from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import FlowError, HeadwaterError, InputError
from headwater.io import Csv, JsonLines

SCHEMA = {"id": str, "x": float, "n": int, "ok": bool, "t": "time"}
HEADER, GOOD = "id,x,n,ok,t\n", "a,1,2,true,3\n"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "in.csv"


def read(source, reject, limit=50):
    return rows_of(source.open(reject), limit)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("a,1,2,true", "expected 5 fields, got 4"),
        ("a,1,2,true,3,4", "expected 5 fields, got 6"),
        ("a,one,2,true,3", "x: expected float, got 'one'"),
        ("a,1,2.5,true,3", "n: expected int, got '2.5'"),
        ("a,1,1_000,true,3", "n: expected int, got '1_000'"),
        ("a,1,9223372036854775808,true,3", "n: expected int"),
        ("a,1,2,maybe,3", "ok: expected bool, got 'maybe'"),
        ("a,1,2,true,yesterday", "t: expected time, got 'yesterday'"),
        ('"a"b,1,2,true,3', "',' expected after '\"'"),
    ],
)
def test_a_bad_row_is_rejected_with_its_line_and_reading_goes_on(path, rejected, row, reason):
    path.write_text(HEADER + GOOD + row + "\n" + GOOD)
    assert len(read(Csv(path, SCHEMA), rejected)) == 2
    [(text, why)] = rejected
    assert text == row
    assert why.startswith(f"{path} line 3: {reason}")


def test_a_row_that_is_not_utf8_is_rejected(path, rejected):
    path.write_bytes(b"id,n\na,1\n\xff,2\nb,3\n")
    assert [row["id"] for row in read(Csv(path, {"id": str, "n": int}), rejected)] == ["a", "b"]
    assert rejected == [("\ufffd,2", f"{path} line 3: not UTF-8 text")]


def test_an_empty_field_is_missing_but_in_a_text_column(path, rejected):
    path.write_text(HEADER + ",,,,\n")
    assert read(Csv(path, SCHEMA), rejected) == [{"id": "", "x": None, "n": None, "ok": None, "t": None}]


def test_nan_is_a_float(path, rejected):
    path.write_text("x\nnan\n1.5\n")
    first, second = read(Csv(path, {"x": float}), rejected)
    assert first["x"] != first["x"]
    assert second["x"] == 1.5


def test_columns_are_found_by_name_and_others_passed_over(path, rejected):
    path.write_text("b,a,c\n1,2,3\n")
    assert read(Csv(path, {"c": int, "b": int}), rejected) == [{"c": 3, "b": 1}]


def test_a_file_of_carriage_returns_alone_is_told(path):
    path.write_bytes(b"id,x\ra,1\rb,2\r")
    with pytest.raises(InputError, match=r"line 1: a carriage return \(CR\) is inside the line"):
        _ = Csv(path).schema


def test_a_carriage_return_inside_a_row_costs_that_row_alone(path):
    path.write_bytes(b"id,x\na,1\rb,2\nc,3\n")
    rejected = []
    source = Csv(path)
    assert source.schema == Schema.of({"id": str, "x": int})
    reader = source.open(lambda text, why: rejected.append(why))
    assert reader.read(10, 0.0).rows() == [{"id": "c", "x": 3}]
    assert "line 2: a carriage return (CR) is inside the line" in rejected[0]


def test_a_column_that_the_header_lacks_is_an_error(path):
    path.write_text("sensor,height\n")
    with pytest.raises(InputError, match=r"no column 'hieght'; its header has .*did you mean 'height'\?"):
        Csv(path, {"hieght": float}).open(pytest.fail)


def test_without_a_header_columns_go_by_order(path, rejected):
    path.write_text("a;1\nb;2\n")
    assert read(Csv(path, {"id": str, "n": int}, header=False, delimiter=";"), rejected)[1] == {
        "id": "b",
        "n": 2,
    }
    assert list(Csv(path, header=False, delimiter=";").schema) == ["c1", "c2"]


def test_types_are_guessed_from_the_first_rows(path):
    path.write_text(
        "id,zip,n,x,ok,t,\na,01234,1,1,true,2026-11-15T08:00:00Z,\nb,99999,,2.5,FALSE,2026-11-15 08:00,\ntoo,few\n"
    )
    expected = {"id": str, "zip": str, "n": int, "x": float, "ok": bool, "t": "time", "c7": str}
    assert Csv(path).schema == Schema.of(expected)


def test_a_header_may_follow_blank_lines_and_span_lines(path, rejected):
    path.write_text('\n"a\nb",n\n1,2\n')
    assert read(Csv(path), rejected) == [{"a\nb": 1, "n": 2}]


def test_a_header_with_a_name_twice_is_an_error(path):
    path.write_text("a,b,a\n")
    with pytest.raises(InputError, match="its header has 'a' more than once"):
        _ = Csv(path).schema


def test_an_empty_file_has_no_header(path):
    path.write_text("")
    with pytest.raises(InputError, match="it is empty; expected a first row"):
        Csv(path, SCHEMA).open(pytest.fail)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_quoted_field_may_span_lines_and_reads(path, rejected, end):
    path.write_bytes(f'id,n{end}"a{end}b{end}c",1{end}"d, ""e""",2{end}'.encode())
    for limit in (1, 2, 50):
        rows = read(Csv(path, {"id": str, "n": int}), rejected, limit)
        assert rows == [{"id": f"a{end}b{end}c", "n": 1}, {"id": 'd, "e"', "n": 2}]
    assert rejected == []


@pytest.mark.parametrize("text", ["7,inside\n" * 20_000, "x" * 200_000], ids=["many lines", "long"])
def test_a_text_that_was_written_is_read_however_long_it_is(path, rejected, text):
    schema = Schema.of({"n": int, "t": str})
    rows = [{"n": 1, "t": "a"}, {"n": 2, "t": text}, {"n": 3, "t": "c"}]
    writer = Csv(path).open(schema)
    assert not writer.write(Batch.of({"n": [1, 2, 3], "t": [row["t"] for row in rows]}, schema))
    writer.close()
    for limit in (1, 50):
        assert read(Csv(path, schema), rejected, limit) == rows
    assert rejected == []


def test_lines_behind_a_forgotten_quote_are_read_without_looking_for_its_end_in_all_of_the_file(path, rejected):
    path.write_text('id,n\n"a,1\n' + "".join(f"b,{n}\n" for n in range(150_000)) + '"c\nd",150000\n')
    rows = read(Csv(path, {"id": str, "n": int}), rejected, 1000)
    assert [row["n"] for row in rows] == list(range(150_001))
    assert rows[-1]["id"] == "c\nd"
    assert [why for _, why in rejected] == [f"{path} line 2: a quote is opened and never closed"]


def test_a_forgotten_quote_costs_one_row_and_not_the_file(path, rejected):
    path.write_text('id,n\n"a,1\n' + "".join(f"b,{n}\n" for n in range(500)))
    assert [row["n"] for row in read(Csv(path, {"id": str, "n": int}), rejected)] == list(range(500))
    assert rejected == [('"a,1', f"{path} line 2: a quote is opened and never closed")]


def test_a_forgotten_quote_at_the_end_costs_that_row(path, rejected):
    path.write_text('id,n\na,1\n"b,2\nc,3\n')
    assert [row["id"] for row in read(Csv(path, {"id": str, "n": int}), rejected)] == ["a", "c"]
    assert len(rejected) == 1


@given(st.lists(st.sampled_from([GOOD, "\n", "a,b\n", "a,?,2,true,3\n"]), max_size=100), st.integers(1, 20))
def test_every_line_comes_out_or_is_rejected_once(tmp_path_factory, lines, limit):
    path = tmp_path_factory.mktemp("count") / "in.csv"
    path.write_text(HEADER + "".join(lines))
    rejected = []
    rows = read(Csv(path, SCHEMA), lambda *bad: rejected.append(bad), limit)
    assert len(rows) == lines.count(GOOD)
    assert len(rows) + len(rejected) == len([line for line in lines if line.strip()])


def test_a_row_that_is_half_written_is_left_for_who_reads_on_later(path, rejected):
    schema = {"n": int, "t": str}
    path.write_text('n,t\n1,a\n2,"x\n7,z\n')
    reader = Csv(path, schema).open(rejected)
    reader.leave_halves()
    assert rows_of(reader, 50) == [{"n": 1, "t": "a"}]
    with path.open("a") as file:
        file.write('y"\n3,c\n')
    again = Csv(path, schema).open(rejected, reader.position)
    assert rows_of(again, 50) == [{"n": 2, "t": "x\n7,z\ny"}, {"n": 3, "t": "c"}]
    assert rejected == []


def test_a_position_inside_a_row_that_has_not_ended_is_its_start(tmp_path, rejected):
    path = tmp_path / "in.csv"
    path.write_text('id,n\na,1\n"b\nb",2\nc,3\n')
    reader = Csv(path, {"id": str, "n": int}).open(rejected)
    assert len(reader.read(2, 1)) == 1
    again = Csv(path, {"id": str, "n": int}).open(rejected, reader.position)
    assert again.read(50, 1)["n"].tolist() == [2, 3]
    reader.close()
    again.close()


@pytest.mark.parametrize("delimiter", ["", ";;", '"', "\n"])
def test_a_delimiter_is_one_character(delimiter):
    with pytest.raises(FlowError, match="delimiter is one character"):
        Csv("x.csv", delimiter=delimiter)


def test_values_are_written_as_people_write_them(path):
    schema = Schema.of({**SCHEMA, "v": object})
    writer = Csv(path).open(schema)
    columns = {"id": ["a,b", None], "x": [0.1, None], "n": [1, None], "ok": [True, None], "t": [0, None]}
    writer.write(Batch.of({**columns, "v": [{"k": [1]}, None]}, schema))
    writer.close()
    assert path.read_text() == ('id,x,n,ok,t,v\n"a,b",0.1,1,true,1970-01-01T00:00:00.000000Z,"{""k"":[1]}"\n,,,,,\n')


def test_a_dash_is_standard_output(capfd):
    writer = Csv("-").open(Schema.of({"x": int}))
    writer.write(Batch.of({"x": [1]}, Schema.of({"x": int})))
    writer.close()
    assert capfd.readouterr().out == f"x{os.linesep}1{os.linesep}"


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_the_last_row_counts_for_the_guess_whether_or_not_its_line_ends(tmp_path, rows, end):
    path = tmp_path / "in.csv"
    path.write_text("id,n,x\n" + "\n".join(f"s{n},{n},{n}.5" for n in range(rows)) + end)
    source = Csv(path)
    assert dict(source.schema.fields) == {"id": "text", "n": "int", "x": "float"}
    reader = source.open(pytest.fail)
    found = []
    while (batch := reader.read(50, 1)) is not None:
        found += batch.rows()
    reader.close()
    assert found == [{"id": f"s{n}", "n": n, "x": n + 0.5} for n in range(rows)]


def test_long_lines_do_not_shorten_the_guess(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("n,note\n" + "".join(f"{n},{'x' * 1000}\n" for n in range(900)) + f"900.5,{'x' * 1000}\n")
    assert Csv(path).schema["n"] == "float"


def test_what_comes_through_a_pipe_is_guessed_from_and_read(tmp_path):
    """The header comes alone, so that the guess has to wait for a row; what it has seen is not lost."""
    os.mkfifo(tmp_path / "pipe")

    def send():
        with (tmp_path / "pipe").open("w") as pipe:
            for text in ("id,n\n", "a,1\n", "b,2"):
                pipe.write(text)
                pipe.flush()
                time.sleep(0.05)

    sender = threading.Thread(target=send)
    sender.start()
    source = Csv(tmp_path / "pipe")
    assert dict(source.schema.fields) == {"id": "text", "n": "int"}
    reader, rows = source.open(pytest.fail), []
    while (batch := reader.read(50, 5)) is not None:
        rows += batch.rows()
    reader.close()
    sender.join()
    assert rows == [{"id": "a", "n": 1}, {"id": "b", "n": 2}]


@pytest.mark.parametrize("there", ["b,a\n1,2\n", "a\n1\n", "a,b,c\n", "1,2\n", "a\rb,c\n"])
def test_rows_are_not_appended_under_the_header_of_other_columns(tmp_path, there):
    path = tmp_path / "file.csv"
    path.write_text(there.rstrip("\n"))
    with pytest.raises(InputError, match=r"its header is .*, and the columns to write are a,b;"):
        Csv(path, append=True).open(Schema.of({"a": int, "b": int}))
    assert path.read_bytes() == there.rstrip("\n").encode()


@pytest.mark.parametrize("there", ["", "a,b\n", ' a,"b"\r\n1,2\r\n'])
def test_rows_are_appended_under_the_header_of_their_columns(tmp_path, there):
    path = tmp_path / "file.csv"
    path.write_bytes(there.encode())
    schema = Schema.of({"a": int, "b": int})
    writer = Csv(path, append=True).open(schema)
    writer.write(Batch.of({"a": [3], "b": [4]}, schema))
    writer.close()
    assert path.read_bytes() == ((there or "a,b\n") + "3,4\n").encode()


def test_a_sink_does_not_go_on_under_a_header_of_other_columns(tmp_path):
    source, out = tmp_path / "in.jsonl", tmp_path / "out.csv"

    def flow(*columns):
        made = Flow("swap")
        read = made.read("read", JsonLines(source, {"a": int, "b": int}))
        read.select("pick", *columns).write("out", Csv(out))
        return made

    source.write_text('{"a":0,"b":100}\n')
    engine.run(flow("a", "b"), checkpoint=tmp_path / "checkpoint")
    source.write_text('{"a":0,"b":100}\n{"a":1,"b":101}\n')
    with pytest.raises(HeadwaterError, match=r"its header is a,b, and the columns to write are b,a"):
        engine.run(flow("b", "a"), checkpoint=tmp_path / "checkpoint")
    assert out.read_text() == "a,b\n0,100\n"
    engine.run(flow("a", "b"), checkpoint=tmp_path / "checkpoint")
    assert out.read_text() == "a,b\n0,100\n1,101\n"
