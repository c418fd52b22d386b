"""A query that is tried on a few records, or on a file."""

import json
import os
import signal

import pytest

pytest.importorskip("lark")

from headwater.errors import HeadwaterError, RunError
from headwater.serve.messages import Trial
from headwater.serve.trial import try_on_file, try_on_records
from headwater.serve.trials import Trials
from waiting import wait_until

SCHEMA = {"tank": "text", "height": "float"}
RECORDS = [{"tank": "a", "height": 10.0}, {"tank": "b", "height": 200.0}]


def test_it_says_what_the_query_finds():
    found = try_on_records("from levels[height < 150] select tank", "levels", SCHEMA, RECORDS)
    assert found == {
        "fault": None,
        "stream": "levels",
        "columns": SCHEMA,
        "looked_at": 2,
        "dead_letters": 0,
        "found": 1,
        "matches": [{"tank": "a"}],
    }


@pytest.mark.parametrize(
    ("text", "line", "column", "offending"),
    [
        ("from levels[height < 150]\nselect tnak", 2, 8, "tnak"),
        ("form levels", 1, 1, "form"),
        ("from other select a", 1, 6, "other"),
    ],
)
def test_it_says_where_a_text_is_wrong(text, line, column, offending):
    fault = try_on_records(text, "levels", SCHEMA, RECORDS)["fault"]
    assert (fault["line"], fault["column"], fault["offending"]) == (line, column, offending)
    assert fault["says"]


def test_a_text_is_checked_also_where_no_record_passed():
    assert try_on_records("from levels select tnak", "levels", SCHEMA, [])["fault"] is not None
    assert try_on_records("from levels select tank", "levels", SCHEMA, [])["matches"] == []


@pytest.fixture
def levels(tmp_path):
    path = tmp_path / "levels.csv"
    path.write_text("tank,height\n" + "".join(f"t{n % 3},{n}\n" for n in range(500)))
    return path


def test_of_a_file_all_is_asked_and_the_first_matches_are_told(levels):
    found = try_on_file("from levels[height >= 100] select tank", "levels", levels, most=3)
    assert (found["looked_at"], found["found"], len(found["matches"])) == (500, 400, 3)
    assert found["matches"][0] == {"tank": "t1"}
    text_alone = try_on_file("from levels select tnak", "levels", levels, most=0)
    assert (text_alone["fault"]["offending"], text_alone["looked_at"]) == ("tnak", 0)
    assert text_alone["columns"] == {"tank": "text", "height": "int"}


def test_a_file_that_is_none_is_told(tmp_path):
    (tmp_path / "levels.txt").write_text("")
    with pytest.raises(HeadwaterError, match="files end in"):
        try_on_file("from levels select tank", "levels", tmp_path / "levels.txt", most=1)


def test_one_process_answers_many_and_another_takes_its_place_when_it_dies(levels):
    trials = Trials()
    try:
        one = Trial("from levels[height < 2] select tank", "levels", file=str(levels), most=5)
        assert json.loads(trials.answer(one, 60.0))["found"] == 2
        (kept,) = trials._idle
        first = kept._child.pid
        assert json.loads(trials.answer(Trial("from a select n", "a", {"n": "int"}, [{"n": 1}]), 60.0))["found"] == 1
        assert trials._idle[0]._child.pid == first
        kept._child.kill()
        wait_until(lambda: not kept.lives)
        assert json.loads(trials.answer(one, 60.0))["found"] == 2
        assert trials._idle[0]._child.pid != first
        with pytest.raises(RunError, match="no such file"):
            trials.answer(Trial("from a select n", "a", file=str(levels.with_name("gone.csv")), most=1), 60.0)
        os.kill(trials._idle[0]._child.pid, signal.SIGSTOP)
        with pytest.raises(RunError, match="found no end within"):
            trials.answer(one, 0.1)
        assert trials._idle == []
    finally:
        trials.close()
