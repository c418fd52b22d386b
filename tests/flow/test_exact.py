"""Expressions over random typed columns against exact Python numbers, record by record: an answer, or none that fits."""

import math
import operator as op

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headwater import Batch, Schema, coalesce, col, greatest, least, when
from headwater.errors import RecordError
from headwater.flow.expr import Call, Column, Literal
from headwater.operators.expression import compile_expression, compile_single, fallible

LEAST, MOST = -(2**63), 2**63 - 1
SCHEMA = Schema.of({"a": int, "b": int, "x": float, "y": float, "p": bool, "s": str, "t": str})

edges = st.sampled_from(
    [LEAST, LEAST + 1, -(2**62), -(2**32), -2, -1, 0, 1, 2, 3, 10, 2**31, 2**53 + 1, 2**62, MOST - 1, MOST]
)
whole_numbers = edges | st.integers(-20, 20) | st.integers(LEAST, MOST)
floats = st.floats() | st.integers(-20, 20).map(float) | edges.map(float)
texts_ = st.text(max_size=4) | st.sampled_from(
    ["straße", " ab ", "12", "-7", "9" * 30, "1.5", "1_0", "nan", "true", ""]
)
row = st.fixed_dictionaries(
    {
        **{name: st.none() | whole_numbers for name in "ab"},
        **{name: st.none() | floats for name in "xy"},
        "p": st.none() | st.booleans(),
        **{name: st.none() | texts_.filter(lambda t: t.isprintable() or t == "") for name in "st"},
    }
)
BINARY = [op.add, op.sub, op.mul, op.floordiv, op.mod, lambda a, b: a.quotient(b), lambda a, b: a.remainder(b)]
whole = st.deferred(
    lambda: (
        st.sampled_from([col.a, col.b])
        | whole_numbers.map(Literal)
        | st.builds(lambda f, a, b: f(a, b), st.sampled_from(BINARY), whole, whole)
        | st.builds(lambda a, n: a ** Literal(n), whole, st.integers(-1, 5))
        | st.builds(lambda a: -a, whole)
        | st.builds(lambda a: a.abs(), whole)
        | st.builds(lambda a, n: a.round(n), whole, st.integers(-20, 2))
        | st.builds(lambda a, b, c: greatest(a, b, c), whole, whole, whole)
        | st.builds(lambda a, b: coalesce(a, b), whole, whole)
        | st.builds(lambda c, a, b: when(c, a, b), conditions, whole, whole)
        | st.builds(lambda a: a.cast(int), numbers | texts)
    )
)
numbers = st.deferred(
    lambda: (
        st.sampled_from([col.x, col.y])
        | st.builds(lambda f, a, b: f(a, b), st.sampled_from([op.add, op.sub, op.mul]), numbers, numbers | whole)
        | st.builds(lambda a, b: least(a, b), numbers, numbers)
        | st.builds(lambda a, b: coalesce(a, b), whole, numbers)
        | st.builds(lambda a: a.cast(float), whole | texts)
        | st.builds(lambda a: a.floor(), numbers)
        | st.builds(lambda a, b: a / b, whole, whole)
    )
)
texts = st.deferred(
    lambda: (
        st.sampled_from([col.s, col.t])
        | st.builds(lambda a: a.upper(), texts)
        | st.builds(lambda a: a.lower(), texts)
        | st.builds(lambda a: a.strip(), texts)
        | st.builds(lambda a, b: a + b, texts, texts)
        | st.builds(lambda a, old: a.replace(old, "-"), texts, st.sampled_from(["", "a"]))
        | st.builds(lambda a: a.cast(str), whole | numbers | st.just(col.p))
    )
)
conditions = st.deferred(
    lambda: (
        st.just(col.p)
        | st.builds(lambda f, a, b: f(a, b), st.sampled_from([op.lt, op.ge, op.eq, op.ne]), whole, whole)
        | st.builds(lambda f, a, b: f(a, b), st.sampled_from([op.lt, op.ge, op.eq, op.ne]), numbers, numbers | whole)
        | st.builds(lambda f, a, b: f(a, b), st.sampled_from([op.and_, op.or_]), conditions, conditions)
        | st.builds(lambda a: ~a, conditions)
        | st.builds(lambda a: a.is_null(), whole | numbers | texts)
    )
)


class UnfitError(Exception):
    """A whole number has more than 64 bits."""


