"""No result of a query depends on how its records were batched, late records and other columns of time included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from played import SECOND, results

from headwater import engine
from headwater.flow import Flow
from headwater.io import Collect, Items
from properties import examples

AGGREGATES = "count() as n, sum(x) as s, min(id) as first, max(id) as last"


@st.composite
def arrivals(draw: Any, streams: str, late: bool) -> list[tuple[str, dict[str, Any]]]:
    """Records out of order by up to two seconds, with `late` by more, each with a time of its own in `u`."""
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(0, 3),
                st.integers(0, 9 if late else 2),
                st.sampled_from(streams),
                st.integers(0, 3),
                st.sampled_from("kkl"),
                st.integers(0, 2),
            ),
            max_size=20,
        )
    )
    now, other, found = 100, 0, []
    for i, (step, back, stream, x, key, more) in enumerate(rows):
        now, other = now + step, other + more
        found.append((stream, {"id": i, "key": key, "x": x, "t": (now - back) * SECOND, "u": other * SECOND}))
    return found


WINDOWS = [
    "length(3)", "time(3 sec)", "externalTime(t, 3 sec)", "externalTime(u, 3 sec)", "lengthBatch(3)", "timeBatch(3 sec)",
    "externalTimeBatch(t, 3 sec)", "externalTimeBatch(u, 3 sec)", "session(2 sec)", "session(2 sec, key)",
]  # fmt: skip
cuts = st.lists(st.integers(0, 30), max_size=6)
one_by_one = list(range(40))


@pytest.mark.parametrize("window", WINDOWS)
@examples(40)
@given(arrivals("a", late=True), cuts, st.booleans(), st.booleans(), st.booleans())
def test_no_window_depends_on_batching(
    window: str, records: Any, at: list[int], group: bool, chosen: bool, parted: bool
) -> None:
    query = f"from a{'[x > 0]' if chosen else ''}#window.{window} select key, {AGGREGATES}{' group by key' if group else ''}"
    if parted:
        query = f"partition with (key of a) begin {query} end"
    check_that_batches_do_not_matter(lambda cut: per_key(results(query, records, cut), query), at)


def check_that_batches_do_not_matter(found: Callable[[list[int]], Any], at: list[int]) -> Any:
    """Return what is found in one batch, once it is so in batches that are cut here, and record by record."""
    whole = found([])
    assert found(at) == whole
    assert found(one_by_one) == whole
    return whole


def per_key(rows: list[dict[str, Any]], query: str) -> Any:
    """Return rows as they came; of windows by key, each key's for itself."""
    if "partition" not in query and ", key)" not in query:
        return rows
    return {key: [row for row in rows if row["key"] == key] for key in "kl"}


CHAINS = [
    "every e1=a -> e2=b[x >= e1.x]", "every e1=a, e2=b", "every e1=a+, e2=b", "every e1=a<2:3> -> e2=b",
    "every e1=a -> e2=a and e3=b", "every e1=a -> e2=b within 2 sec", "every e1=a, e2=a+, e3=b within 3 sec",
    "every e1=a -> not b for 2 sec", "every e1=a -> not b[x == e1.x] and e2=a", "e1=a -> e2=b within 1 sec",
    "every not b for 2 sec -> e1=a", "e1=a -> every e2=b",
]  # fmt: skip


@pytest.mark.parametrize("chain", CHAINS)
@examples(25)
@given(arrivals("ab", late=False), cuts, st.booleans())
def test_no_chain_depends_on_batching(chain: str, records: Any, at: list[int], parted: bool) -> None:
    names = [name for name in ("e1", "e2", "e3") if f"{name}=" in chain]
    select = ", ".join(f"{name}.id as {name}" for name in names)
    query = f"from {chain} select e1.key as key, {select}"
    if parted:
        query = f"partition with (key of a, key of b) begin {query} end"
    check_that_batches_do_not_matter(lambda cut: per_key(results(query, records, cut), query), at)


