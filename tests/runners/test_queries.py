"""The same query gives the same answers on both runners: windows, patterns, sequences, absence, joins."""

from __future__ import annotations

import random

import pytest
from both import RECORD_BY_RECORD, Made, assert_same, multiset

from headwater import col, engine, io
from headwater import spark as on_spark

pytest.importorskip("lark")

SCHEMA = {"kind": str, "id": int, "tank": str, "x": int, "at": "time"}

#: name → query over the streams `all`, `a` and `b`; those by tank run in as many places as there are buckets
QUERIES = {
    "filter": "from all[x > 3 and tank != 't0'] select tank, x * 2 as twice, id",
    "length": "from a#window.length(4) select tank, sum(x) as s, max(id) as last group by tank",
    "length batch": "from a#window.lengthBatch(5) select count() as n, avg(x) as mean, max(id) as last",
    "time": "from a#window.time(5 sec) select sum(x) as s, id",
    "time batch": "from a#window.timeBatch(4 sec) select sum(x) as s, count() as n",
    "pattern": "from every e1=a[x > 6] -> e2=b[x > e1.x] within 8 sec select e1.id as i, e2.id as j",
    "sequence": "from every e1=all[x > 5], e2=all[x < e1.x] select e1.id as i, e2.id as j",
    "counted": "from every e1=a<2:4> -> e2=b[x == 0] within 9 sec select e1[0].id as i, e2.id as j",
    "absence": "from every e1=a[x > 7] -> not b[x == e1.x] for 3 sec select e1.id as i",
    "join": "from a#window.time(3 sec) as l join b#window.time(3 sec) as r on l.x == r.x select l.id as i, r.id as j",
    "length by tank": "partition with (tank of a) begin from a#window.length(3) select tank, sum(x) as s, id end",
    "pattern by tank": (
        "partition with (tank of a, tank of b) begin from every e1=a[x > 4] -> e2=b[x < e1.x] within 9 sec "
        "select e1.tank as tank, e1.id as i, e2.id as j end"
    ),
    "sequence by tank": (
        "partition with (tank of all) begin from every e1=all, e2=all[x > e1.x] select e1.id as i, e2.id as j end"
    ),
    "pattern of all by tank": (
        "partition with (tank of all) begin from every e1=all[x > 4] -> e2=all[x < e1.x] within 3 sec "
        "select e1.tank as tank, e1.id as i, e2.id as j end"
    ),
    "absence by tank": (
        "partition with (tank of all) begin from every e1=all[x > 6] -> not all[x == e1.x] for 3 sec "
        "select e1.tank as tank, e1.id as i end"
    ),
    "chained": (
        "partition with (tank of a) begin from a#window.lengthBatch(3) select tank, sum(x) as s insert into sums end;"
        "from sums[s > 10] select tank, s"
    ),
    "one stream of two": (
        "from a[x > 5] select id, x, at insert into some; from b[x < 5] select id, x, at insert into some;"
        "from every e1=some, e2=some[x > e1.x] select e1.id as i, e2.id as j"
    ),
    "inner stream": (
        "partition with (tank of a) begin from a[x > 2] select tank, id, at insert into #some;"
        "from #some#window.length(3) select tank, sum(id) as s end"
    ),
}


#: Spark counts a record once per bucket that it goes to, so these are compared by what comes out alone
TO_ALL = {
    "to every tank": (
        "partition with (tank of a) begin from every e1=a[x > 4] -> e2=b[x < e1.x] "
        "select e1.tank as tank, e1.id as i, e2.id as j end"
    ),
}


def happenings(count, seed):
    draw = random.Random(seed)
    return [
        {
            "kind": draw.choice("ab"),
            "id": i,
            "tank": f"t{draw.randint(0, 3)}",
            "x": draw.randint(0, 9),
            "at": (i // 2) * 1_000_000 - draw.randint(0, 1_000_000) * (i > 3),
        }
        for i in range(count)
    ]


def queries(rows, texts=QUERIES):
    def build():
        made = Made("queries")
        read = made.flow.read("happenings", io.Items(rows, SCHEMA))
        all_ = read.event_time("all", "at", lateness="2 s")
        a, b = all_.split("sides", col.kind == "a")
        streams = {"all": all_, "a": a, "b": b}
        for name, text in texts.items():
            made.end(name, made.flow.query(name, text, streams=streams))
        return made

    return build


@pytest.mark.usefixtures("spark")
def test_queries_give_the_same_answers():
    _, got = assert_same(queries(happenings(400, seed=3)))
    assert all(got.values()), [name for name, rows in got.items() if not rows]


@pytest.mark.usefixtures("spark")
def test_a_stream_that_goes_to_every_key_gives_the_same_answers():
    expected, made = (queries(happenings(200, seed=4), TO_ALL)() for _ in range(2))
    engine.run(expected.flow, **RECORD_BY_RECORD)
    on_spark.run(made.flow)
    for name, sink in expected.sinks.items():
        assert sink.records
        assert multiset(made.sinks[name].records) == multiset(sink.records)