def meaning(expr, record):
    """Work out an expression for one record, with Python's own numbers; None is missing."""
    match expr:
        case Column(name):
            return record[name]
        case Literal(value):
            return value
        case Call("is_null", (inner,)):
            return meaning(inner, record) is None
        case Call("when", (condition, then, otherwise)):
            return as_typed(expr, meaning(then if meaning(condition, record) is True else otherwise, record))
        case Call("coalesce", args):
            return as_typed(expr, next((v for v in (meaning(arg, record) for arg in args) if v is not None), None))
        case Call("and" | "or" as name, args):
            return logic(name == "or", args, record)
    args = [meaning(arg, record) for arg in expr.args]
    if None in args:
        return None
    kinds = {arg.type_in(SCHEMA) for arg in expr.args}
    if expr.name == "cast":
        return cast(args[0], args[1])
    if kinds == {"int", "float"}:
        args = list(map(float, args))  # numbers of both kinds meet as floats
    result = MEANING[expr.name](*args)
    return fit(result) if type(result) is int else result


def logic(decides, args, record):
    found = []
    for arg in args:
        try:
            found.append(meaning(arg, record))
        except UnfitError as error:
            found.append(error)
    if any(value is decides for value in found):
        return decides
    for value in found:
        if isinstance(value, UnfitError):
            raise value
    return None if None in found else not decides


def as_typed(expr, value):
    return float(value) if value is not None and expr.type_in(SCHEMA) == "float" else value


def fit(number):
    if not LEAST <= number <= MOST:
        raise UnfitError
    return number


def cast(value, kind):
    if kind == "text":
        return str(value).lower() if isinstance(value, bool) else str(value)
    if isinstance(value, str) and "_" in value:
        return None
    try:
        return fit(int(value)) if kind == "int" else float(value)
    except (ValueError, OverflowError):
        return None


def power(a, b):
    if b < 0:
        raise UnfitError
    return a**b


def truncated(a, b):
    return None if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def floored(x):
    return x if not math.isfinite(x) else math.copysign(float(math.floor(x)), x)


MEANING = {
    "add": op.add, "sub": op.sub, "mul": op.mul, "neg": op.neg, "abs": abs, "pow": power, "round": round,
    "div": lambda a, b: float(a) / float(b) if b else math.copysign(math.inf, a) if a else math.nan,
    "floordiv": lambda a, b: a // b if b else None, "mod": lambda a, b: a % b if b else None,
    "quotient": truncated, "remainder": lambda a, b: a - b * truncated(a, b) if b else None,
    "greatest": max, "least": lambda a, b: math.nan if a != a or b != b else min(a, b), "floor": floored,
    "lt": op.lt, "ge": op.ge, "eq": op.eq, "ne": op.ne, "not": op.not_,
    "upper": str.upper, "lower": str.lower, "strip": str.strip, "replace": str.replace,
}  # fmt: skip


def answer(expr, record):
    try:
        return meaning(expr, record)
    except UnfitError:
        return UnfitError


def same(got, wanted):
    if isinstance(wanted, float) and isinstance(got, float):
        return got == wanted or (got != got and wanted != wanted)
    return type(got) is type(wanted) and got == wanted


def over_arrays(expr, rows):
    """Return the answers over columns, and UnfitError where a record has none."""
    batch = Batch.of_rows(rows, SCHEMA)
    run = compile_expression(expr, SCHEMA)
    try:
        return run(batch).tolist()
    except RecordError as error:
        left = [i for i in range(len(rows)) if i not in error.rows]
    found = dict(zip(left, run(batch.take(np.array(left, np.int64))).tolist(), strict=True))
    return [found.get(i) if i in found else UnfitError for i in range(len(rows))]


def over_one(expr, record):
    try:
        return compile_single(expr, SCHEMA)(record)
    except RecordError:
        return UnfitError


@given(whole | numbers | texts | conditions, st.lists(row, max_size=6))
def test_an_expression_gives_pythons_exact_answer_or_names_the_records_that_have_none(expr, rows):
    with np.errstate(all="ignore"):
        got = over_arrays(expr, rows)
    wanted = [answer(expr, r) for r in rows]
    assert all(same(g, w) for g, w in zip(got, wanted, strict=True)), (str(expr), got, wanted)
    assert fallible(expr, SCHEMA) or UnfitError not in got


@given(whole | numbers | texts | conditions, st.lists(row, max_size=6))
def test_a_single_record_gets_the_answer_that_it_gets_in_a_batch(expr, rows):
    with np.errstate(all="ignore"):
        got, wanted = [over_one(expr, r) for r in rows], over_arrays(expr, rows)
    assert all(same(g, w) for g, w in zip(got, wanted, strict=True)), (str(expr), got, wanted)
