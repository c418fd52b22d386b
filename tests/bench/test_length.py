from __future__ import annotations

import csv

import numpy as np
import pytest

from headwater.data.batch import Batch, stamped
from headwater.data.schema import Schema
from headwater.errors import RunError
from headwater_bench.experiments import length


@pytest.mark.thorough
def test_the_curve_has_a_point_for_every_mark_and_is_written_and_drawn(tmp_path):
    answer = length.run(output=tmp_path, flows=["pred"], times=10)
    assert answer["pred"]["messages"] == [3162, 10_000]
    assert all(cost > 0 for cost in answer["pred"]["cost_us"])
    assert all(rss > 10 for rss in answer["pred"]["rss_mb"])
    with (tmp_path / "length.csv").open() as lines:
        assert [row["message"] for row in csv.DictReader(lines)] == ["3162", "10000"]
    assert (tmp_path / "length.png").stat().st_size > 1000
    assert "10,000" in length.table(answer)


def test_the_watch_looks_once_for_each_place_in_order():
    watch = length.Watch([2, 5, 6])
    writer = watch.open(Schema.of({"msg": int}))
    for numbers in ([0, 1], [2, 3], [4], [5, 9], [10]):
        writer.write(Batch({"msg": np.array(numbers)}, len(numbers), stamped(len(numbers))))
    assert [place for place, _, _ in watch.readings] == [2, 5, 6]
    assert [cpu for _, cpu, _ in watch.readings] == sorted(cpu for _, cpu, _ in watch.readings)


def test_what_cannot_be_measured_is_named():
    with pytest.raises(RunError, match=r"there is no flow 'train'; known are"):
        length.run(flows=["train"])
    with pytest.raises(RunError, match="at least 10 times as long; got 2"):
        length.run(times=2)
