"""State moves whole and by key: however often it is cut, saved, given away and taken over, the results stay the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from brute import Happening
from chains import SECOND, batch_of, canonical, chains, happenings, rows_of, selection, step_of
from hypothesis import given
from hypothesis import strategies as st

from headwater.cep import syntax as s
from headwater.cep import text
from headwater.data.batch import END
from headwater.operators import build, keys
from headwater.operators.operator import Select
from properties import examples

ALL = "key, sum(x) as s, avg(y) as m, min(x) as lo, max(x) as hi, count() as n, distinctCount(x) as d, max(id) as id"
WINDOWS = {
    "length": f"from a#window.length(3) select {ALL}",
    "length by group": f"from a#window.length(3) select {ALL} group by x",
    "time": f"from a#window.time(3 sec) select {ALL}",
    "running": "from a select key, sum(x) as s, avg(y) as m, stdDev(y) as sd, count() as n, min(y) as lo, max(id) as id, "
    "distinctCount(x) as d",
    "running by group": "from a select key, sum(x) as s, count() as n, max(id) as id group by x",
    "length batch": f"from a#window.lengthBatch(3) select {ALL}",
    "time batch": f"from a#window.timeBatch(3 sec) select {ALL}",
    "session": f"from a#window.session(2 sec) select {ALL} group by x",
    "join of times": "from a#window.time(3 sec) as l join b#window.time(4 sec) as r on l.x == r.x "
    "select l.key as key, l.id as l, r.id as r",
    "join of lengths": "from a#window.length(2) as l full outer join b#window.length(3) as r on l.x <= r.x "
    "select l.id as l, r.id as r",
    "absence": "from every e1=a -> not b[x == e1.x] for 3 sec select e1.id as i",
    "absence first": "from every not a[x > 0] for 2 sec -> e1=b select e1.id as i",
    "absence beside or": "from every e1=a -> not b for 2 sec or e2=b[x > e1.x] within 5 sec select e1.id as i, e2.id as j",
    "absence beside and": "from every e1=a -> not b[x > e1.x] for 2 sec and e2=b select e1.id as i, e2.id as j",
    "count": "from every e1=a<2:3> -> e2=b[x == e1[last].x] within 6 sec select e1[0].id as i, e2.id as j",
    "sequence": "from every e1=a+, e2=b[x >= e1[last].x] select e1[0].id as i, e2.id as j",
}


@cache  # to read the text of a query takes longer than to play an example
def maker(query: str, *, partition: bool = True, **options: Any) -> tuple[Any, list[str]]:
    """Return how to make the operator of a query, by key, and the streams it reads."""
    text = f"partition with (key of a, key of b) begin {query} end" if partition else query
    step, ports = step_of(text, **options)
    return lambda: build(step), ports


def feed(operators: list[Any], ports: list[str], events: list[Happening]) -> list[dict[str, Any]]:
    """Give records to the operators that have their keys, and a watermark that lags behind."""
    found: list[dict[str, Any]] = []
    for part, operator in enumerate(operators):
        for port, stream in enumerate(ports):
            if rows := [event.record for event in events if event.stream == stream]:
                batch = batch_of(rows)
                batch = batch.filter(Select(part, len(operators)).rows([batch.columns["key"]]))  # type: ignore[list-item]
                if batch.length:
                    found += rows_of(operator.process(batch, port))
        if events:
            found += rows_of(operator.advance(events[-1].time - 2 * SECOND))
    return found


def ended(operators: list[Any]) -> list[dict[str, Any]]:
    return [row for operator in operators for row in rows_of(operator.advance(END))]


def moved(operators: list[Any], make: Any, parts: int) -> list[Any]:
    """Give the state of operators to others, each of which takes one part of the keys; none is left behind."""
    made = [make() for _ in range(parts)]
    for old in operators:
        for part, new in enumerate(made):
            new.restore(old.snapshot(Select(part, parts)))
            old.forget(Select(part, parts))
        left = make()
        left.restore(old.snapshot())
        assert not rows_of(left.advance(END))
    return made


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("idle", [1 << 14, 0])
@examples(8)
@given(events=happenings(streams="ab"), cuts=st.lists(st.tuples(st.integers(0, 24), st.integers(1, 3)), max_size=3))
def test_state_may_be_cut_by_key_at_any_time(name: str, idle: int, events: Any, cuts: list[tuple[int, int]]) -> None:
    with forgetting(idle):
        check(maker(WINDOWS[name]), events, cuts)


@examples(80)
@given(
    st.booleans().flatmap(lambda plain: chains(plain=plain, streams="ab")),
    happenings(streams="ab"),
    st.lists(st.tuples(st.integers(0, 24), st.integers(1, 3)), max_size=3),
)
def test_attempts_at_a_chain_may_be_cut_by_key_at_any_time(chain: s.Chain, events: Any, cuts: Any) -> None:
    check(maker(text(s.Query(chain, selection(chain)))), events, cuts)


@contextmanager
def forgetting(idle: int) -> Iterator[None]:
    """Let operators forget idle keys as soon as there are more than so many."""
    before, keys.IDLE_KEYS = keys.IDLE_KEYS, idle
    yield
    keys.IDLE_KEYS = before


def check(made: tuple[Any, list[str]], events: list[Happening], cuts: list[tuple[int, int]]) -> None:
    """Compare a run that is never interrupted with one whose state is cut at each of the cuts, into some parts."""
    make, ports = made
    edges = [0, *sorted({at % (len(events) + 1) for at, _ in cuts}), len(events)]
    parts = [parts for _, parts in cuts]
    whole, others = [make()], [make()]
    wanted, found = [], []
    for (start, stop), count in zip(pairwise(edges), [*parts, 1, 1], strict=False):
        wanted += feed(whole, ports, events[start:stop])
        found += feed(others, ports, events[start:stop])
        others = moved(others, make, count)
    # as text, since NaN is not equal to itself
    assert str(canonical(found + ended(others))) == str(canonical(wanted + ended(whole)))


@pytest.mark.parametrize("name", WINDOWS)
@examples(8)
@given(events=happenings(streams="ab"), at=st.integers(0, 24))
def test_state_moves_whole_without_keys_too(name: str, events: Any, at: int) -> None:
    make, ports = maker(WINDOWS[name], partition=False)
    old, kept = make(), make()
    before, after = events[: at % (len(events) + 1)], events[at % (len(events) + 1) :]
    wanted, found = feed([kept], ports, before), feed([old], ports, before)
    new = make()
    new.restore(old.snapshot())
    found += feed([new], ports, after) + ended([new])
    assert str(found) == str(wanted + feed([kept], ports, after) + ended([kept]))
