"""Every plain value comes back from bytes equal and of the same type; what has no exact form is refused by name."""

import contextlib
import math
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass
from datetime import timedelta, timezone
from enum import IntEnum
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from headwater import Batch, Schema
from headwater.data.codec import decode, encode, encode_all
from headwater.data.column import Nullable, Text
from headwater.errors import SnapshotError
from headwater.operators.snapshot import pack_state, unpack_state

zones = (
    st.none()
    | st.sampled_from([ZoneInfo("Europe/Berlin"), ZoneInfo("UTC")])
    | st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
)
texts = st.text(st.characters(codec=None))  # lone surrogates too
scalars = npst.arrays(
    st.sampled_from(["?", "i1", "u8", ">i4", "f2", "f4", "f8", "c16", "M8[us]", "m8[ns]", "U3", "S2"]), ()
).map(lambda array: array[()])
hashable = st.deferred(
    lambda: (
        st.none() | st.booleans() | st.integers() | st.floats() | st.complex_numbers() | texts | st.binary()
        | st.decimals().filter(lambda number: not number.is_snan())
        | st.datetimes(timezones=zones) | st.dates() | st.times() | st.timedeltas() | scalars
        | st.tuples(hashable, hashable) | st.frozensets(hashable, max_size=3)
    )
)  # fmt: skip
plain = st.recursive(
    hashable
    | st.binary().map(bytearray)
    | npst.arrays(npst.integer_dtypes() | npst.floating_dtypes(sizes=(16, 32, 64)), npst.array_shapes(min_side=0)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.sets(hashable, max_size=3)
        | st.dictionaries(hashable, inner, max_size=3)
        | st.dictionaries(hashable, inner, max_size=3).map(OrderedDict)
        | st.builds(deque, st.lists(inner, max_size=3), st.none() | st.integers(3, 5))
    ),
    max_leaves=8,
)


def written(value):
    """Return a text that is the same for the same value, in whatever order a set shows its own."""
    if isinstance(value, frozenset):
        return f"set of {sorted(map(written, value))}"
    return f"tuple of {list(map(written, value))}" if isinstance(value, tuple) else repr(value)


def same(a, b):
    """Compare by value and by type, all the way down; NaN is NaN, and -0.0 is not 0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return len(a) == len(b) and all(same(list(x), list(y)) for x, y in zip(a.items(), b.items(), strict=True))
    if isinstance(a, set | frozenset):
        return sorted(map(written, a)) == sorted(map(written, b))
    if isinstance(a, deque):
        return a.maxlen == b.maxlen and same(list(a), list(b))
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, np.ndarray | np.generic):
        if a.dtype == object:
            return a.shape == b.shape and same(a.tolist(), b.tolist())
        return a.dtype == b.dtype and np.shape(a) == np.shape(b) and a.tobytes() == b.tobytes()
    return a == b if isinstance(a, int) else repr(a) == repr(b)


@given(plain)
def test_a_value_comes_back_as_it_was(value):
    back = decode(encode(value))
    assert same(back, value), (back, value)
    assert same(decode(encode_all([value, value])), [value, value])


@pytest.mark.parametrize(
    "value",
    [
        {"": "text"}, {"": "array", "dtype": "O"}, 2**70, -(2**63) - 1, [10**6000], (1, (2, [3])), {1, 2},
        {(1, "a"): {2: None}}, math.nan, -0.0, "\ud800", {"\ud800": 1}, Counter("aab"), np.float64(0.1),
        np.array([{1}, (2,)], object), np.fromiter([[1, 2], [3, 4]], object, 2),
    ],
)  # fmt: skip
def test_state_that_once_changed_or_could_not_be_saved(value):
    assert same(unpack_state("process", pack_state("process", {"state": value}))["state"], value)


def test_columns_and_batches_come_back_and_can_be_written_to():
    schema = Schema.of({"id": str, "x": float, "what": object})
    batch = Batch.of_rows([{"id": "é", "x": None, "what": (1, {2})}, {"id": None, "x": 1.5, "what": None}], schema)
    batch.watermark = 17
    back = decode(encode(batch))
    assert back.rows() == batch.rows()
    assert (back.stamps == batch.stamps).all()
    assert back.watermark == 17
    assert isinstance(back["id"], Nullable)
    assert isinstance(back["id"].values, Text)
    assert back["x"].values.flags.writeable
    assert back["id"].values.data.flags.writeable


Point = namedtuple("Point", "x y")


@dataclass
class Reading:
    x: float


class Colour(IntEnum):
    RED = 1


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Point(1, 2), "Point"), (Reading(1.0), "Reading"), (Colour.RED, "Colour"), (defaultdict(int), "defaultdict"),
        (print, "builtin_function_or_method"), ([{1: object()}], "object"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)  # fmt: skip
def test_what_has_no_exact_form_is_refused_by_name(value, kind):
    with pytest.raises(
        SnapshotError, match=f"the state of a process step cannot be saved: a value of type {kind} cannot"
    ):
        pack_state("process", {"state": value})


def test_a_value_that_holds_itself_is_refused():
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(TypeError, match="holds itself"):
        encode(loop)


@given(st.binary(max_size=40))
def test_other_bytes_are_refused_and_never_run(data):
    with contextlib.suppress(ValueError):
        decode(data)
    with pytest.raises(SnapshotError):
        unpack_state("process", data)


def test_an_array_of_objects_cannot_be_smuggled_in():
    smuggled = msgspec.msgpack.encode(msgspec.msgpack.Ext(7, msgspec.msgpack.encode(["|O8", [1], b"12345678"])))
    with pytest.raises(ValueError, match="none of ours"):
        decode(smuggled)
