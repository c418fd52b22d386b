"""An expression means the same in a flow, in a query's filter and result, and between the events of a pattern."""

import re
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headwater import Flow, coalesce, col, engine, greatest, io, least, when
from properties import examples

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
    st.fixed_dictionaries({"a": whole, "b": whole, "x": floats, "y": floats, "s": texts}), min_size=1, max_size=15
).map(lambda made: [{"n": n, **row} for n, row in enumerate(made)])


def ran(made, given_rows):
    """Run what is made by step, all of it in one flow; return the results of each by record, and its dead letters."""
    flow, outs, dead = Flow("alike"), {}, io.Collect()
    read = flow.read("t", io.Items(given_rows, SCHEMA))
    for step, make in made.items():
        make(flow, read, step).write(f"{step} out", outs.setdefault(step, io.Collect()))
    flow.dead_letters.write("dead", dead)
    engine.run(flow)
    broke = Counter(letter["step"] for letter in dead.records)
    assert broke.keys() <= made.keys()
    return {step: ({r["n"]: repr(r["c"]) for r in out.records}, broke[step]) for step, out in outs.items()}


def selected(expr):
    return lambda flow, t, step: t.select(step, "n", c=expr)


def queried(query):
    return lambda flow, t, step: flow.query(step, f"{query} insert into o{step}")


@examples(20)
@given(rows=rows)
def test_a_query_computes_what_a_flow_computes(rows):
    wanted = ran({f"s{n}": selected(expr) for n, (_, expr) in enumerate(SAME)}, rows)
    found = ran({f"s{n}": queried(f"from t select n, {text} as c") for n, (text, _) in enumerate(SAME)}, rows)
    for n, (text, _) in enumerate(SAME):
        assert found[f"s{n}"] == wanted[f"s{n}"], text


def between(text):
    """Return the expression with its first columns read of an earlier event, so that only the interpreter can run it."""
    return re.sub(r"\b([axs])\b(?![:(\'])", r"e1.\1", text)


PATTERN = "from every e1 = t[n % 2 == 0] -> e2 = t[n == e1.n + 1 and not (({}) is null)] select e1.n as n, true as c"


@examples(20)
@given(rows=rows)
def test_a_pattern_computes_between_events_what_a_flow_computes_in_one_record(rows):
    """Each record comes twice, as the events 2 n and 2 n + 1; the second sees whether the answer is missing."""
    twice = [{**row, "n": 2 * row["n"] + k} for row in rows for k in range(2)]
    wanted = ran({f"s{n}": selected(expr.is_null()) for n, (_, expr) in enumerate(SAME)}, rows)
    found = ran({f"s{n}": queried(PATTERN.format(between(text))) for n, (text, _) in enumerate(SAME)}, twice)
    for n, (text, _) in enumerate(SAME):
        answers, dead = wanted[f"s{n}"]
        got, theirs = found[f"s{n}"]
        assert set(got) == {2 * n for n, missing in answers.items() if missing == "False"}, text
        assert theirs == dead, text
