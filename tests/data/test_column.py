from datetime import UTC, datetime

import numpy as np
import pytest

from headwater.data.batch import Batch
from headwater.data.column import Nullable, Text, column_of
from headwater.data.schema import Schema
from headwater.errors import FlowError
from headwater.io.arrow import batch_of, table_of


def test_a_truth_value_may_be_missing():
    assert column_of([True, None, False], "bool").tolist() == [True, None, False]


def test_a_moment_in_a_far_year_keeps_its_microseconds():
    moment = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    assert column_of([moment], "time").tolist() == [253402300799999999]


@pytest.mark.parametrize(
    ("value", "kind"),
    [(2**63, "int"), (-(2**63) - 1, "time"), (10**400, "float")],
    ids=["int", "time", "float"],
)
def test_a_number_beyond_its_type_is_named(value, kind):
    with pytest.raises(FlowError, match=f"column 'x': a number of .* bits is too large for {kind}"):
        column_of([1, value], kind, name="x")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1.5], "int"),
        ([np.nan], "int"),
        ([1e300], "int"),
        ([2.0], "time"),
        ([7], "bool"),
        ([0.5], "bool"),
        ([True], "time"),
        ([1 + 2j], "float"),
    ],
)
def test_an_array_of_another_kind_is_refused_as_a_list_is(values, kind):
    with pytest.raises(FlowError) as of_list:
        column_of(values, kind, name="x")
    with pytest.raises(FlowError, match="column 'x': expected") as of_array:
        column_of(np.array(values), kind, name="x")
    assert str(of_array.value) == str(of_list.value)
    with pytest.raises(FlowError, match="column 'x': expected"):
        column_of(Nullable(np.array(values * 2), np.array([True, False])), kind, name="x")


def test_an_unsigned_number_beyond_64_bits_is_refused_and_others_are_taken():
    with pytest.raises(FlowError, match="column 'x': a number of 64 bits is too large for int"):
        column_of(np.array([1, 2**64 - 1], np.uint64), "int", name="x")
    assert column_of(np.array([1, 2**63 - 1], np.uint64), "int").tolist() == [1, 2**63 - 1]


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (np.array([1, 2], np.int8), "int", [1, 2]),
        (np.array([1, 2]), "float", [1.0, 2.0]),
        (np.array([0.5]), "float32", [0.5]),
        (np.array([True, False]), "int", [1, 0]),
        (Nullable(np.array([1, 2]), np.array([True, False])), "float", [1.0, None]),
    ],
)
def test_an_array_whose_numbers_stay_the_same_is_taken(values, kind, expected):
    taken = column_of(values, kind).tolist()
    assert taken == expected
    assert list(map(type, taken)) == list(map(type, expected))


@pytest.mark.parametrize("unit", ["D", "s", "us", "ns"])
def test_a_moment_of_any_unit_is_microseconds_and_nat_is_missing(unit):
    moments = np.array(["1970-01-02", "NaT"], f"M8[{unit}]")
    assert column_of(moments, "time").tolist() == [86_400_000_000, None]
    with pytest.raises(FlowError, match="column 'x': expected int, got datetime64"):
        column_of(moments, "int", name="x")


def test_a_moment_beyond_microseconds_is_refused():
    with pytest.raises(FlowError, match="column 'x': a moment of datetime64\\[D\\] is too far away"):
        column_of(np.array([2**40], "M8[D]"), "time", name="x")


def test_texts_are_no_numbers():
    with pytest.raises(FlowError, match="column 'x': expected int, got str 'a'"):
        column_of(Text.of(["a"]), "int", name="x")


def test_half_a_surrogate_pair_is_not_text():
    with pytest.raises(FlowError, match="not Unicode"):
        column_of(["\ud800"], "text")


def test_missing_values_of_every_type_survive_arrow():
    schema = Schema.of({"b": bool, "i": int, "f": float, "g": "float32", "s": str})
    rows = [dict.fromkeys(schema), {"b": True, "i": 1, "f": 0.5, "g": 0.25, "s": "é"}]
    assert batch_of(table_of(Batch.of_rows(rows, schema), schema), schema).rows() == rows


@pytest.mark.parametrize("unit", ["D", "s", "ms", "us", "ns"])
def test_moments_of_numpy_are_the_same_moment_one_by_one(unit):
    moments = [np.datetime64("2026-01-01", unit), np.datetime64("NaT", unit), np.datetime64("1969-12-31", unit)]
    assert column_of(moments, "time").tolist() == [1_767_225_600_000_000, None, -86_400_000_000]
    with pytest.raises(FlowError, match="column 'x': expected int, got datetime64"):
        column_of(moments, "int", name="x")
