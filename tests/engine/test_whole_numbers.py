"""A whole number that does not fit 64 bits is its record's error, in flows and in queries: never another number."""

import json

import pytest

from headwater import Count, Flow, Session, Sliding, Tumbling, agg, col, engine, io, when

MOST = 2**63 - 1
BIG = 1732340865532228085


def run(build, rows, schema=None):
    """Run a flow of these records; return what came out, and the dead letters as (step, error, record)."""
    flow, out, dead = Flow("numbers"), io.Collect(), io.Collect()
    build(flow.read("rows", io.Items(rows, schema or {"a": int, "b": int, "x": float}))).write("out", out)
    flow.dead_letters.write("dead", dead)
    report = engine.run(flow)
    assert report.dead_letters == len(dead.records)
    return out.records, [(r["step"], r["error"], json.loads(r["record"])) for r in dead.records]


def rows_of(*pairs):
    return [{"a": a, "b": b, "x": float(a)} for a, b in pairs]


@pytest.mark.parametrize(
    ("expr", "bad", "good", "wanted"),
    [
        (col.a + col.b, (MOST, 1), (MOST, -1), MOST - 1),
        (col.a + 1, (MOST, 0), (MOST - 1, 0), MOST),
        (col.a - col.b, (-MOST, 2), (-MOST, 1), -MOST - 1),
        (col.a * col.b, (2**32, 2**31), (-(2**32), 2**31), -(2**63)),
        (col.a * 1000, (2**60, 0), (2**50, 0), 2**50 * 1000),
        (-col.a, (-(2**63), 0), (MOST, 0), -MOST),
        (col.a.abs(), (-(2**63), 0), (-MOST, 0), MOST),
        (col.a // col.b, (-(2**63), -1), (-(2**63), 2), -(2**62)),
        (col.a**3, (2**21, 0), (2**20, 0), 2**60),
        ((col.x * 4).cast(int), (MOST, 0), (5, 0), 20),
    ],
    ids=str,
)
def test_a_result_that_does_not_fit_is_a_dead_letter_with_the_expression(expr, bad, good, wanted):
    out, dead = run(lambda s: s.with_columns("sum up", c=expr), rows_of(good, bad, good))
    assert [r["c"] for r in out] == [wanted, wanted]
    [(step, error, record)] = dead
    assert step == "sum up"
    assert str(expr) in error
    assert "64 bits" in error
    assert (record["a"], record["b"]) == bad


def test_what_a_record_does_not_need_costs_nothing():
    expr = when(col.a < 10, col.a * col.a, 0)
    rows = rows_of((MOST, 0), (3, 0))
    out, dead = run(lambda s: s.filter("f", (col.a > 10) | (col.a * col.a >= 0)).with_columns("c", c=expr), rows)
    assert [r["c"] for r in out] == [0, 9]
    assert not dead


def test_a_constant_beyond_64_bits_is_refused_while_building():
    with pytest.raises(Exception, match="a whole number has 64 bits; got one of 71; write it as a float"):
        run(lambda s: s.filter("f", col.a < 2**70), [])


WINDOWS = {
    "count": lambda s, **a: s.key_by().window("w", Count(3), **a),
    "sliding count": lambda s, **a: s.key_by().window("w", Count(3, every=3), **a),
    "tumbling": lambda s, **a: s.event_time("t", "at").key_by().window("w", Tumbling("10 s"), **a),
    "sliding": lambda s, **a: s.event_time("t", "at").key_by().window("w", Sliding("10 s", every="5 s"), **a),
    "session": lambda s, **a: s.event_time("t", "at").key_by().window("w", Session("1 s"), **a),
}


def timed(*values):
    return [{"a": a, "at": 5_000_000 + i} for i, a in enumerate(values)]


@pytest.mark.parametrize("window", WINDOWS)
def test_a_sum_may_leave_64_bits_on_its_way(window):
    out, dead = run(
        lambda s: WINDOWS[window](s, total=agg.sum("a"), n=agg.count()),
        timed(MOST, MOST, -MOST),
        {"a": int, "at": "time"},
    )
    assert {(r["total"], r["n"]) for r in out} == {(MOST, 3)}
    assert not dead


@pytest.mark.parametrize("window", WINDOWS)
def test_a_sum_outside_64_bits_is_missing_and_a_dead_letter_names_the_step_and_the_column(window):
    out, dead = run(
        lambda s: WINDOWS[window](s, total=agg.sum("a"), n=agg.count()), timed(MOST, MOST, 5), {"a": int, "at": "time"}
    )
    assert {(r["total"], r["n"]) for r in out} == {(None, 3)}
    assert len(dead) == len(out)
    assert {(step, error) for step, error, _ in dead} == {
        ("w", "'total': the sum does not fit a whole number of 64 bits; cast to float before adding up")
    }


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize(
    "values", [(4, 2**62, -(2**62)), (MOST, MOST, 5), (MOST, MOST, -MOST), (-MOST - 1, -MOST - 1, -1), (-1, -2, -4)]
)
def test_a_mean_is_that_of_the_exact_sum_also_where_that_does_not_fit(window, values):
    out, dead = run(lambda s: WINDOWS[window](s, mean=agg.mean("a")), timed(*values), {"a": int, "at": "time"})
    assert {r["mean"] for r in out} == {float(sum(values)) / 3}
    assert not dead


@pytest.mark.parametrize("window", WINDOWS)
def test_a_record_whose_value_cannot_be_computed_enters_no_window(window):
    out, dead = run(
        lambda s: WINDOWS[window](s, total=agg.sum(col.a * 2)), timed(1, MOST, 2, 3), {"a": int, "at": "time"}
    )
    assert {r["total"] for r in out} == {12}
    assert [record["a"] for _, _, record in dead] == [MOST]


def query(text, rows, schema=None):
    flow, out, dead = Flow("numbers"), io.Collect(), io.Collect()
    schema = schema or {"a": int, "b": int}
    flow.read("s", io.Items([{**dict.fromkeys(schema), **row} for row in rows], schema))
    flow.query("q", text).write("out", out)
    flow.dead_letters.write("dead", dead)
    engine.run(flow)
    return out.records, [(r["step"], r["error"]) for r in dead.records]


def test_a_query_computes_whole_numbers_as_whole_numbers():
    text = f"from s select a % 10 as r, a / 10 as q, -{2**63} as low insert into o"
    out, dead = query(text, [{"a": BIG}, {"a": -BIG}, {"a": MOST}])
    assert [(r["r"], r["q"]) for r in out] == [(5, BIG // 10), (-5, -(BIG // 10)), (7, MOST // 10)]
    assert {r["low"] for r in out} == {-(2**63)}
    assert not dead


@pytest.mark.parametrize(
    "text",
    [
        "from s[a + b > 0] select a insert into o",
        "from s select a + b as c insert into o",
        "from s#window.length(1) select sum(a + b) as c insert into o",
        "from s#window.lengthBatch(1) select sum(a + b) as c insert into o",
        "from every e1 = s[a + b > 0] select e1.a insert into o",
        "from every e1 = s[b == 0] -> e2 = s[a + e1.a > 0] select e2.a insert into o",
    ],
)
def test_in_a_query_too_a_record_without_an_answer_is_a_dead_letter(text):
    out, dead = query(text, [{"a": 1, "b": 0}, {"a": MOST, "b": 1}, {"a": 1, "b": 1}])
    assert out
    assert [step for step, _ in dead] in (["q"], ["q where"])
    assert "64 bits" in dead[0][1]


@pytest.mark.parametrize("window", ["", "#window.length(3)", "#window.lengthBatch(3)"])
def test_a_querys_sum_is_exact_or_missing_with_a_dead_letter(window):
    text = f"from s{window} select sum(a) as c, avg(a) as m insert into o"
    out, dead = query(text, [{"a": MOST}, {"a": MOST}, {"a": -MOST}])
    assert out[-1]["c"] == MOST
    assert out[-1]["m"] == pytest.approx(MOST / 3)
    assert [r["c"] for r in out[:-1]] == [MOST, None][: len(out) - 1]
    assert len(dead) == (1 if len(out) > 1 else 0)


@pytest.mark.parametrize("between", [",", " ->"])
def test_numbers_that_a_pattern_cannot_compare_are_dead_letters(between):
    flow, out, dead = Flow("least"), io.Collect(), io.Collect()
    flow.read("s", io.Items([{"a": a} for a in (-(2**63), -3, 0, -(2**63) + 1, 1, 2)], {"a": int}))
    flow.query("q", f"from every e1=s{between} e2=s[a > e1.a] select e1.a as x, e2.a as y").write("o", out)
    flow.dead_letters.write("d", dead)
    engine.run(flow)
    assert [(r["x"], r["y"]) for r in out.records] == [(-3, 0), (0, 1), (1, 2)]
    assert len(dead.records) == 2
