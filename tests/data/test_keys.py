from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.data.column import Text
from headwater.data.hashing import TextArrays
from headwater.data.keys import KeyIndex

ints = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3)
floats = st.floats() | st.sampled_from([0.0, -0.0, 1.0, float("nan")])
texts = st.text(max_size=12) | st.sampled_from(["", "a", "b", "\0", "\0\0", "aaaaaaaa", "aaaaaaaab"])


def text_column(values: list[str], lead: str = "") -> Text:
    """Build a text column; `lead` puts bytes before the first text, as in a slice of a longer column."""
    return Text.of([lead, *values])[1:]


def text_values(column: TextArrays) -> list[str]:
    return Text(*column).tolist()


def expected_slots(seen: dict[object, int], rows: list[object]) -> list[int]:
    return [seen.setdefault(row, len(seen)) for row in rows]


@given(st.lists(st.lists(ints, max_size=40)))
def test_int_keys_get_the_slots_a_dict_would_give(batches):
    index, seen = KeyIndex("int"), {}
    for batch in batches:
        assert index.slots([np.array(batch, np.int64)]).tolist() == expected_slots(seen, batch)
    assert index.keys()[0].tolist() == list(seen)


@given(st.lists(st.lists(texts, max_size=40)), st.text(max_size=3))
def test_text_keys_get_the_slots_a_dict_would_give(batches, lead):
    index, seen = KeyIndex("text"), {}
    for batch in batches:
        assert index.slots([text_column(batch, lead)]).tolist() == expected_slots(seen, batch)
    assert text_values(index.keys()[0]) == list(seen)


@given(st.lists(st.lists(st.tuples(texts, st.integers(0, 3), st.sampled_from("xy")), max_size=30)))
def test_keys_of_several_columns_get_the_slots_a_dict_of_tuples_would_give(batches):
    index, seen = KeyIndex("text", "int", "text"), {}
    for batch in batches:
        first, second, third = [list(column) for column in zip(*batch, strict=True)] or ([], [], [])
        columns = [text_column(first), np.array(second, np.int64), text_column(third)]
        assert index.slots(columns).tolist() == expected_slots(seen, batch)
    names, numbers, others = index.keys()
    keys = zip(text_values(names), numbers.tolist(), text_values(others), strict=True)
    assert list(keys) == list(seen)


@given(st.lists(floats, max_size=60))
def test_float_keys_are_equal_when_the_numbers_are_and_nan_equals_itself(values):
    index = KeyIndex("float")
    slots = index.slots([np.array(values, np.float64)])
    names = ["nan" if value != value else value for value in values]
    assert slots.tolist() == expected_slots({}, names)
    np.testing.assert_array_equal(index.keys(slots)[0], np.array(values, np.float64))


@given(st.lists(texts, unique=True, max_size=50), st.lists(texts, max_size=20))
def test_find_tells_the_slot_or_minus_one_and_adds_nothing(known, asked):
    index = KeyIndex("text")
    index.slots([text_column(known)])
    expected = [known.index(text) if text in known else -1 for text in asked]
    assert index.find([text_column(asked)]).tolist() == expected
    assert len(index) == len(known)


def test_find_of_a_pair_whose_parts_are_known_apart_says_minus_one():
    index = KeyIndex("text", "int")
    index.slots([text_column(["a", "b"]), np.array([1, 2])])
    asked = [text_column(["a", "a", "c", "a", "b"]), np.array([1, 2, 1, 9, 2])]
    assert index.find(asked).tolist() == [0, -1, -1, -1, 1]


@given(st.lists(st.tuples(texts, st.integers(0, 5)), unique=True, min_size=1, max_size=60), st.data())
def test_a_subset_keeps_its_keys_in_the_order_asked_for(rows, data):
    index = KeyIndex("text", "int")
    index.slots([text_column([row[0] for row in rows]), np.array([row[1] for row in rows])])
    chosen = data.draw(st.lists(st.sampled_from(range(len(rows))), unique=True))
    smaller = index.subset(np.array(chosen, np.int64))
    texts_left, ints_left = smaller.keys()
    assert list(zip(text_values(texts_left), ints_left.tolist(), strict=True)) == [rows[i] for i in chosen]
    assert len(smaller) == len(chosen)


def test_many_keys_grow_the_index_in_one_batch_and_in_many():
    values = np.random.default_rng(3).integers(0, 50_000, 200_000)
    names = text_column([f"sensor-{value}" for value in values.tolist()])
    at_once, in_parts, by_name = KeyIndex("int"), KeyIndex("int"), KeyIndex("text")
    expected = at_once.slots([values])
    parts = [in_parts.slots([part]) for part in np.array_split(values, 1000)]
    np.testing.assert_array_equal(np.concatenate(parts), expected)
    np.testing.assert_array_equal(by_name.slots([names]), expected)
    np.testing.assert_array_equal(at_once.keys(expected)[0], values)


def test_a_key_longer_than_all_room_so_far_is_taken_whole():
    long = "x" * 100_000
    index = KeyIndex("text")
    assert index.slots([text_column(["a", long, "a", long + "y", long])]).tolist() == [0, 1, 0, 2, 1]
    assert text_values(index.keys()[0]) == ["a", long, long + "y"]


def test_small_ints_and_bools_are_int_keys():
    index = KeyIndex("int")
    assert index.slots([np.array([True, False])]).tolist() == [0, 1]
    assert index.slots([np.array([1, 0, 5], np.int32)]).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("kind", "column", "message"),
    [
        ("int", np.array([1.5]), "announced as int; got an array of float64"),
        ("int", text_column(["a"]), "announced as int; got text"),
        ("text", np.array([1]), "announced as text; got an array of int64"),
    ],
)
def test_a_column_of_another_kind_is_refused(kind, column, message):
    with pytest.raises(TypeError, match=message):
        KeyIndex(kind).slots([column])


def test_wrong_numbers_of_columns_and_doubled_slots_are_refused():
    index = KeyIndex("int")
    index.slots([np.array([4, 5])])
    with pytest.raises(ValueError, match="got 2 columns"):
        index.slots([np.array([1]), np.array([2])])
    with pytest.raises(ValueError, match="2 slots of 1 keys"):
        index.subset(np.array([1, 1]))
    with pytest.raises(ValueError, match="at least one"):
        KeyIndex()
