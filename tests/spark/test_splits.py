"""Sources of several splits on Spark: none of them makes the records of another late."""

import pytest

from headwater import spark as on_spark
from headwater.data.batch import END
from headwater.spark.envelope import LAST, Envelope, in_order
from split_source import Splits, counted, hour_in, lines, plainly, windows_in


@pytest.mark.parametrize("splits", [True, False])
def test_a_backlog_of_several_splits_makes_nothing_late(spark, tmp_path, splits):
    rows, out = hour_in(), tmp_path / "out.jsonl"
    source = Splits(rows, run=3_000)
    source.splits = splits
    on_spark.run(counted(source, out))
    if splits:
        assert lines(tmp_path / "late.jsonl") == []
        assert windows_in(out) == plainly(rows)
    else:
        assert len(lines(tmp_path / "late.jsonl")) > 5_000


def told(split, *watermarks):
    return Envelope(0, 0, None, list(watermarks), split=split)


def test_time_has_come_as_far_as_the_last_of_the_splits_that_brought_something():
    envelopes = [told(0, (1, 10), (5, 90)), told(1, (7, 50)), told(1, (9, 60)), told(2)]
    assert in_order(envelopes).watermarks == [(LAST - 1, 60)]
    assert in_order([*envelopes, told(7, (LAST, END))]).watermarks == [(LAST - 1, 60), (LAST, END)]
    assert in_order([told(1, (7, 50)), told(1, (9, 60))]).watermarks == [(7, 50), (9, 60)]
    assert in_order([told(-1, (1, 90)), told(-1, (9, 60))]).watermarks == [(1, 90), (9, 60)]
    assert Envelope.unpack(told(3, (1, 2)).pack()).split == 3
