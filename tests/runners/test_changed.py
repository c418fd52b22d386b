"""A flow with state whose steps were added, removed or renamed goes on on Spark from what it had kept."""

from __future__ import annotations

import json

import pytest

from headwater import Flow, col, io
from headwater import spark as on_spark
from headwater.deploy.takeover import take_over
from headwater.errors import RunError
from headwater.flow.ranges import Sizes

RECORDS = 2000
SMALL = Sizes(parallel=2, batch_bytes=3000, batch_records=100, piece_bytes=1000)


def counted(state, record):
    state = (state or 0) + 1
    return state, {"n": record["n"], "k": record["k"], "place": state}


def source(folder):
    return io.JsonLines(folder / "in.jsonl", {"n": int, "k": int})


def as_it_was(folder):
    flow = Flow("changing")
    read = flow.read("r", source(folder)).filter("all", col.n >= 0).key_by("k")
    places = read.process("count", counted, out={"n": int, "k": int, "place": int})
    places.write("out", io.JsonLines(folder / "out.jsonl"))
    read.process("old", counted, out={"n": int, "k": int, "place": int}).write("gone", io.Discard())
    return flow


def as_it_is(folder):
    """Without the filter and a step that counted, with a step and a sink that are new, and one under another name."""
    flow = Flow("changing")
    keyed = flow.read("r", source(folder)).key_by("k")
    places = keyed.process("places", counted, out={"n": int, "k": int, "place": int})
    places.write("out", io.JsonLines(folder / "out.jsonl"))
    keyed.process("new", counted, out={"n": int, "k": int, "place": int}).write(
        "more", io.JsonLines(folder / "more.jsonl")
    )
    return flow


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_changed_flow_goes_on_with_the_state_of_the_steps_that_it_still_has(spark, tmp_path):
    lines = (json.dumps({"n": n, "k": n % 5}) + "\n" for n in range(RECORDS))
    (tmp_path / "in.jsonl").write_text("".join(lines))
    first, second = tmp_path / "first", tmp_path / "second"
    running = on_spark.start(as_it_was(tmp_path), checkpoint=first, sizes=SMALL, buckets=2)
    while running.wait(0.02) is None and not running.sample().records_out.get("out"):
        pass
    running.stop()
    read = running.wait().last.records_in
    assert 0 < read < RECORDS

    was, now = as_it_was(tmp_path), as_it_is(tmp_path)
    with pytest.raises(RunError, match="had a step 'all' then"):
        on_spark.run(now, checkpoint=first)
    for given, why in [
        ({}, "one of Spark's already"),
        ({"was": was}, "state of 'count', 'old' would be lost"),
        ({"was": was, "renamed": {"count": "places"}}, "state of 'old' would be lost"),
        ({"was": was, "renamed": {"cuont": "places"}}, "had no step 'cuont'; did you mean 'count'"),
        ({"was": was, "renamed": {"count": "out"}}, "'out' is a source or a sink"),
        ({"renamed": {"count": "places"}}, "one of Spark's already"),
    ]:
        with pytest.raises(RunError, match=why):
            take_over(now, first, second, on="spark", **given)
    take_over(now, first, second, on="spark", was=was, renamed={"count": "places"}, allow_dropped_state=True, buckets=3)
    assert on_spark.run(now, checkpoint=second).last.records_in == RECORDS - read
    expected = sorted((n, n % 5, n // 5 + 1) for n in range(RECORDS))
    assert sorted((row["n"], row["k"], row["place"]) for row in rows(tmp_path / "out.jsonl")) == expected
    more = rows(tmp_path / "more.jsonl")
    assert sorted(row["n"] for row in more) == list(range(read, RECORDS))
    assert min(row["place"] for row in more) == 1  # it has begun empty
