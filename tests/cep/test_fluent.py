"""Queries in Python are the same data as their text, and run the same."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from test_language import apps

from headwater import cep, engine
from headwater.cep import absent, app, both, col, count, every, mean, pattern, sequence, stream, text, times
from headwater.cep import syntax as s
from headwater.cep.fluent import Event
from headwater.cep.formulas import Reference
from headwater.errors import FlowError, QueryError
from headwater.flow import Flow
from headwater.flow.expr import Call, Expr, Literal
from headwater.io import Collect, Items
from properties import examples

CALLS = {"+": "add", "-": "sub", "*": "mul", "/": "div", "%": "mod", "==": "eq", "!=": "ne", "<": "lt", "<=": "le",
         ">": "gt", ">=": "ge", "and": "and", "or": "or"}  # fmt: skip


def formula(value: Any) -> Any:
    """Write an expression in Python, as a person would but for the numbers on the left."""
    match value:
        case s.Constant(constant):
            return Literal(constant)
        case s.Attribute(name, None):
            return col[name]
        case s.Attribute(name, ref, None):
            return cep.event(ref, "any")[name]
        case s.Attribute(name, ref, s.Index(back, offset)):
            return cep.event(ref, "any")[-1 - offset if back else offset][name]
        case s.IsNull(inner):
            return formula(inner).is_null()
        case s.Function(name, args):
            return cep.call(name, *map(formula, args))
        case s.Operation("not", (inner,)):
            return ~formula(inner)
        case s.Operation("-", (inner,)):
            return -formula(inner)
        case s.Operation(op, (left, right)):
            return Call(CALLS[op], (formula(left), formula(right)))
        case s.Span(parts):
            return " ".join(f"{n} {unit}" for n, unit in parts)
    raise AssertionError(value)


def filtered(made: Any, filters: tuple[s.Value, ...]) -> Any:
    for condition in filters:
        made = made[formula(condition)]
    return made


def source(given: s.Source) -> Any:
    made = filtered(stream(given.stream), given.filters)
    if given.window:
        made = made.window(given.window.kind, *map(formula, given.window.args))
    return made.named(given.alias) if given.alias else made


def place(part: Any) -> Any:
    match part:
        case s.Event(of, ref, filters, often):
            made = filtered(cep.event(ref, of), filters)
            return times(made, often.least, often.most) if often else made
        case s.Absent(of, filters, wait):
            return absent(filtered(stream(of), filters), formula(wait) if wait else None)
        case s.Both("and", left, right):
            return both(place(left), place(right))
        case s.Both("or", left, right):
            return cep.either(place(left), place(right))
        case s.Group(links):
            return cep.group(*map(link, links))
    raise AssertionError(part)


def link(given: s.Link) -> Any:
    return every(place(given.what)) if given.every else place(given.what)


def statement(given: Any) -> Any:
    match given:
        case s.Define(of, fields):
            return given if len(dict(fields)) < len(fields) else cep.define(of, **dict(fields))
        case s.Partition(keys, queries):
            by_stream = {of: column for column, of in keys}
            return given if len(by_stream) < len(keys) else cep.partition(by_stream, *map(statement, queries))
    match given.source:
        case s.Source():
            made = source(given.source)
        case s.Join(left, right, kind, on, one_way):
            word: Any = "inner" if kind == "join" else kind.split()[0]
            condition = formula(on) if on is not None else None
            made = cep.join(source(left), source(right), condition, kind=word, unidirectional=one_way)
        case s.Chain(kind, links, within):
            build = pattern if kind == "pattern" else sequence
            made = build(*map(link, links), within=formula(within) if within else None)
    chosen = [
        cep.renamed(formula(item.value), item.name) if item.name else formula(item.value) for item in given.select
    ]
    query = made.select(*chosen)
    if given.group_by:
        query = query.group_by(*map(formula, given.group_by))
    if given.having is not None:
        query = query.having(formula(given.having))
    return query.into(given.into) if given.into else query


@examples(200)
@given(apps)
def test_python_and_text_are_the_same_data(given: s.App) -> None:
    made = app(*map(statement, given.statements))
    assert made == given
    assert cep.parse(text(made)) == given


def test_a_pattern_reads_like_its_text() -> None:
    e1, e2 = cep.event("e1", "valves"), cep.event("e2", "valves")
    forgotten = pattern(
        every(e1[col.action == "open"]),
        both(absent(stream("valves")[(col.action == "close") & (col.valve == e1.valve)], "10 min"), e2),
        within=timedelta(hours=1),
    ).select(e1.valve, since=e1["at"])
    assert text(forgotten) == (
        'from every e1=valves[action == "open"] -> not valves[action == "close" and valve == e1.valve] for 10 min'
        " and e2=valves within 3600000 ms\nselect e1.valve, e1.at as since"
    )


def test_sequences_count_and_read_what_they_took() -> None:
    e1, e2 = cep.event("e1", "levels"), cep.event("e2", stream("levels")[col.height > 3])
    rising = sequence(every(times(e1, 2, None)), e2[col.height > e1[-1].height]).select(a=e1[0].height, b=e1[-2].height)
    assert text(rising) == (
        "from every e1=levels<2:>, e2=levels[height > 3][height > e1[last].height]\n"
        "select e1[0].height as a, e1[last - 1].height as b"
    )


def test_the_flows_own_functions_have_their_names_in_the_text() -> None:
    low = stream("levels").window("time", "5 min")
    query = low.select(
        col.tank, mean=mean(col.height), n=count(), odd=(col.height.abs() % 2).fill_null(0), name=col.tank.upper()
    )
    grouped = query.group_by(col.tank).having((col.mean < 150) & ~(col.n == 1)).into("means")
    assert text(grouped).splitlines() == [
        "from levels#window.time(5 min)",
        "select tank, avg(height) as mean, count() as n, coalesce(math:abs(height) % 2, 0) as odd, str:upper(tank) as name",
        "group by tank",
        "having mean < 150 and not n == 1",
        "insert into means",
    ]


def test_a_flow_runs_python_and_text_alike() -> None:
    rows = [{"tank": t, "height": h} for t, h in [("a", 1), ("b", 1), ("a", 1), ("b", 2), ("a", 3)]]
    e1, e2 = cep.event("e1", "levels"), cep.event("e2", "levels")
    stuck: Any = cep.partition({"levels": "tank"}, pattern(every(e1), e2[col.height == e1.height]).select(tank=e1.tank))
    found = []
    for query in (stuck, text(stuck), app(stuck)):
        flow, seen = Flow("tanks"), Collect()
        flow.read("levels", Items(rows))
        flow.query("stuck", query).write("show", seen)
        engine.run(flow)
        found.append(seen.records)
    assert found == [[{"tank": "a"}]] * 3


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: pattern(stream("a")), "a pattern is made of events, such as event('e1', 'levels'); got QueryStream"),
        (lambda: stream("a").select(col.x.exp()), "col.x.exp() has no form in a query"),
        (lambda: absent(stream("a"), "10"), "a number and a unit, such as '10 sec' or '1 min 30 sec'; got '10'"),
        (lambda: absent(stream("a"), "10 sek"), "in '10 sek', 'sek' is no unit of time; did you mean 'sec'?"),
        (lambda: times(cep.event("e1", "a"), 5, 2), "an event is taken 5 to 2 times"),
        (lambda: cep.event(None, "a").x, "this event of 'a' has no name; make it by event(name, stream)"),
        (lambda: both(both(*two()), cep.event("e3", "a")), "both() and either() join two events; three do not fit"),
        (lambda: cep.event("e1", stream("a").window("length", 5)), "a window cannot stand in a pattern"),
        (lambda: stream("a").select(n=count()).group_by(col.x + 1), "group_by() takes columns, such as col.tank"),
    ],
)
def test_what_makes_no_query_is_refused_where_it_is_written(make: Any, says: str) -> None:
    with pytest.raises(QueryError) as caught:
        make()
    assert says in str(caught.value)


def two() -> tuple[Event, Event]:
    return cep.event("e1", "a"), cep.event("e2", "a")


def test_an_events_column_is_refused_outside_queries() -> None:
    flow = Flow("tanks")
    levels = flow.read("levels", Items([{"height": 1}]))
    column: Expr = Reference("e1", "height")
    with pytest.raises(FlowError, match=r"e1\.height belongs to a query"):
        levels.filter("low", column < 3)