@pytest.mark.parametrize("chain", CHAINS)
@examples(15)
@given(arrivals("a", late=True), cuts)
def test_no_chain_of_one_stream_depends_on_batching_when_records_are_late(
    chain: str, records: Any, at: list[int]
) -> None:
    chain = chain.replace("=b", "=a[x > 0]").replace("not b", "not a[x > 1]").replace("][", " and ")
    query = f"from {chain} select e1.id as i"
    check_that_batches_do_not_matter(lambda cut: results(query, records, cut), at)


PAIRS = "select l.id as i, r.id as j"
TOGETHER = [
    f"from a#window.time(2 sec) as l join b#window.length(2) as r on l.key == r.key {PAIRS}",
    f"from a#window.time(2 sec) as l full outer join b#window.time(3 sec) as r on l.x < r.x {PAIRS}",
    "partition with (key of a) begin from every e1=a -> e2=b select e1.id as i, e2.id as j end",
    f"partition with (key of a) begin from a#window.length(2) as l join b#window.length(2) as r {PAIRS} end",
    "from a[x > 1] select id, t insert into c; from b select id, t insert into c; "
    "from every e1=c, e2=c select e1.id as i, e2.id as j",
    "from a[x > 1] select id, t insert into c; from a[x < 3] select id, t insert into c; "
    "from c#window.length(2) select id, sum(id) as s",
    "from a#window.timeBatch(3 sec) select t, count() as n insert into c; from b select t, x as n insert into c; "
    "from c#window.timeBatch(4 sec) select n, count() as m, sum(n) as s",
    "from every e1=a -> not b for 2 sec select e1.id as id, e1.t as t insert into c; "
    "from c#window.time(2 sec) select id, count() as n",
]


@pytest.mark.parametrize("query", TOGETHER)
@examples(25)
@given(arrivals("ab", late=False), cuts)
def test_queries_of_several_streams_do_not_depend_on_batching(query: str, records: Any, at: list[int]) -> None:
    whole = check_that_batches_do_not_matter(lambda cut: results(query, records, cut), at)
    assert results(query, records, at, moved=True) == whole


@pytest.mark.parametrize("cuts", [[], [2], [1, 2, 3]])
def test_records_of_one_time_are_in_the_order_of_their_streams(cuts: list[int]) -> None:
    sent = [("b", 0, 1), ("a", 1, 1), ("a", 2, 1), ("b", 3, 2)]
    records = [(stream, {"id": i, "key": "k", "x": 0, "t": t * SECOND, "u": 0}) for stream, i, t in sent]
    query = "from every e1=a, e2=b select e1.id as i, e2.id as j"
    assert results(query, records, cuts, lateness="0 s") == [{"i": 2, "j": 0}]


@pytest.mark.parametrize("take", ["all", 1, 5])
@pytest.mark.parametrize(
    ("window", "counts"), [("externalTimeBatch", [4, 4, 4]), ("externalTime", [1, 2, 3] + 9 * [4])]
)
def test_a_window_that_names_its_column_goes_by_no_other(take: Any, window: str, counts: list[int]) -> None:
    records = [{"t": (100 + 7 * i) * SECOND, "u": i * SECOND} for i in range(12)]
    flow = Flow("test")
    flow.read("read", Items(records, {"t": "time", "u": "time"})).event_time("a", "t")
    found = Collect()
    flow.query("q", f"from a#window.{window}(u, 4 sec) select count() as n").write("out", found)
    engine.run(flow, take=take)
    assert [row["n"] for row in found.records] == counts


def test_a_record_without_the_time_of_its_window_is_a_dead_letter() -> None:
    records: list[dict[str, Any]] = [{"u": 1 * SECOND}, {"u": None}, {"u": 2 * SECOND}]
    flow = Flow("test")
    found, dead = Collect(), Collect()
    flow.read("a", Items(records, {"u": "time"}))
    flow.query("q", "from a#window.externalTime(u, 4 sec) select count() as n").write("out", found)
    flow.dead_letters.write("dead", dead)
    engine.run(flow)
    assert [row["n"] for row in found.records] == [1, 2]
    assert [row["error"] for row in dead.records] == ["the time, 'u', is missing"]
