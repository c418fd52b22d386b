"""A micro-batch stays near the time that it should take while much waits, whatever the source is and how fast steps are."""

from __future__ import annotations

import pytest

from headwater import Flow, io
from headwater import spark as on_spark
from headwater.flow.ranges import RangeRequest, Sizes, ranges_of
from headwater.spark.sources.pace import Pace

LARGEST = 2**20


def played(target_s, speed, batches, waiting=10**9):
    """Read numbers that all wait; return how long each micro-batch takes at a speed, in records/s."""
    ranges = ranges_of(io.Generate(number, {"n": int}, 1000, count=waiting), RangeRequest(Sizes(2), at_once=True))
    pace, at, now, took = Pace(target_s), ranges.start(), 0.0, []
    for _ in range(batches):
        end = pace.advance(ranges, at, now)
        took.append((end["number"] - at["number"]) / speed(now))
        at, now = end, now + took[-1] + 0.001
    return took


def number(n):
    return {"n": n}


@pytest.mark.parametrize("records_s", [20_000, 50_000, 300_000])
def test_micro_batches_come_to_take_as_long_as_they_should(records_s):
    took = played(2.0, lambda now: records_s, 30)
    assert took[-1] == pytest.approx(2.0, rel=0.05)
    assert max(took[12:]) < 2.2


def test_where_steps_are_fast_a_micro_batch_reads_the_most_that_it_may():
    assert played(2.0, lambda now: 10**7, 20)[-1] == pytest.approx(LARGEST / 10**7)


def test_micro_batches_do_not_become_so_small_that_they_take_no_less_time():
    assert played(0.1, lambda now: 10_000, 20)[-1] == pytest.approx(LARGEST / 64 / 10_000)


def test_after_steps_became_slower_micro_batches_become_smaller():
    took = played(1.0, lambda now: 200_000 if now < 20 else 20_000, 80)
    assert took[-1] == pytest.approx(1.0, rel=0.05)


def test_what_comes_slowly_is_taken_at_once_and_changes_nothing():
    ranges = ranges_of(io.Generate(number, {"n": int}, 1000, count=1000), RangeRequest(Sizes(2), at_once=True))
    pace = Pace(2.0)
    first = pace.advance(ranges, ranges.start(), 0.0)
    assert first["number"] == 1000
    before = ranges.sizes
    pace.advance(ranges, first, 500.0)
    assert ranges.sizes == before


def test_a_run_that_keeps_near_a_time_reads_everything_in_order(spark, tmp_path):
    lines = "".join(f'{{"n":{n}}}\n' for n in range(3000))
    (tmp_path / "in.jsonl").write_text(lines)
    flow = Flow("paced")
    flow.read("numbers", io.JsonLines(tmp_path / "in.jsonl", {"n": int})).write(
        "out", io.JsonLines(tmp_path / "out.jsonl")
    )
    report = on_spark.run(flow, target="10 s", sizes=Sizes(2, batch_bytes=64_000, piece_bytes=8_000))
    assert report.extra["spark"]["batches"] > 2  # it begins with a sixteenth of what it may read
    assert (tmp_path / "out.jsonl").read_text() == lines
