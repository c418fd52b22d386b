"""`headwater query` runs a query over files."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from headwater.cli import add_commands, app
from headwater.errors import HeadwaterError, exit_code_of

LEVELS = [
    {"tank": "a", "height": 140, "at": 0},
    {"tank": "b", "height": 160, "at": 1},
    {"tank": "a", "height": 140, "at": 2},
]


def query(*args: str) -> str:
    add_commands()
    result = CliRunner().invoke(app, ["query", *args])
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.output


def test_a_query_reads_json_lines_and_writes_csv(tmp_path: Path) -> None:
    (tmp_path / "levels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in LEVELS))
    query(
        "from levels[height < 150] select tank",
        "--input",
        str(tmp_path / "levels.jsonl"),
        "--output",
        str(tmp_path / "low.csv"),
    )
    assert (tmp_path / "low.csv").read_text().split() == ["tank", "a", "a"]


def test_a_query_over_two_files_names_them(tmp_path: Path) -> None:
    for name in ("levels", "valves"):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in LEVELS))
    files = [part for name in ("levels", "valves") for part in ("--input", f"{name}={tmp_path / name}.jsonl")]
    text = (
        "from levels#window.time(1 sec) as l join valves#window.time(1 sec) as r on l.at == r.at select l.tank as tank"
    )
    query(text, *files, "--time", "at", "--output", str(tmp_path / "out.jsonl"), "--json")
    assert [json.loads(line)["tank"] for line in (tmp_path / "out.jsonl").read_text().splitlines()] == ["a", "b", "a"]


def test_without_a_file_to_write_results_are_printed(tmp_path: Path) -> None:
    (tmp_path / "levels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in LEVELS))
    read = ("from levels[height < 150] select tank, at", "--input", str(tmp_path / "levels.jsonl"))
    assert query(*read).splitlines() == ['{"tank":"a","at":0}', '{"tank":"a","at":2}']
    assert json.loads(query(*read, "--json"))["records"] == [{"tank": "a", "at": 0}, {"tank": "a", "at": 2}]


def test_a_time_that_is_none_is_refused_by_its_option(tmp_path: Path) -> None:
    (tmp_path / "levels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in LEVELS))
    add_commands()
    wrong = ["query", "from levels select tank", "--input", str(tmp_path / "levels.jsonl"), "--time", "tank"]
    result = CliRunner().invoke(app, wrong)
    assert isinstance(result.exception, HeadwaterError)
    assert exit_code_of(result.exception) == 2
    assert "--time tank: in levels.jsonl this column is text; event time is in moments such as" in repr(
        result.exception
    )


def test_what_is_printed_is_what_would_be_written(tmp_path: Path) -> None:
    rows = [{"tank": "ä😀", "height": 1.5, "at": "2026-11-15T08:00:06Z"}]
    (tmp_path / "levels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    read = ("from levels select tank, height / 0.0 as ratio, at", "-i", str(tmp_path / "levels.jsonl"), "--time", "at")
    query(*read, "--output", str(tmp_path / "out.jsonl"))
    written = (tmp_path / "out.jsonl").read_text()
    assert written == '{"tank":"ä😀","ratio":null,"at":"2026-11-15T08:00:06.000000Z"}\n'
    assert query(*read) == written
    assert json.loads(query(*read, "--json"))["records"] == [json.loads(written)]


def refused(*args: str) -> str:
    add_commands()
    result = CliRunner().invoke(app, ["query", *args])
    assert result.exit_code != 0
    return result.output + repr(result.exception)


def test_what_a_query_cannot_do_is_told_in_its_own_words(tmp_path: Path) -> None:
    file = str(tmp_path / "levels.jsonl")
    Path(file).write_text("".join(json.dumps(row) + "\n" for row in LEVELS))
    assert "all 3 records became dead letters" in refused(
        "from levels select 9223372036854775807 + height as z", "-i", file
    )
    assert "cap is how many partial matches are kept at most, 1 or more; got 0" in refused(
        "from levels select tank", "-i", file, "--cap", "0"
    )
    assert "is the file that levels is read from" in refused("from levels select tank", "-i", file, "-o", file)
    assert Path(file).read_text().count("\n") == len(LEVELS)
    assert "in a circle" in refused("from x select h insert into y; from y select h insert into x", "-i", file)
    assert "'order by' is not part of this language" in refused("from levels select tank order by tank", "-i", file)
