"""Queries survive being written and read again, and wrong ones are marked where they are wrong."""

from __future__ import annotations

from typing import Any

import pytest
from chains import chains
from hypothesis import given
from hypothesis import strategies as st

from headwater.cep import parse, text
from headwater.cep import syntax as s
from headwater.errors import QueryError
from headwater.flow import Flow
from headwater.io import Items
from properties import examples

names = st.sampled_from(["a", "tank", "height", "time", "count", "window", "length_2", "X"])
constants = st.one_of(
    st.booleans(),
    st.integers(-(10**6), 10**6),
    st.floats(-1e6, 1e6, allow_nan=False),
    st.text("abc '%é", max_size=5),
    st.text('ab"', max_size=3),
).map(s.Constant)
attributes = st.builds(s.Attribute, names, st.none() | st.sampled_from(["e1", "e2"]), st.none()) | st.builds(
    s.Attribute, names, st.just("e1"), st.builds(s.Index, st.booleans(), st.integers(0, 3))
)


def _deeper(inner: Any) -> Any:
    binary = st.sampled_from(["+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "and", "or"])
    return st.one_of(
        st.builds(lambda op, a, b: s.Operation(op, (a, b)), binary, inner, inner),
        st.builds(lambda a: s.Operation("not", (a,)), inner),
        st.builds(lambda a: s.Operation("-", (a,)), inner),
        st.builds(s.IsNull, inner),
        st.builds(
            lambda name, args: s.Function(name, tuple(args)),
            st.sampled_from(["avg", "math:abs"]),
            st.lists(inner, max_size=2),
        ),
    )


expressions = st.recursive(constants | attributes, _deeper, max_leaves=5)
values = (
    constants
    | attributes
    | st.sampled_from([s.Operation("==", (s.Attribute("a"), s.Constant(1))), s.Function("count")])
)
spans = st.lists(
    st.tuples(st.integers(1, 99), st.sampled_from(["ms", "sec", "min", "hour", "day", "week"])), min_size=1, max_size=2
).map(lambda parts: s.Span(tuple(parts)))
windows = st.builds(s.Window, st.sampled_from(["length", "time"]), st.lists(values | spans, max_size=2).map(tuple))
sources = st.builds(s.Source, names, st.lists(values, max_size=2).map(tuple), st.none() | windows)
joins = st.builds(
    s.Join,
    st.builds(s.Source, names, st.just(()), st.none() | windows, st.just("l")),
    st.builds(s.Source, names, st.just(()), st.none() | windows, st.just("r")),
    st.sampled_from(["join", "left outer join", "right outer join", "full outer join"]),
    st.none() | values,
    st.sampled_from(["", "left", "right"]),
)
selected = st.builds(s.SelectItem, values, st.none() | names)
queries = st.builds(
    s.Query,
    st.one_of(sources, joins, chains(plain=False, streams="ab")),
    st.lists(selected, max_size=3).map(tuple),
    st.lists(attributes, max_size=2).map(tuple),
    st.none() | values,
    st.none() | names,
)
definitions = st.builds(s.Define, names, st.lists(st.tuples(names, names), min_size=1, max_size=3).map(tuple))
partitions = st.builds(
    s.Partition,
    st.lists(st.tuples(names, names), min_size=1, max_size=2).map(tuple),
    st.lists(queries, min_size=1, max_size=2).map(tuple),
)
apps = st.builds(s.App, st.lists(definitions | queries | partitions, min_size=1, max_size=3).map(tuple))


@examples(150)
@given(apps)
def test_what_is_written_is_read_as_the_same(app: s.App) -> None:
    assert parse(text(app)) == app


@examples(200)
@given(expressions)
def test_an_expression_that_is_written_is_read_as_the_same(value: s.Value) -> None:
    app = s.App((s.Query(s.Source("a"), (s.SelectItem(value, "x"),)),))
    assert parse(text(app)) == app


def test_comments_and_white_space_do_not_matter() -> None:
    tidy = parse("from a select x")
    assert parse("/* all */ from a -- the levels\n  select x ;") == tidy


WRONG = [
    ("select * from levels", 1, 1, "select", "a query begins with 'from', such as 'from levels select *'"),
    ("from levels insert into low", 1, 13, "insert", "did you forget 'select'? 'select *' keeps all columns"),
    ("from level select tank", 1, 6, "level", "there is no stream 'level'; did you mean 'levels'?"),
    ("from levels select hight", 1, 20, "hight", "stream 'levels' has no column 'hight'; did you mean 'height'?"),
    ("from levels[height = 3] select tank", 1, 20, "=", "did you mean '=='?"),
    ("from levels select tank where height > 3", 1, 25, "where", "a condition stands in brackets after the stream"),
    ("FROM levels select tank", 1, 1, "FROM", "keywords are written in small letters: did you mean 'from'?"),
    ("from levels selct tank", 1, 13, "selct", "did you mean 'select'?"),
    (
        "from every e1=levels -> e2=levels within 10 select e1.tank",
        1,
        42,
        "10",
        "a time needs a unit; did you mean '10 sec'?",
    ),
    ("from e1=levels -> not valves for 10 select e1.tank", 1, 34, "10", "a time needs a unit; did you mean '10 sec'?"),
    (
        "from e1=levels -> not valves select e1.tank",
        1,
        19,
        "not valves",
        "absence needs a time, such as 'not b for 10 sec'",
    ),
    (
        "from e1=levels -> e2=valves within 10 secs2 select e1.tank",
        1,
        39,
        "secs2",
        "'secs2' is no unit of time; did you mean 'sec'?",
    ),
    ("from levels[height < 'low'] select tank", 1, 13, "height < 'low'", "cannot compare float with text"),
    ("from levels[height < '150'] select tank", 1, 13, "height < '150'", "did you mean 150 without quotes?"),
    ("from levels[tank] select tank", 1, 13, "tank", "a condition is true or false; tank is text"),
    ("from levels select avrg(height) as a", 1, 20, "avrg(height)", "there is no function 'avrg'; did you mean 'avg'?"),
    (
        "from levels select abs(height) as a",
        1,
        20,
        "abs(height)",
        "there is no function 'abs'; did you mean 'math:abs'?",
    ),
    ("from levels#window.length(5) select avg(tank) as a", 1, 41, "tank", "avg() takes numbers; tank is text"),
    (
        "from levels#window.length(5) select avg(height)",
        1,
        37,
        "avg(height)",
        "avg(height) needs a name; add 'as' and a name",
    ),
    (
        "from levels#window.lenght(5) select count() as n",
        1,
        12,
        "#window.lenght(5)",
        "there is no window 'lenght'; did you mean 'length'?",
    ),
    (
        "from levels#window.time(5) select count() as n",
        1,
        25,
        "5",
        "a window of time needs a unit, such as time(1 min); did you mean 5 sec?",
    ),
    (
        "from levels#window.length(1 min) select count() as n",
        1,
        12,
        "#window.length(1 min)",
        "it takes a number of records above 0",
    ),
    (
        "from levels#window.lengthBatch(5) select tank",
        1,
        12,
        "#window.lengthBatch(5)",
        "needs an aggregate in 'select', such as count()",
    ),
    (
        "from levels select tank group by tank",
        1,
        34,
        "tank",
        "'group by' needs an aggregate in 'select', such as count()",
    ),
    (
        "from levels select tank, height as tank",
        1,
        26,
        "height as tank",
        "the result has 'tank' twice; rename one with 'as'",
    ),
    ("from levels select tank having height > 3", 1, 32, "height", "'having' reads the result, which has no 'height'"),
    (
        "from every e1=levels -> e2=levels[height > e3.height] select e1.tank",
        1,
        44,
        "e3.height",
        "there is no event 'e3'; events are 'e1', 'e2'",
    ),
    (
        "from e1=levels[height > e2.height] -> e2=levels select e1.tank",
        1,
        25,
        "e2.height",
        "'e2' comes later; a condition reads its own event and earlier ones",
    ),
    (
        "from e1=levels -> e1=valves select e1.tank",
        1,
        22,
        "valves",
        "the name 'e1' is used twice; names must be unique",
    ),
    (
        "from e1=levels -> e2=levels select height",
        1,
        36,
        "height",
        "of which event is 'height'; did you mean e1.height or e2.height?",
    ),
    ("from e1=levels<5:2> -> e2=valves select e1.tank", 1, 15, "<5:2>", "did you mean <2:5>?"),
    (
        "from e1=levels -> e2=valves select e1[0].tank",
        1,
        36,
        "e1[0].tank",
        "'e1' takes one record; leave the index out",
    ),
    (
        "from every e1=levels, not valves for 5 sec select e1.tank",
        1,
        23,
        "not valves for 5 sec",
        "write '->' instead of ','",
    ),
    (
        "from levels as l join valves as r on l.tank == r.tank select l.tank",
        1,
        6,
        "levels as l join valves as r on l.tank == r.tank",
        "a join needs a window on a side",
    ),
    (
        "from levels#window.length(5) as l join valves as r on l.tank == r.tank select l.tank group by l.tank",
        1,
        95,
        "l.tank",
        "'group by' needs a window",
    ),
    (
        "from e1=levels -> e2=valves select e1.tank group by e1.tank",
        1,
        53,
        "e1.tank",
        "'group by' needs a window",
    ),
    (
        "from levels#window.length(5) as l join valves as r on l.tank == x.tank select l.tank",
        1,
        65,
        "x.tank",
        "there is no side 'x' of this join",
    ),
    (
        "define stream levels (tank strng);\nfrom levels select tank",
        1,
        15,
        "levels",
        "there is no type 'strng'; did you mean 'string'?",
    ),
    (
        "define stream levels (tank string);\nfrom levels\nselect tank, height / tank as x",
        3,
        23,
        "tank",
        "'/' works on numbers; tank is text",
    ),
    ("from levels[height < 3 select tank", 1, 24, "select", "is a ']' missing?"),
    ('from levels[tank == "a] select tank', 1, 21, '"', "the quote that opens this text is never closed"),
    ("from levels select tank insert low", 1, 32, "low", "did you mean 'insert into'?"),
    ("from levels[height < 3 && height > 1] select tank", 1, 24, "&", "did you mean 'and'?"),
    (
        "partition with (tank of levels) begin from valves[open] select missing insert into x end",
        1,
        64,
        "missing",
        "stream 'valves' has no column 'missing'",
    ),
    (
        "from levels[height < 1e400] select tank",
        1,
        22,
        "1e400",
        "1e400 is too large for a float, which ends at 1.798e+308",
    ),
    ("from levels[height > -1e400d] select tank", 1, 23, "1e400d", "1e400d is too large for a float"),
]


def _flow() -> Flow:
    flow = Flow("tanks")
    flow.read("levels", Items([{"tank": "a", "height": 1.0}]))
    flow.read("valves", Items([{"tank": "a", "open": True}]))
    return flow


@pytest.mark.parametrize(("text", "line", "column", "offending", "says"), WRONG)
def test_a_wrong_query_is_marked_where_it_is_wrong(
    text: str, line: int, column: int, offending: str, says: str
) -> None:
    with pytest.raises(QueryError) as caught:
        _flow().query("q", text)
    error = caught.value
    assert says in str(error)
    assert (error.line, error.column, error.offending) == (line, column, offending)
    shown = text.splitlines()[line - 1]
    assert str(error).endswith(f"\n  {shown}\n  {' ' * (column - 1)}{'^' * len(offending.splitlines()[0])}")


def test_there_are_at_least_thirty_mistakes() -> None:
    assert len({says for *_, says in WRONG}) >= 30


@pytest.mark.parametrize("condition", ["not " * 3000 + "n > 1", "n > " + "1 + " * 3000 + "1"])
def test_a_query_that_is_too_deep_to_be_read_is_a_mistake_of_the_query(condition: str) -> None:
    flow = Flow("deep")
    flow.read("levels", Items([{"n": 1}]))
    with pytest.raises(QueryError, match="nested too deeply"):
        flow.query("result", f"from levels[{condition}] select n")
