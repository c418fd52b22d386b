"""Expressions over arrays against the same expression over one Python record at a time."""

import json
import math
import operator as op

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import Batch, Schema, coalesce, col, greatest, least, when
from headwater.flow.expr import Call, Column, Literal, from_json
from headwater.operators.expression import compile_expression, compile_mask

SCHEMA = Schema.of({"a": int, "b": int, "x": float, "y": float, "p": bool, "q": bool, "s": str, "t": str})
row = st.fixed_dictionaries(
    {
        **{name: st.none() | st.integers(-20, 20) for name in "ab"},
        **{name: st.none() | st.integers(-20, 20).map(lambda n: n / 4) for name in "xy"},
        **{name: st.none() | st.booleans() for name in "pq"},
        **{name: st.none() | st.text("abcXÄ ", max_size=4) for name in "st"},
    }
)
numbers = st.deferred(
    lambda: (
        st.sampled_from([col.a, col.b, col.x, col.y])
        | st.integers(-5, 5).map(Literal)
        | st.builds(lambda f, a, b: f(a, b), st.sampled_from([op.add, op.sub, op.mul, op.truediv]), numbers, numbers)
        | st.builds(lambda a: -a, numbers)
        | st.builds(lambda a: a.abs(), numbers)
        | st.builds(lambda a, b: least(a, b), numbers, numbers)
        | st.builds(lambda a, b: greatest(a, b), numbers, numbers)
        | st.builds(lambda a, b: coalesce(a, b), numbers, numbers)
        | st.builds(lambda c, a, b: when(c, a, b), conditions, numbers, numbers)
        | st.builds(lambda a: a.length(), texts)
    )
)
texts = st.deferred(
    lambda: (
        st.sampled_from([col.s, col.t])
        | st.builds(lambda a, b: a + b, texts, texts)
        | st.builds(lambda a: a.upper(), texts)
        | st.builds(lambda a: a.strip(), texts)
        | st.builds(lambda a: a.fill_null("-"), texts)
    )
)
conditions = st.deferred(
    lambda: (
        st.sampled_from([col.p, col.q])
        | st.builds(
            lambda f, a, b: f(a, b),
            st.sampled_from([op.lt, op.le, op.gt, op.ge, op.eq, op.ne]),
            numbers,
            numbers,
        )
        | st.builds(lambda f, a, b: f(a, b), st.sampled_from([op.and_, op.or_]), conditions, conditions)
        | st.builds(lambda a: ~a, conditions)
        | st.builds(lambda a, b: a == b, texts, texts)
        | st.builds(lambda a: a.contains("b"), texts)
        | st.builds(lambda a: a.starts_with("a"), texts)
        | st.builds(lambda a: a.is_null(), numbers | texts | conditions)
        | st.builds(lambda a: a.is_in([1, 2]), st.sampled_from([col.a, col.b]))
    )
)


def reference(expr, record):
    """Work out an expression for one record, None meaning missing."""
    if isinstance(expr, Column):
        return record[expr.name]
    if isinstance(expr, Literal):
        return expr.value
    assert isinstance(expr, Call)
    name, args = expr.name, [reference(arg, record) for arg in expr.args]
    if name == "is_null":
        return args[0] is None
    if name in ("coalesce", "fill_null"):
        return next((arg for arg in args if arg is not None), None)
    if name == "when":
        return args[1] if args[0] is True else args[2]
    if name in ("and", "or"):
        decides = name == "or"
        if decides in args:
            return decides
        return None if None in args else not decides
    if None in args:
        return None
    return _PLAIN[name](*args)


def divided(a, b):
    if b:
        return a / b
    return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)


