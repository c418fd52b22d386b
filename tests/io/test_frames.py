import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from io_strategies import batches, python_values, same, values

from headwater.data.batch import Batch
from headwater.data.frames import pack, unpack_frame
from headwater.data.schema import Schema
from headwater.errors import InputError


@given(batches({**values, "float": st.floats(), "any": python_values}))
def test_a_batch_comes_back_as_it_was(drawn):
    batch, _ = drawn
    back = unpack_frame(pack(batch))
    assert same(back.rows(), batch.rows())
    assert (back.stamps == batch.stamps).all()
    assert back.watermark == batch.watermark
    assert [type(column) for column in back.columns.values()] == [type(c) for c in batch.columns.values()]


@given(batches(least=2))
def test_a_slice_takes_only_its_own_bytes_along(drawn):
    batch, _ = drawn
    piece = batch.slice(1, 2)
    assert same(unpack_frame(pack(piece)).rows(), piece.rows())
    assert len(pack(batch.slice(0, 0))) <= len(pack(piece)) <= len(pack(batch))


def test_a_watermark_travels_alone():
    back = unpack_frame(pack(Batch.of_watermark(17)))
    assert (len(back), back.watermark, back.columns) == (0, 17, {})


def test_columns_that_come_back_can_be_written_to():
    back = unpack_frame(pack(Batch.of({"x": [1.0], "id": ["a"]}, Schema.of({"x": float, "id": str}))))
    assert back["x"].flags.writeable
    assert back["id"].data.flags.writeable
    assert back["x"].flags.aligned


@pytest.mark.parametrize("value", [object(), print, np.array([object()]), [object()]])
def test_an_object_without_an_exact_form_is_refused_by_name(value):
    batch = Batch.of({"what": [value]}, Schema.of({"what": object}))
    with pytest.raises(InputError, match=r"column 'what': a value of type .* cannot be stored"):
        pack(batch)
