"""Generated batches of every column type, for round trips."""

import math
from datetime import UTC, datetime

import numpy as np
from hypothesis import strategies as st

from headwater.data.batch import Batch
from headwater.data.schema import Schema

int64 = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
python_values = st.one_of(
    json_values,
    st.binary(max_size=5),
    st.integers(-(2**80), 2**80),
    st.tuples(st.integers(), texts),
    st.sets(st.integers(0, 9), max_size=3),
    st.dictionaries(st.integers(0, 9), texts, max_size=3),
    st.datetimes(timezones=st.just(UTC) | st.none()),
    st.lists(st.floats(allow_nan=False), max_size=3).map(np.array),
    st.floats(allow_nan=False).map(np.float64),
)

#: What a column of each type may hold, as Python values.
values = {
    "bool": st.booleans(),
    "int": int64,
    "float": st.floats(allow_nan=False),
    "float32": st.floats(width=32, allow_nan=False),
    "text": texts,
    "time": st.integers(-(2**55), 2**57) | st.datetimes(datetime(1, 1, 2)).map(lambda t: micros(t)),
    "any": json_values,
}


def micros(moment):
    return (moment - datetime(1970, 1, 1)) // (datetime(1970, 1, 1, 0, 0, 0, 1) - datetime(1970, 1, 1))


names = texts.filter(bool)


@st.composite
def batches(draw, values=values, nulls=True, least=0, names=names):
    """Draw a schema with every type in it, and a batch of it, as (batch, schema)."""
    kinds = draw(st.permutations(sorted(values)))
    named = draw(st.lists(names, min_size=len(kinds), max_size=len(kinds), unique=True))
    schema = Schema.of(dict(zip(named, kinds, strict=True)))
    length = draw(st.integers(least, 6))
    columns = {}
    for name, kind in schema.fields:
        cell = values[kind]
        if nulls is True or (nulls and kind in nulls):
            cell = st.none() | cell
        columns[name] = draw(st.lists(cell, min_size=length, max_size=length))
    batch = Batch.of(columns, schema, created_ns=draw(st.integers(0, 2**62)))
    batch.watermark = draw(int64)
    return batch, schema


def same(left, right):
    """Compare values that may hold arrays or NaN."""
    if isinstance(left, np.ndarray):
        return isinstance(right, np.ndarray) and left.dtype == right.dtype and np.array_equal(left, right)
    if isinstance(left, list | tuple) and type(left) is type(right):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, float) and math.isnan(left):
        return isinstance(right, float) and math.isnan(right)
    return type(left) is type(right) and left == right