_PLAIN = {
    "add": op.add,
    "sub": op.sub,
    "mul": op.mul,
    "div": divided,
    "neg": op.neg,
    "abs": abs,
    "least": lambda a, b: math.nan if a != a or b != b else min(a, b),
    "greatest": lambda a, b: math.nan if a != a or b != b else max(a, b),
    "lt": op.lt,
    "le": op.le,
    "gt": op.gt,
    "ge": op.ge,
    "eq": op.eq,
    "ne": op.ne,
    "not": op.not_,
    "is_in": lambda a, *wanted: a in wanted,
    "upper": str.upper,
    "strip": str.strip,
    "length": len,
    "contains": lambda a, b: b in a,
    "starts_with": str.startswith,
}


def same(got, wanted):
    if got is None or wanted is None or isinstance(wanted, str | bool):
        return got == wanted
    if math.isnan(wanted):
        return math.isnan(got)
    return got == wanted or math.isclose(got, wanted, rel_tol=1e-12)


@given(numbers | texts | conditions, st.lists(row, max_size=8))
def test_an_expression_over_arrays_is_the_expression_over_each_record(expr, rows):
    batch = Batch.of_rows(rows, SCHEMA)
    with np.errstate(all="ignore"):
        got = compile_expression(expr, SCHEMA)(batch).tolist()
    wanted = [reference(expr, r) for r in rows]
    assert len(got) == len(wanted)
    assert all(same(g, w) for g, w in zip(got, wanted, strict=True)), (str(expr), got, wanted)


@given(conditions, st.lists(row, max_size=8))
def test_a_missing_condition_counts_as_no(expr, rows):
    with np.errstate(all="ignore"):
        mask = compile_mask(expr, SCHEMA)(Batch.of_rows(rows, SCHEMA))
    assert mask.tolist() == [reference(expr, r) is True for r in rows]


@given(numbers | texts | conditions)
def test_an_expression_survives_as_plain_data_and_prints_its_columns(expr):
    again = from_json(json.loads(json.dumps(expr.to_json())))
    assert str(again) == str(expr)
    assert again.type_in(SCHEMA) == expr.type_in(SCHEMA)
    assert expr.columns() <= set(SCHEMA)
    assert all(f"col.{name}" in str(expr) for name in expr.columns())


@pytest.mark.parametrize(
    ("expr", "given", "wanted"),
    [
        (col.a // col.b, {"a": 7, "b": 0}, None),
        (col.a % col.b, {"a": 7, "b": 4}, 3),
        (col.s.cast("int"), {"s": "12"}, 12),
        (col.s.cast("float"), {"s": "1.5e3"}, 1500.0),
        (col.s.cast("int"), {"s": "twelve"}, None),
        (col.a.cast("text"), {"a": 12}, "12"),
        (col.x.cast("int"), {"x": math.inf}, None),
        (col.x.cast("int"), {"x": 2.9}, 2),
        (col.s.replace("a", "o"), {"s": "banana"}, "bonono"),
        (col.s.substring(1, 3), {"s": "Ärger"}, "rg"),
        (col.s.is_in(["a", "b"]), {"s": "b"}, True),
        (col.x.round(1), {"x": 2.25}, 2.2),
        (col.x.sqrt(), {"x": 9.0}, 3.0),
        (col.s < col.t, {"s": "a", "t": "b"}, True),
        (col.s.lower().ends_with("x"), {"s": "aX"}, True),
    ],
)
def test_functions(expr, given, wanted):
    record = {name: given.get(name) for name in SCHEMA}
    assert compile_expression(expr, SCHEMA)(Batch.of_rows([record], SCHEMA)).tolist() == [wanted]


def test_a_constant_column_is_as_long_as_the_batch():
    batch = Batch.of({"x": [1.0, 2.0]}, Schema.of({"x": float}))
    assert compile_expression(Literal("a"), Schema.of({"x": float}))(batch).tolist() == ["a", "a"]


def test_a_float32_column_stays_float32_beside_constants():
    schema = Schema.of({"f": "float32"})
    expr = col.f * 2 + 0.5
    assert expr.type_in(schema) == "float32"
    assert compile_expression(expr, schema)(Batch.of({"f": np.ones(3, np.float32)}, schema)).dtype == np.float32
