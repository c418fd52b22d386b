"""Queries that share streams: several insert into one, inner ones belong to a key, others go to every key of a partition.

What is expected here is what Siddhi 5.1.30 answered.
"""

from __future__ import annotations

import pytest
from played import SECOND, results

from headwater import Tumbling, agg, engine
from headwater.errors import QueryError
from headwater.flow import Flow
from headwater.io import Collect, Items
from one_by_one import OneByOne

SENT = [
    ("b", 0, "k", 1), ("a", 1, "k", 1), ("a", 2, "l", 1), ("b", 3, "k", 1), ("a", 4, "k", 2), ("b", 5, "m", 7),
    ("a", 6, "m", 7), ("b", 7, "l", 2),
]  # fmt: skip
RECORDS = [(stream, {"id": i, "key": key, "x": x, "t": (i + 1) * SECOND, "u": 0}) for stream, i, key, x in SENT]
PARTED = "partition with (key of a) begin {} end"


def answer(query: str, cuts: list[int]) -> list[list[object]]:
    return [list(row.values()) for row in results(query, RECORDS, cuts)]


@pytest.mark.parametrize("cuts", [[], [1, 2, 3, 4, 5, 6, 7], [4]])
@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("from a[x > 1] select id, key, t insert into o; from b select id, key, t insert into o", [0, 3, 4, 5, 6, 7]),
        (
            "from a select id, t insert into m; from m#window.length(10) select id, count() as n insert into o; "
            "from b select id, t insert into m; from o[n > 0] select id",
            [0, 1, 2, 3, 4, 5, 6, 7],
        ),
    ],
)
def test_several_queries_insert_into_one_stream(query: str, rows: list[int], cuts: list[int]) -> None:
    assert [row[0] for row in answer(query, cuts)] == rows


def test_what_several_queries_inserted_is_read_by_name() -> None:
    records = [{"x": 1}, {"x": -2}, {"x": 3}]
    flow, found = Flow("test"), Collect()
    flow.read("a", Items(records))
    query = "from a[x > 0] select x insert into signs; from a[x <= 0] select 0 - x as x insert into signs"
    flow.query("q", query).write("out", found)
    engine.run(flow)
    assert sorted(row["x"] for row in found.records) == [1, 2, 3]


@pytest.mark.parametrize("cuts", [[], [1, 2, 3, 4, 5, 6, 7], [4]])
@pytest.mark.parametrize(
    ("query", "rows"),
    [
        (
            "from every e1=a -> e2=b select e1.id as i, e1.key as k, e2.id as j",
            [[1, "k", 3], [2, "l", 3], [4, "k", 5], [6, "m", 7]],
        ),
        ("from every e1=b -> e2=a select e1.id as i, e2.key as k, e2.id as j", [[3, "k", 4]]),
        (
            "from a#window.length(2) as l join b#window.length(2) as r select l.id as i, r.id as j",
            [[1, 3], [2, 3], [4, 3], [1, 5], [4, 5], [2, 5], [1, 7], [4, 7], [2, 7], [6, 7]],
        ),
    ],
)
def test_a_stream_without_a_key_in_the_partition_goes_to_every_key(
    query: str, rows: list[object], cuts: list[int]
) -> None:
    assert answer(PARTED.format(query), cuts) == rows


@pytest.mark.parametrize("cuts", [[], [1, 2, 3, 4, 5, 6, 7], [4]])
def test_an_inner_stream_belongs_to_its_key(cuts: list[int]) -> None:
    inner = "from a select id, key, x, t insert into #m; from #m#window.length(5) select id, count() as n"
    assert sorted(answer(PARTED.format(inner), cuts)) == [[1, 1], [2, 1], [4, 2], [6, 1]]


WRONG = [
    (PARTED.format("from b select id"), "stream 'b' has no key in this partition"),
    (
        PARTED.format("from a select id, key insert into m; from m#window.length(5) select count() as n"),
        "add 'column of m' to it, write #m for a stream of each key, or take this query out of it",
    ),
    (PARTED.format("from a select id insert into #m; from #m select id"), "select 'key' too"),
    ("from a select id insert into #m; from a select id", "'#m', a stream of each key, belongs into a partition"),
    (PARTED.format("from a select id, key insert into #m") + "; from #m select id", "there is no stream '#m'"),
    (
        "from a select id insert into c; from b select x insert into c",
        "stream 'c' has the columns (id: int); this query gives (x: int)",
    ),
    ("from a select id insert into b; from b select id", "the flow has a stream 'b' already"),
    ("from c select id insert into c", "this query reads 'c', into which it inserts"),
    ("from c select id insert into d; from d select id insert into c", "queries read each other's results in a circle"),
    ("partition with (key of a, id of a, key of b) begin from a select id end", "name as many columns of each"),
]


@pytest.mark.parametrize(("query", "says"), WRONG)
def test_streams_that_do_not_fit_are_told(query: str, says: str) -> None:
    with pytest.raises(QueryError) as caught:
        results(query, RECORDS, [])
    assert says in str(caught.value)


def test_a_window_behind_a_batch_gets_each_result() -> None:
    rows = [{"key": "k" if i == 0 else "l", "t": i * SECOND} for i in range(12)]
    flow, out = Flow("behind"), Collect()
    flow.read("r", OneByOne(rows, {"key": str, "t": "time"})).event_time("a", "t")
    batches = flow.query("batches", "from a#window.timeBatch(5 sec) select key, t, count() as n group by key")
    # the result for k is as old as its last record, and comes when the batch ends
    batches.key_by("key").window("seconds", Tumbling("1 s"), n=agg.sum("n")).write("out", out)
    report = engine.run(flow)
    assert sorted((row["key"], row["start"] // SECOND, row["n"]) for row in out.records) == [
        ("k", 0, 1),
        ("l", 4, 4),
        ("l", 9, 5),
        ("l", 11, 2),
    ]
    assert not report.late
