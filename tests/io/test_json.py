"""JSON in columns gives what JSON one by one gives, whatever the texts are."""

import json
import math

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.data.batch import Batch
from headwater.data.column import Text
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.io.json.arrays import cut_array
from headwater.io.json.columns import JsonColumns
from headwater.io.json.texts import JsonTexts
from headwater.io.records import JsonDecoder, json_lines
from properties import examples

SCHEMA = Schema.of({"n": int, "x": float, "short": "float32", "on": bool, "id": str})
TIMED = SCHEMA.with_fields({"at": "time"})

numbers = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(
        ["0", "-0", "-0.0", "1.0", "01", "1.", ".5", "1e5", "1E-3", "+1", "123456789012345678", "1e400", "NaN"]
    ),
)
plain = st.text(st.characters(codec="ascii", categories=["L", "N", "P", "Zs"]), max_size=6).map(json.dumps)
strings = st.one_of(plain, plain, st.text(max_size=6).map(json.dumps), st.just('"é"'), st.just('"\\/"'), st.just('"a'))
values = st.one_of(
    numbers, numbers, strings, st.sampled_from(["null", "true", "false", "[1]", "{}", '{"a":[]}', "tru", ""])
)
names = st.sampled_from(['"n"', '"x"', '"short"', '"on"', '"id"', '"other"', '"i\\u0064"', '"é"', "n"])
blanks = st.sampled_from(["", "", "", " ", "\n\t"])
usual = st.fixed_dictionaries(
    {},
    optional={
        "n": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
        "x": st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False), st.integers(-(10**6), 10**6)),
        "short": st.one_of(st.none(), st.floats(width=32, allow_nan=False, allow_infinity=False)),
        "on": st.one_of(st.none(), st.booleans()),
        "id": st.one_of(st.none(), st.text(max_size=5)),
        "more": st.one_of(st.none(), st.integers(), st.text(max_size=5)),
    },
).map(json.dumps)


@st.composite
def strange(draw):
    parts = draw(st.lists(st.tuples(names, values), max_size=4))
    gap = draw(blanks)
    inside = f"{gap},{gap}".join(f"{name}{gap}:{gap}{value}" for name, value in parts)
    return draw(st.sampled_from(["{%s}", "{%s}", " {%s} ", "{%s", "%s}", "{%s,}", "{%s}x", "[%s]"])) % inside


def both(texts):
    """Return what the columns and the decoder make of texts: rows, kept, refused."""
    answers = []
    for read in (JsonColumns(SCHEMA).of, JsonDecoder(SCHEMA).columns_of):
        refused = []
        columns, kept = read(Text.of(texts), lambda *given, refused=refused: refused.append(given))
        rows = np.arange(len(texts)) if kept is None else kept
        assert all(len(column) == len(rows) for column in columns.values())
        answers.append(({name: columns[name].tolist() for name in SCHEMA}, rows.tolist(), refused))
    return answers


@examples(300)
@given(st.lists(st.one_of(usual, usual, strange()), max_size=8))
@example(['{"n": 1}', "", "{", '{"n": 1, "n": 2}', '{"x": -0}', '{"x": -0.0}', '{"n": 9223372036854775808}'])
def test_columns_are_what_the_decoder_finds_one_by_one(texts):
    scanned, decoded = both(texts)
    assert repr(scanned) == repr(decoded)  # repr, since -0.0 == 0.0


def test_texts_of_the_usual_form_are_not_decoded_one_by_one(monkeypatch):
    columns = JsonColumns(SCHEMA)
    monkeypatch.setattr(columns, "_decoder", None)
    texts = ['{"n":1,"x":0.5,"short":2,"on":true,"id":"a-1"}', ' { "x" : 1e-3 , "other" : "y" , "id" : null } ']
    found, kept = columns.of(Text.of(texts), pytest.fail)
    assert kept is None
    assert found["x"].tolist() == [0.5, 0.001]
    assert found["id"].tolist() == ["a-1", None]


def test_texts_that_are_never_of_the_usual_form_are_not_scanned_for_long():
    columns = JsonColumns(SCHEMA)
    texts = Text.of(['{"id": "é"}'] * 10)
    for _ in range(150):
        assert columns.of(texts, pytest.fail)[0]["id"].tolist() == ["é"] * 10
    assert columns._rest > 0


cells = {
    "n": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
    "x": st.one_of(st.none(), st.floats()),
    "short": st.one_of(st.none(), st.floats(width=32)),
    "on": st.one_of(st.none(), st.booleans()),
    "id": st.one_of(st.text(max_size=6), st.text(max_size=6), st.none()),
    "at": st.one_of(st.integers(-(10**15), 10**16), st.integers(-(10**15), 10**16), st.integers(-(2**63), 2**63 - 1)),
}


@examples(200)
@given(st.lists(st.fixed_dictionaries(cells), max_size=6))
def test_what_is_written_is_what_is_written_one_by_one(rows):
    batch = Batch.of_rows(rows, TIMED)
    texts, lines = JsonTexts(TIMED).of(batch).bytes_list(), json_lines(batch, TIMED)
    assert [msgspec.json.decode(text) for text in texts] == [msgspec.json.decode(line) for line in lines]
    assert all(math.isnan(row["x"] or 0) or b"NaN" not in text for row, text in zip(rows, texts, strict=True))


def test_what_has_no_json_form_is_told_by_columns_too():
    schema = Schema.of({"v": object, "n": int})
    with pytest.raises(InputError, match="cannot be written as JSON"):
        JsonTexts(schema).of(Batch.of({"v": [object()], "n": [1]}, schema))


objects = st.dictionaries(
    st.text(max_size=4), st.recursive(st.one_of(st.none(), st.text(max_size=6), st.integers()), st.lists)
)


def cut(body):
    data = np.frombuffer(bytearray(body), np.uint8)
    ends = np.zeros(body.count(b"{") + 1, np.int32)
    count = int(cut_array(data, ends[1:]))
    return None if count < 0 else Text(data, ends[: count + 1]).bytes_list()


@given(st.lists(objects, max_size=5), st.booleans(), blanks)
def test_an_array_is_cut_into_its_objects(records, indented, blank):
    body = (blank + json.dumps(records, indent=1 if indented else None, ensure_ascii=False) + blank).encode()
    assert [json.loads(each) for each in cut(body)] == records


@given(st.text('[]{}",\\ a', max_size=12))
def test_what_is_cut_is_the_array_that_it_is_where_it_is_one(text):
    found = cut(text.encode())
    try:
        said = json.loads(text)
    except ValueError:
        return  # an object of it may be none, which who reads it finds out
    if isinstance(said, list) and all(isinstance(each, dict) for each in said):
        assert [json.loads(each) for each in found] == said
    else:
        assert found is None
