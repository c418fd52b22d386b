import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import Batch, Schema, Text
from headwater.data.batch import concat_batches
from headwater.errors import FlowError

SCHEMA = Schema.of({"b": bool, "i": int, "f": float, "s": str, "t": "time", "o": "any"})
rows = st.lists(
    st.fixed_dictionaries(
        {
            "b": st.none() | st.booleans(),
            "i": st.none() | st.integers(-(2**62), 2**62),
            "f": st.none() | st.floats(allow_nan=False),
            "s": st.none() | st.text(max_size=8),
            "t": st.none() | st.integers(0, 2**50),
            "o": st.none() | st.lists(st.integers(), max_size=2),
        }
    ),
    max_size=12,
)


@given(rows)
def test_records_survive_a_batch(given_rows):
    assert Batch.of_rows(given_rows, SCHEMA).rows() == given_rows


@given(rows, st.data())
def test_slices_and_gathers_are_those_of_the_rows(given_rows, data):
    batch = Batch.of_rows(given_rows, SCHEMA)
    start = data.draw(st.integers(0, len(given_rows)))
    stop = data.draw(st.integers(start, len(given_rows)))
    assert batch.slice(start, stop).rows() == given_rows[start:stop]
    if given_rows:
        picks = data.draw(st.lists(st.integers(0, len(given_rows) - 1), max_size=10))
        assert batch.take(np.array(picks, np.int64)).rows() == [given_rows[i] for i in picks]


@given(
    st.lists(st.text(max_size=5), min_size=1, max_size=20),
    st.lists(st.tuples(st.integers(0, 19), st.integers(1, 9)), max_size=5),
    st.integers(0, 3),
)
def test_texts_are_gathered_in_runs_or_one_by_one(texts, runs, skipped):
    picks = [at for start, count in runs for at in range(start, start + count) if at < len(texts)]
    column = Text.of(["x"] * skipped + texts)[skipped:]  # whose bytes begin within those of another
    assert column.take(np.array(picks, np.int64)).tolist() == [texts[at] for at in picks]


@given(st.lists(rows, min_size=1, max_size=4))
def test_batches_join_end_to_end(parts):
    joined = concat_batches([Batch.of_rows(part, SCHEMA) for part in parts])
    assert joined.rows() == [row for part in parts for row in part]


@given(rows)
def test_neighbouring_slices_join_without_copying_texts(given_rows):
    batch = Batch.of_rows([{**r, "s": r["s"] or ""} for r in given_rows], SCHEMA)
    middle = len(given_rows) // 2
    joined = concat_batches([batch.slice(0, middle), batch.slice(middle, len(given_rows))])
    assert joined.rows() == batch.rows()


def test_a_wrong_value_names_column_type_and_value():
    with pytest.raises(FlowError, match="column 'f': expected float, got str 'high'"):
        Batch.of_rows([{"f": "high"}], Schema.of({"f": float}))


def test_columns_of_different_length_are_told():
    with pytest.raises(FlowError, match="columns differ in length"):
        Batch.of({"a": [1], "b": [1, 2]}, Schema.of({"a": int, "b": int}))


def test_bytes_that_are_no_utf8_do_not_break_printing():
    assert Text.of_bytes([b"\xff\xfe"]).tolist() == ["��"]
