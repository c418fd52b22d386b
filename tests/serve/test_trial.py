"""A query that is tried on a few records."""

import pytest

pytest.importorskip("lark")

from headwater.serve.trial import tried

SCHEMA = {"tank": "text", "height": "float"}
RECORDS = [{"tank": "a", "height": 10.0}, {"tank": "b", "height": 200.0}]


def test_it_says_what_the_query_finds():
    found = tried("from levels[height < 150] select tank", "levels", SCHEMA, RECORDS)
    assert found == {"fault": None, "stream": "levels", "looked_at": 2, "matches": [{"tank": "a"}]}


@pytest.mark.parametrize(
    ("text", "line", "column", "offending"),
    [
        ("from levels[height < 150]\nselect tnak", 2, 8, "tnak"),
        ("form levels", 1, 1, "form"),
        ("from other select a", 1, 6, "other"),
    ],
)
def test_it_says_where_a_text_is_wrong(text, line, column, offending):
    fault = tried(text, "levels", SCHEMA, RECORDS)["fault"]
    assert (fault["line"], fault["column"], fault["offending"]) == (line, column, offending)
    assert fault["says"]


def test_a_text_is_checked_also_where_no_record_passed():
    assert tried("from levels select tnak", "levels", SCHEMA, [])["fault"] is not None
    assert tried("from levels select tank", "levels", SCHEMA, [])["matches"] == []
