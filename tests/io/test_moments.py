"""A moment is the same one whatever it is read from: JSON, CSV or a column of texts."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.data import timestamps
from headwater.data.column import Text
from headwater.data.schema import Schema
from headwater.io.fields import column_of_texts
from headwater.io.json.columns import JsonColumns
from headwater.io.records import JsonDecoder
from headwater.operators.cast import converter
from properties import examples

TIME = Schema.of({"at": "time"})
LATE = "2026-11-15T08:00:59.9999999Z"  # its seventh digit would round it into the next minute


def by_json(text, reader):
    """Return what JSON has in a text, None if it is refused."""
    lines = Text.of([json.dumps({"at": text}, ensure_ascii=False)])
    columns, _ = reader(lines, lambda *refused: None)
    return columns["at"].tolist()[0] if len(columns["at"]) else None


def by_csv(text):
    try:
        return column_of_texts([text], "time").tolist()[0]
    except ValueError:
        return None


def by_cast(text):
    moments, missing, _ = converter("text", "time")(Text.of([text]))
    return None if missing[0] else int(moments[0])


@examples(60)
@given(st.from_regex(timestamps._READ, fullmatch=True) | st.text("0123456789-:.,TtZz +", max_size=24))
@example(LATE)
@example("2026-11-15")
@example("2026-11-15T08:00Z")
@example("2026-11-15T08:00:00,5Z")
@example("1794729600000000")
@example("2026-11-15T08")
@example(" 2026-11-15T08:00:00+0530 ")
@example("2026-W46-1")
@example("2026-02-29")
@example("2026-11-15t08:00:00z")
@example("20261115")
@example("2026-11-15T24:00:00Z")
def test_all_formats_read_the_same_moments(text):
    read = [by_json(text, JsonColumns(TIME).of), by_json(text, JsonDecoder(TIME).columns_of), by_cast(text)]
    if text:  # an empty field of a CSV file is a missing one
        read.append(by_csv(text))
    assert len(set(read)) == 1, read


@pytest.mark.parametrize("moment", ['"2026-11-15T08:00:00.25Z"', "1794729600250000"])
def test_a_column_of_moments_in_json_is_read_at_once_be_they_texts_or_numbers(moment, monkeypatch):
    reader = JsonColumns(TIME)
    monkeypatch.setattr(reader._decoder, "columns_of", None)  # which reads one by one
    for _ in range(2):
        columns, kept = reader.of(Text.of([f'{{"at":{moment}}}', '{"at":null}'] * 3), print)
        assert kept is None
        assert columns["at"].tolist() == [1794729600250000, None] * 3


def test_late_digits_are_left_off():
    assert np.datetime64(timestamps.micros_of_text(LATE), "us") == np.datetime64("2026-11-15T08:00:59.999999")
