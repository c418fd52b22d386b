"""Sources of several splits on Spark: none of them makes the records of another late."""

from collections import defaultdict

import pytest

from headwater.data.batch import END, Batch
from headwater.data.timestamps import micros
from headwater.spark.envelope import FIRST_SINK, LAST, Envelope, in_order
from headwater.spark.executor import Executor
from headwater.spark.stages import cut
from split_source import START, Splits, counted, hour_in, plainly


def test_a_backlog_of_several_splits_makes_nothing_late_from_one_micro_batch_to_the_next(tmp_path):
    rows, found, states = hour_in(), defaultdict(list), {}
    source = Splits(rows, run=3_000)
    layout = cut(counted(source, tmp_path / "out.jsonl"), 2)
    ranges = source.ranges(None)
    at = ranges.start()
    while not at["ended"]:
        start, at = at, ranges.advance(at)
        pieces = ranges.cut(start, at)
        came = defaultdict(list)
        for number, piece in enumerate(pieces):
            put_out = [(0, batch) for batch in ranges.batches(piece, pytest.fail)]
            if at["ended"] and number == len(pieces) - 1:
                put_out.append((0, Batch.of_watermark(END)))
            for bucket, target, _, frame in Executor(layout, layout.stages[0]).read(number, put_out):
                came[bucket].append((target, frame))
        for bucket, frames in came.items():
            executor = Executor(layout, layout.stages[1], bucket)
            if bucket in states:
                executor.load(states[bucket])
            for _, target, _, frame in executor.take(frames):
                batch = Envelope.unpack(frame).batch
                found[layout.sinks[target - FIRST_SINK]] += [] if batch is None else batch.rows()
            states[bucket] = executor.save()
    assert found["late"] == []
    counts = {
        (row["split"], (row["start"] - micros(START)) // 60_000_000): (row["n"], row["sum"]) for row in found["out"]
    }
    assert counts == plainly(rows)
    assert len(counts) == len(found["out"])


def told(split, *watermarks):
    return Envelope(0, 0, None, list(watermarks), split=split)


def test_time_has_come_as_far_as_the_last_of_the_splits_that_brought_something():
    envelopes = [told(0, (1, 10), (5, 90)), told(1, (7, 50)), told(1, (9, 60)), told(2)]
    assert in_order(envelopes).watermarks == [(LAST - 1, 60)]
    assert in_order([*envelopes, told(7, (LAST, END))]).watermarks == [(LAST - 1, 60), (LAST, END)]
    assert in_order([told(1, (7, 50)), told(1, (9, 60))]).watermarks == [(7, 50), (9, 60)]
    assert in_order([told(-1, (1, 90)), told(-1, (9, 60))]).watermarks == [(1, 90), (9, 60)]
    assert Envelope.unpack(told(3, (1, 2)).pack()).split == 3
