import pytest

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import FlowError, InputError
from headwater.io import Collect, Discard, Failing, Items

SCHEMA = Schema.of({"x": int})


def test_items_are_read_in_order_and_from_a_position():
    items = Items([{"x": n} for n in range(5)])
    reader = items.open(pytest.fail)
    assert reader.read(2, 0)["x"].tolist() == [0, 1]
    again = items.open(pytest.fail, reader.position)
    assert again.read(9, 0)["x"].tolist() == [2, 3, 4]
    assert again.read(9, 0) is None


def test_an_item_of_the_wrong_type_is_rejected_alone(rejected):
    batch = Items([{"x": 1}, {"x": "two"}, {"x": 2**70}, {}, 7], {"x": int}).open(rejected).read(9, 0)
    assert batch["x"].tolist() == [1, None]
    assert [reason for _, reason in rejected] == [
        "column 'x': expected int, got str 'two'",
        "column 'x': a number of 71 bits is too large for int",
        "expected a record (a dict), got int",
    ]


def test_columns_of_nothing_cannot_be_guessed():
    with pytest.raises(FlowError, match="give a schema"):
        Items([])


def test_what_is_written_is_collected_discarded_or_fails():
    batch, kept = Batch.of({"x": [1, 2]}, SCHEMA), Collect()
    kept.open(SCHEMA).write(batch)
    assert kept.records == [{"x": 1}, {"x": 2}]
    Discard().open(SCHEMA).write(batch)
    with pytest.raises(InputError, match="gone"):
        Failing().open(SCHEMA).write(batch)
