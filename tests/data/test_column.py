from datetime import UTC, datetime

import pytest

from headwater.data.batch import Batch
from headwater.data.column import column_of
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


def test_half_a_surrogate_pair_is_not_text():
    with pytest.raises(FlowError, match="not Unicode"):
        column_of(["\ud800"], "text")


def test_missing_values_of_every_type_survive_arrow():
    schema = Schema.of({"b": bool, "i": int, "f": float, "g": "float32", "s": str})
    rows = [dict.fromkeys(schema), {"b": True, "i": 1, "f": 0.5, "g": 0.25, "s": "é"}]
    assert batch_of(table_of(Batch.of_rows(rows, schema), schema), schema).rows() == rows
