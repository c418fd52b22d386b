"""An expression means the same in a flow, in a query's filter and result, and between the events of a pattern."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import Flow, coalesce, col, engine, greatest, io, least, when

SCHEMA = {"n": int, "a": int, "b": int, "x": float, "y": float, "s": str}
MOST = 2**63 - 1
#: a query's text, and the flow's expression of the same meaning
SAME = [
    ("maximum(x, y)", greatest(col.x, col.y)),
    ("minimum(x, y, 2.5)", least(col.x, col.y, 2.5)),
    ("math:floor(x)", col.x.floor()),
    ("math:ceil(x)", col.x.ceil()),
    ("math:round(x)", col.x.round()),
    ("math:sqrt(x)", col.x.sqrt()),
    ("math:ln(x)", col.x.log()),
    ("math:abs(a)", col.a.abs()),
    ("str:upper(s)", col.s.upper()),
    ("str:lower(s)", col.s.lower()),
    ("str:length(str:trim(s))", col.s.strip().length()),
    ("a + b", col.a + col.b),
    ("a * b - 1", col.a * col.b - 1),
    ("a / b", col.a.quotient(col.b)),
    ("a % b", col.a.remainder(col.b)),
    ("x / y", col.x / col.y),
    ("x % y", col.x.remainder(col.y)),
    ("x + a", col.x + col.a),
    ("-a", -col.a),
    ("coalesce(a, b)", coalesce(col.a, col.b)),
    ("ifThenElse(x > y or a == b, s, 'no')", when((col.x > col.y) | (col.a == col.b), col.s, "no")),
    ("not (x >= y) and not (s is null)", ~(col.x >= col.y) & ~col.s.is_null()),
]
whole = st.none() | st.integers(-9, 9) | st.sampled_from([MOST, -MOST - 1, 2**53 + 1, 1732340865532228085])
floats = st.none() | st.floats() | st.integers(-9, 9).map(float)
texts = st.none() | st.sampled_from(["straße", "ǆ", " a\t", "", "Σίσυφος"])
rows = st.lists(
    st.fixed_dictionaries({"a": whole, "b": whole, "x": floats, "y": floats, "s": texts}), min_size=1, max_size=5
).map(lambda made: [{"n": n, **row} for n, row in enumerate(made)])


def ran(build, given_rows):
    """Return the results by record, and which records were dead letters."""
    flow, out = Flow("alike"), io.Collect()
    build(flow, flow.read("t", io.Items(given_rows, SCHEMA))).write("out", out)
    dead = engine.run(flow).dead_letters
    return {r["n"]: repr(r["c"]) for r in out.records}, dead


@pytest.mark.parametrize(("text", "expr"), SAME, ids=[text for text, _ in SAME])
@given(rows=rows)
def test_a_query_computes_what_a_flow_computes(text, expr, rows):
    wanted = ran(lambda flow, t: t.select("c", "n", c=expr), rows)
    assert ran(lambda flow, t: flow.query("q", f"from t select n, {text} as c insert into o"), rows) == wanted


def between(text):
    """Return the expression with its first columns read of an earlier event, so that only the interpreter can run it."""
    return re.sub(r"\b([axs])\b(?![:(\'])", r"e1.\1", text)


@pytest.mark.parametrize(("text", "expr"), SAME, ids=[text for text, _ in SAME])
@given(rows=rows)
def test_a_pattern_computes_between_events_what_a_flow_computes_in_one_record(text, expr, rows):
    """Each record comes twice, as the events 2 n and 2 n + 1; the second sees whether the answer is missing."""
    twice = [{**row, "n": 2 * row["n"] + k} for row in rows for k in range(2)]
    query = (
        f"from every e1 = t[n % 2 == 0] -> e2 = t[n == e1.n + 1 and not (({between(text)}) is null)] "
        "select e1.n as n, true as c insert into o"
    )
    answers, dead = ran(lambda flow, t: t.select("c", "n", c=expr.is_null()), rows)
    there = {2 * n for n, missing in answers.items() if missing == "False"}
    got, theirs = ran(lambda flow, t: flow.query("q", query), twice)
    assert set(got) == there
    assert theirs == dead
