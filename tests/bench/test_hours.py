"""`headwater bench hours`: whether anything grows in hours of event time, here in minutes."""

import csv

import pytest

from headwater_bench.experiments import hours
from headwater_bench.experiments.hours import Look


@pytest.mark.thorough
def test_minutes_of_event_time_are_looked_at(tmp_path):
    answer = hours.run(output=tmp_path, hours=0.005, seconds=1.5)
    assert answer["records"] >= 0.005 * 3600 * 20_000
    assert answer["checkpoints"] > 0
    assert answer["failed"] == 0
    with (tmp_path / "hours.csv").open() as file:
        assert len(list(csv.DictReader(file))) > 1
    assert "event_hours" in hours.table(answer)


@pytest.mark.parametrize(("last", "grown"), [(100.0, []), (150.0, ["rss_mb"])])
def test_what_is_larger_in_the_end_is_named(last, grown):
    looks = [Look(0.1 * n, 100.0 if n < 8 else last, 5, 9, 3, 1.0) for n in range(12)]
    assert hours._grown(looks) == grown
