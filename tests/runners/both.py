"""Runs the same flow on the engine and on Spark and compares what every sink got."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

from headwater import Flow, engine, io
from headwater import spark as on_spark
from headwater.flow.ranges import Sizes

#: so little at once that a few hundred records make several micro-batches of several pieces
SMALL = Sizes(parallel=2, batch_bytes=2**13, batch_records=150, piece_bytes=2**11, piece_records=40)

#: each record to its end before the next: what comes out depends on the records alone, and not on who was faster
RECORD_BY_RECORD = {"workers": 1, "take": 1, "chunk": 1, "policy": "min_latency"}


class Made:
    """A flow under construction whose streams end in sinks that remember."""

    def __init__(self, name):
        self.flow, self.sinks, self.keys = Flow(name), {}, {}

    def end(self, name, stream, *keys):
        """Write a stream; its order is compared within each of `keys`, and not at all if there are none."""
        self.sinks[name], self.keys[name] = io.Collect(), keys
        stream.write(f"{name} end", self.sinks[name])


def assert_same(build: Callable[[], Made], **options):
    """Run on both; return Spark's report and the records that each sink got."""
    expected, made = build(), build()
    theirs = engine.run(expected.flow, **RECORD_BY_RECORD)
    report = on_spark.run(made.flow, **options)
    for name, sink in made.sinks.items():
        wanted, got = expected.sinks[name].records, sink.records
        assert multiset(got) == multiset(wanted), name
        if made.keys[name]:
            assert by_key(got, made.keys[name]) == by_key(wanted, made.keys[name]), name
    assert report.dead_letters == theirs.dead_letters
    assert report.last.records_in == theirs.last.records_in
    assert report.last.records_out == theirs.last.records_out
    for name, step in theirs.last.steps.items():
        mine = report.last.steps[name]
        for count in ("records_in", "records_out", "dead_letters", "late", "outs"):
            assert getattr(mine, count) == getattr(step, count), (name, count)
    assert report.to_json().keys() - {"spark"} == theirs.to_json().keys() - {"workers"}
    return report, {name: sink.records for name, sink in made.sinks.items()}


def multiset(rows):
    return Counter(repr(sorted(row.items())) for row in rows)


def by_key(rows, keys):
    kept = defaultdict(list)
    for row in rows:
        kept[tuple(row[key] for key in keys)].append(repr(row))
    return kept
