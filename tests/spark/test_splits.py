"""Sources of several splits on Spark: none of them makes the records of another late."""

import json
from collections import defaultdict
from itertools import pairwise

import pytest

from headwater import io
from headwater import spark as on_spark
from headwater.data.batch import END, Batch
from headwater.data.schema import Schema
from headwater.data.timestamps import micros
from headwater.errors import FlowError
from headwater.flow.ranges import Ranges
from headwater.spark.envelope import FIRST_SINK, LAST, Envelope, OfSplit, in_order
from headwater.spark.executor import Executor
from headwater.spark.finite import FiniteRun
from headwater.spark.sources.data_source import tasks_of
from headwater.spark.stages import cut
from split_source import START, SplitRanges, Splits, counted, hour_in, lines, plainly, windows_in

ORDERS = pytest.mark.parametrize("in_order", [False, True], ids=["splits side by side", "one split after the other"])
#: of which one after the other is shown without Spark
ORDERS_ON_SPARK = pytest.mark.parametrize("in_order", [False, pytest.param(True, marks=pytest.mark.thorough)])


class Logged(Splits):  # type: ignore[misc]  # it is not typed
    """One that the driver reads."""

    ranges = None


class MuteRanges(SplitRanges):  # type: ignore[misc]  # it is not typed
    """Ranges that do not say which split they are of."""

    split_of = Ranges.split_of


class Mute(Splits):  # type: ignore[misc]  # it is not typed
    def ranges(self, wanted):
        return MuteRanges(self)


@ORDERS
def test_a_backlog_of_several_splits_makes_nothing_late_from_one_micro_batch_to_the_next(tmp_path, in_order):
    rows, found, states = hour_in(), defaultdict(list), {}
    source = Splits(rows, run=3_000, in_order=in_order)
    layout = cut(counted(source, tmp_path / "out.jsonl"), 2)
    ranges = source.ranges(None)
    at = ranges.start()
    while not at["ended"]:
        start, at = at, ranges.advance(at)
        came = defaultdict(list)
        for number, piece, ends, split in tasks_of(ranges, at, ranges.cut(start, at), ends=at["ended"]):
            put_out = [(0, batch) for batch in ranges.batches(piece, pytest.fail)]
            put_out += [(0, Batch.of_watermark(END))] if ends else []
            for bucket, target, _, frame in Executor(layout, layout.stages[0]).read(number, put_out, split):
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


@ORDERS_ON_SPARK
def test_a_backlog_of_several_splits_makes_nothing_late_in_a_finite_run_on_spark(spark, tmp_path, in_order):
    rows, out = hour_in(), tmp_path / "out.jsonl"
    run = on_spark.start(counted(Splits(rows, run=3_000, in_order=in_order), out))
    assert isinstance(run, FiniteRun)
    report = run.wait()
    assert lines(tmp_path / "late.jsonl") == []
    assert windows_in(out) == plainly(rows)
    assert report.extra["spark"]["batches"] > 2


@ORDERS_ON_SPARK
def test_a_backlog_of_several_splits_makes_nothing_late_in_a_stream_on_spark(spark, tmp_path, in_order):
    rows, out = hour_in(), tmp_path / "out.jsonl"
    flow = counted(Splits(rows, run=3_000, in_order=in_order), out)
    report = on_spark.run(flow, checkpoint=tmp_path / "checkpoint")
    assert lines(tmp_path / "late.jsonl") == []
    assert windows_in(out) == plainly(rows)
    assert report.extra["spark"]["batches"] > 2


@pytest.mark.parametrize("available_now", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_a_backlog_of_several_splits_makes_nothing_late_where_the_driver_reads_them_on_spark(
    spark, tmp_path, available_now
):
    rows, out = hour_in(), tmp_path / "out.jsonl"
    flow = counted(Logged(rows, run=5_000, ends=not available_now), out)
    on_spark.run(flow, checkpoint=tmp_path / "checkpoint", available_now=available_now)
    assert lines(tmp_path / "late.jsonl") == []
    assert windows_in(out) == plainly(rows)


@pytest.mark.parametrize("kept", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_files_that_follow_each_other_make_nothing_late_though_spark_reads_the_largest_first_on_spark(
    spark, tmp_path, kept
):
    rows, out, table = hour_in(splits=1), tmp_path / "out.jsonl", tmp_path / "table"
    table.mkdir()
    edges = (0, 2_000, 6_000, 12_000, 20_000)
    for number, (start, stop) in enumerate(pairwise(edges)):
        texts = [json.dumps({**row, "at": row["at"].isoformat()}) for row in rows[0][start:stop]]
        (table / f"{number}.json").write_text("\n".join(texts) + "\n")
    schema = {"at": "time", "split": int, "n": int, "value": float}
    flow = counted(io.SparkTable(str(table), schema, form="json"), out)
    on_spark.run(flow, **({"checkpoint": tmp_path / "checkpoint"} if kept else {}))
    assert lines(tmp_path / "late.jsonl") == []
    assert windows_in(out) == plainly(rows)


def test_ranges_that_do_not_say_which_split_they_are_of_are_refused(tmp_path):
    with pytest.raises(FlowError, match=r"MuteRanges, .* does not say which split a piece is of"):
        on_spark.run(counted(Mute(hour_in()), tmp_path / "out.jsonl"))


def told(split, *watermarks, behind=()):
    return Envelope(0, 0, None, list(watermarks), split=None if split is None else OfSplit(split, behind))


def test_time_has_come_as_far_as_the_last_of_the_splits_that_brought_something():
    envelopes = [told(0, (1, 10), (5, 90)), told(1, (7, 50)), told(1, (9, 60)), told(2)]
    assert in_order(envelopes).watermarks == [(LAST - 1, 60)]
    assert in_order([*envelopes, told(7, (LAST, END))]).watermarks == [(LAST - 1, 60), (LAST, END)]
    assert in_order([told(1, (7, 50)), told(1, (9, 60))]).watermarks == [(7, 50), (9, 60)]
    assert in_order([told(None, (1, 90)), told(None, (9, 60))]).watermarks == [(1, 90), (9, 60)]


def test_time_waits_for_a_split_that_holds_more_and_did_not_tell():
    assert in_order([told("a", (1, 10), behind=("a", "b"))]).watermarks == []
    assert in_order([told(0, (1, 10), behind=(2,)), told(1, (2, 20), behind=(2,))]).watermarks == []
    assert in_order([told(0, (1, 10), behind=(2,)), told(None, (LAST, END))]).watermarks == [(LAST, END)]
    assert in_order([told(0, (1, 10), behind=(0, 2)), told(2, (2, 20), behind=(0, 2))]).watermarks == [(LAST - 1, 10)]
    assert Envelope.unpack(told(3, (1, 2), behind=(3, 4)).pack()).split == OfSplit(3, (3, 4))
    assert Envelope.unpack(told(None, (1, 2)).pack()).split is None


def test_what_comes_out_of_an_envelope_can_be_written():
    sent = Batch.of({"n": [1, 2]}, Schema.of({"n": int}))
    came = Envelope.unpack(Envelope(0, 1, sent, []).pack()).batch
    assert came is not None
    came["n"][0], came.stamps[1] = 5, 7
    assert (came["n"].tolist(), came.stamps[1].tolist()) == ([5, 2], [7, 7])
