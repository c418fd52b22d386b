"""Kernels that build or take apart texts: formats, CSV, XML."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.data.column import Text
from headwater.data.text_format import TextFormat, float32_texts
from headwater.errors import FlowError
from headwater_bench.riot.kernels.csv import CsvSplitter
from headwater_bench.riot.kernels.xml import XmlParser

texts = st.text(st.characters(codec="utf-8"), max_size=8)
fields = st.one_of(
    st.sampled_from(["1", "-2.50", "1e400", "nan", "", " 7", "x", "1_0", "22.913566699999997", "é"]),
    st.floats().map(repr),
    st.integers(-(10**18), 10**18).map(str),
)


@given(st.lists(st.tuples(texts, texts), max_size=20))
def test_formatted_json_says_what_went_in(rows):
    line = TextFormat([b'{"a":"', b'","b":"', b'"}'], escape=True)
    formatted = Text(*line.format([Text.of([a for a, _ in rows]), Text.of(["x", *(b for _, b in rows)])[1:]]))
    assert [json.loads(line) for line in formatted.tolist()] == [{"a": a, "b": b} for a, b in rows]


@given(st.lists(st.tuples(texts, texts), max_size=20))
def test_without_escapes_texts_are_joined_as_they_are(rows):
    formatted = TextFormat([b"<", b",", b">"], escape=False).format(
        [Text.of([a for a, _ in rows]), Text.of([b for _, b in rows])]
    )
    assert Text(*formatted).tolist() == [f"<{a},{b}>" for a, b in rows]


def test_a_text_format_wants_one_column_for_each_gap():
    with pytest.raises(ValueError, match="2 pieces hold 1 columns; got 2"):
        TextFormat([b"", b""], escape=False).format([Text.of([]), Text.of([])])


@given(st.lists(st.floats(width=32), max_size=30))
def test_floats_become_texts_that_read_back(values):
    written = Text(*float32_texts(np.array(values, np.float32))).tolist()
    np.testing.assert_array_equal(np.array(written, np.float32), np.array(values, np.float32))


def read(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


@given(st.lists(st.lists(fields, min_size=1, max_size=5), max_size=20), st.sampled_from(["", "\r"]))
def test_csv_lines_are_split_as_python_splits_them(rows, end):
    lines = [",".join(row) + end for row in rows]
    splitter = CsvSplitter(["a", "b", "c"], {"c": "float", "a": "text", "b": "float"})
    split = splitter.split(Text.of(["skipped", *lines])[1:])
    a = Text(*split.columns["a"]).tolist()
    for i, row in enumerate(rows):
        good = len(row) == 3 and read(row[1]) is not None and read(row[2]) is not None
        assert (split.status[i] == 0) == good
        assert a[i] == (row[0] if good else "")
        assert split.columns["b"][i] == (read(row[1]) if good else 0)
        assert split.columns["c"][i] == (read(row[2]) if good else 0)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("1,2,3", "expected 2 columns; got more"),
        ("1", "expected 2 columns; got fewer"),
        ("", "expected 2 columns; got fewer"),
        ("1,warm", "column 'b' is not a finite number"),
    ],
)
def test_a_bad_csv_line_says_why(line, words):
    splitter = CsvSplitter(["a", "b"], {"b": "float"})
    assert splitter.explain(splitter.split(Text.of([line])).status[0]) == words


def test_a_csv_column_must_be_one_of_those_named():
    with pytest.raises(FlowError, match="wanted \\['c'\\]"):
        CsvSplitter(["a", "b"], {"c": "text"})


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ('<sensml><senml bt="1" n="x" v="2"/></sensml>', "'id' is missing"),
        ('<s><senml n="x" v="2"/><senml n="id" vs="a"/></s>', "'bt' is missing"),
        ('<s><senml bt="1" n="x" v="warm"/></s>', "could not convert"),
        ('<s><senml bt="1" n="x" v="inf"/></s>', "not finite"),
        ('<s><senml bt="1" n="x"/></s>', "neither 'v' nor 'vs'"),
        ('<s><senml bt="1" n="x" v="1"/><senml n="x" v="1"/></s>', "twice"),
        ("<s>", "no element found"),
        ("", "no element found"),
        ('<!DOCTYPE s [<!ENTITY a "aaaa">]><s>&a;</s>', "document type"),
    ],
)
def test_a_bad_xml_message_says_why(message, words):
    _, _, errors = XmlParser({"x": "float", "id": "text"}).parse(Text.of([message]))
    assert words in errors[0]


@given(st.lists(st.tuples(st.floats(-1e9, 1e9), st.integers(0, 10**13)), max_size=10))
def test_xml_messages_give_the_columns_of_their_records(rows):
    messages = [
        f'<sensml><senml n="id" vs="s&amp;{i}" bt="{time}"/><senml n="x" v="{x!r}"/><senml n="y"/></sensml>'
        for i, (x, time) in enumerate(rows)
    ]
    columns, time_ms, errors = XmlParser({"x": "float", "id": "text"}).parse(Text.of(messages))
    assert errors == [""] * len(rows)
    assert columns["x"].tolist() == [x for x, _ in rows]
    assert time_ms.tolist() == [time for _, time in rows]
    assert Text(*columns["id"]).tolist() == [f"s&{i}" for i in range(len(rows))]
