"""What an expression computes as a Spark Column is what it computes on a batch, or it is not made one."""

import math
from functools import reduce

import numpy as np
import pyarrow as pa
import pytest

from headwater import Batch, Schema, coalesce, col, greatest, least, when
from headwater.flow.expr import Expr
from headwater.operators.expression import compile_expression

pyspark = pytest.importorskip("pyspark")

from headwater.spark.columns import Columns, native  # noqa: E402

SCHEMA = Schema.of(
    {"i": int, "j": int, "x": float, "y": float, "f": "float32", "b": bool, "s": str, "t": str, "at": "time"}
)
FLOATS = [0.0, -0.0, 1.5, -2.25, 1e300, math.inf, -math.inf, math.nan, 3.0]
WHOLE = [0, 1, -1, 7, -7, 2**62, -(2**63), 2**63 - 1, 150]
TEXTS = ["", "a", "abc", "äöü€😀x", "Aa", " a ", "aXa", "zz", "abcabc"]

NATIVE = [
    col.x + col.i, col.x - col.y, col.x * 0.1, -col.x, col.x.abs(), col.i.cast(float) * 3,
    col.f + 0.1, col.f * col.f, col.f + col.x, col.x / 3, col.i / 2, col.i // 3, col.i % 5,
    col.i == col.j, col.x == col.y, col.x != col.y, col.x < col.y, col.x <= col.y, col.x > col.y, col.x >= col.y,
    col.x < 1, col.x >= 1.5, col.x != 3.0, col.i < col.x, col.f < 0.1, col.f == 1.5, col.f > col.x, col.s < col.t,
    col.s == "abc", col.b & (col.i > 0), col.b | (col.x > 0), ~col.b, col.x.sqrt(), col.i.floor(), col.x.is_null(),
    col.x.is_nan(), col.i.is_nan(), col.s.is_null(), col.x.fill_null(-1), coalesce(col.i, col.j, 0), col.s.fill_null("?"),
    when(col.x > 1, col.i, col.j), when(col.b, col.x, 0), when(col.b, "yes", col.s), least(col.i, col.j),
    greatest(col.i, col.j, 5), col.i.cast("float"), col.i.cast("text"), col.b.cast("text"), col.b.cast("int"),
    col.f.cast("float"), col.i.is_in([1, 7, -7]), col.s.is_in(["a", "zz"]), col.s.length(), col.s.contains("a"),
    col.s.starts_with("a"), col.s.ends_with("a"), col.s.replace("a", "bb"), col.s.substring(1, 3), col.s + col.t,
    col.s + "!",
]  # fmt: skip
CONDITIONS = [
    (col.x > -3) & (col.i >= 0) & ~col.b, ~(col.x > 1), (col.x > 0) & (col.x * 2 < 1e300), col.f > 0.0, col.f >= col.x,
    col.at > 2**49, col.at == col.at, (col.at <= 2**49) & (col.y == 3.0), col.x.is_nan() | (col.s.length() > 2),
]  # fmt: skip
IN_PYTHON = [
    col.i + col.j, col.i - 3, col.i * col.j, -col.i, col.i.abs(), col.at - col.at, col.at + 5, col.at.cast(str),
    col.x / col.y, col.i // col.j, col.x // 2, col.i % -5, col.i**2, col.x.exp(), col.x.log(), col.x.round(1),
    col.x.floor(), least(col.x, col.y), col.x.cast("int"), col.x.cast("text"), col.s.cast("float"), col.s.upper(),
    col.s.strip(), col.f + col.i, col.x.is_in([1.0]), col.s.substring(-2, 5),
]  # fmt: skip


def batch(nulls: bool) -> Batch:
    """Return every value beside every other one of its kind."""
    random = np.random.default_rng(1)
    n = 300
    values = {
        "i": random.choice(WHOLE, n).tolist(),
        "j": random.choice(WHOLE, n).tolist(),
        "x": random.choice(FLOATS, n).tolist(),
        "y": random.choice(FLOATS, n).tolist(),
        "f": random.choice([0.1, -0.5, math.nan, 1.5, 3.0e30], n).tolist(),
        "b": random.choice([True, False], n).tolist(),
        "s": random.choice(TEXTS, n).tolist(),
        "t": random.choice(TEXTS, n).tolist(),
        "at": random.integers(0, 2**50, n).tolist(),
    }
    if nulls:
        values = {name: [None if random.random() < 0.2 else v for v in column] for name, column in values.items()}
    return Batch.of_rows([dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)], SCHEMA)


@pytest.fixture(params=["false", "true"])
def ansi(spark, request):
    """In a session of our own it is off, in somebody else's on."""
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    yield request.param
    spark.conf.set("spark.sql.ansi.enabled", before)


def test_a_native_column_computes_what_the_expression_computes_and_conditions_hold_where_it_does(spark, ansi):
    from pyspark.sql import functions as F

    given = batch(nulls=ansi == "true")
    kinds = {"i": "int64", "j": "int64", "x": "float64", "y": "float64", "f": "float32", "b": "bool", "at": "int64"}
    table = pa.table({n: pa.array(c.tolist(), kinds.get(n, "string")) for n, c in given.columns.items()})
    made = [native(expr, SCHEMA).alias(str(k)) for k, expr in enumerate(NATIVE)]
    conditions = [expr for expr in (*NATIVE, *CONDITIONS) if expr.type_in(SCHEMA) == "bool"]
    asked = Columns(SCHEMA, timestamps=frozenset({"at"}))
    made += [reduce(lambda a, b: a & b, asked.where(expr)).alias(f"where {k}") for k, expr in enumerate(conditions)]
    frame = spark.createDataFrame(table.append_column("n", pa.array(range(given.length))))
    timed = frame.withColumn("at", F.timestamp_micros("at"))
    got = timed.select("n", *made).orderBy(F.col("n")).toArrow()
    with np.errstate(all="ignore"):
        for k, expr in enumerate(NATIVE):
            expected = compile_expression(expr, SCHEMA)(given).tolist()
            assert [shown(v) for v in got.column(str(k)).to_pylist()] == [shown(v) for v in expected], str(expr)
        for k, expr in enumerate(conditions):
            held = [bool(value) for value in compile_expression(expr, SCHEMA)(given).tolist()]
            assert [bool(v) for v in got.column(f"where {k}").to_pylist()] == held, str(expr)


@pytest.mark.parametrize("expr", IN_PYTHON, ids=str)
def test_what_spark_computes_otherwise_is_left_to_python_with_a_reason(spark, expr: Expr):
    reason = Columns(SCHEMA).why_not(expr)
    assert reason is not None
    assert reason.startswith(str(expr))


def shown(value: object) -> str:
    """Tell -0.0 from 0.0, and let NaN be itself."""
    return repr(value)
