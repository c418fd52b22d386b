import pytest

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import FlowError
from headwater.io import Console

SCHEMA = Schema.of({"id": str, "x": float, "ok": bool})


def records(count):
    columns = {"id": [f"s{n}" for n in range(count)], "x": [n / 3 for n in range(count)]}
    return Batch.of({**columns, "ok": [None if n % 2 else True for n in range(count)]}, SCHEMA)


def printed(console, *batches):
    writer = console.open(SCHEMA)
    for batch in batches:
        writer.write(batch)
    writer.close()


def test_the_first_records_are_rows_and_the_rest_a_count(capsys):
    printed(Console(limit=3), records(2), records(2), records(1000))
    assert capsys.readouterr().out.splitlines() == [
        "id           x ok",
        "s0           0 true",
        "s1    0.333333",
        "s0           0 true",
        "… and 1,001 more",
    ]


def test_json_is_one_object_per_line(capsys):
    printed(Console(json=True), records(1))
    assert capsys.readouterr().out == '{"id":"s0","x":0.0,"ok":true}\n'


def test_a_text_of_several_lines_stays_one_row(capsys):
    printed(Console(), Batch.of({"id": ["a\nb"], "x": [1.0], "ok": [True]}, SCHEMA))
    assert capsys.readouterr().out.splitlines()[1].startswith("a⏎b")


def test_nothing_is_printed_of_nothing(capsys):
    printed(Console(), records(0))
    assert capsys.readouterr().out == ""


def test_a_limit_is_not_negative():
    with pytest.raises(FlowError, match="got -1"):
        Console(limit=-1)


def test_what_a_terminal_would_obey_is_shown_and_not_done(capsys):
    schema = Schema.of({"id": str})
    writer = Console().open(schema)
    writer.write(Batch.of({"id": ["\x1b[2Jgone\x9b"]}, schema))
    assert capsys.readouterr().out.splitlines()[1] == r"\x1b[2Jgone\x9b"
