"""What a run on Spark tells of itself while somebody watches: rate, what waits, time to go."""

import json
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater import io
from headwater.flow.ranges import RangeRequest, Sizes, ranges_of
from headwater.spark.status_line import StatusLine, records_behind


class WatchedRun:
    """A run of which a test says how far it is."""

    def __init__(self, *shares, waiting=None):
        self.at_s, self.shares, self.waiting = 0.0, list(shares), waiting
        names = {str(number): lambda number=number: self.shares[number] for number in range(len(shares))}
        self._status_line = StatusLine("tanks", names, lambda: self.waiting, lambda: self.at_s)

    def told(self, at_s, records, watermark=None):
        self.at_s = at_s
        times = {} if watermark is None else {"time": watermark}
        return self._status_line.text(SimpleNamespace(records_in=records, watermarks_us=times))


def test_the_rate_is_that_of_the_last_seconds():
    run = WatchedRun(None)
    assert run.told(0, 0) == "tanks: 0 records, 0/s"
    assert run.told(5, 5_000) == "tanks: 5,000 records, 1,000/s"
    assert run.told(30, 30_000) == "tanks: 30,000 records, 0/s"  # of nothing before
    assert run.told(32, 34_000) == "tanks: 34,000 records, 2,000/s"


def test_of_files_it_is_told_how_long_they_will_take_by_the_one_that_is_furthest_behind():
    run = WatchedRun(0.5, 0.2)  # as an earlier run has left them
    assert run.told(0, 0).endswith("/s, 20%")
    run.shares = [0.9, 0.4]
    assert run.told(10, 100).endswith("/s, 40%, 30 s to go")


def test_where_one_source_has_no_end_nobody_knows_when_the_run_ends():
    run = WatchedRun(0.5, None, waiting=7)
    assert run.told(0, 0) == "tanks: 0 records, 0/s, 7 behind"


def test_event_time_is_told():
    assert WatchedRun(None).told(0, 0, watermark=1_000_000).endswith(", event time 1970-01-01T00:00:01.000000Z")


def test_java_and_disks_are_not_asked_at_every_look():
    run = WatchedRun(0.1, waiting=1)
    run.told(0, 0)
    run.waiting = 2
    assert ", 1 behind" in run.told(0.2, 0)
    assert ", 2 behind" in run.told(1.2, 0)


def test_what_waits_is_what_topics_hold_behind_what_was_read():
    topic = SimpleNamespace(latestOffset=json.dumps({"t": {"0": 9, "1": 5}}), endOffset=json.dumps({"t": {"0": 4}}))
    other = SimpleNamespace(latestOffset=json.dumps({"byte": 3}), endOffset="-")
    assert records_behind([topic, other]) == 10
    assert records_behind([other, SimpleNamespace(latestOffset=None, endOffset=None)]) is None


@pytest.fixture
def sources(tmp_path):
    (tmp_path / "n.jsonl").write_text('{"n": 1}\n' * 10)
    pq.write_table(pa.table({"n": range(10)}), tmp_path / "n.parquet")
    return {
        "lines": io.JsonLines(tmp_path / "n.jsonl", {"n": int}),
        "rows": io.Parquet(tmp_path / "n.parquet"),
        "numbers": io.Generate(lambda n: {"n": n}, {"n": int}, 1e9, count=10),
    }


@pytest.mark.parametrize("kind", ["lines", "rows", "numbers"])
def test_a_source_that_ends_tells_which_part_of_it_was_read(sources, kind):
    ranges = ranges_of(sources[kind], RangeRequest(Sizes(1, batch_bytes=45, batch_records=5)))
    at = ranges.start()
    shares = [ranges.share(at)]
    while not at["ended"]:
        at = ranges.advance(at)
        shares.append(ranges.share(at))
    assert sorted(set(shares)) == [0, 0.5, 1]


def test_numbers_without_end_tell_no_part():
    ranges = ranges_of(io.Generate(lambda n: {"n": n}, {"n": int}, 10), RangeRequest(Sizes(1)))
    assert ranges.share(ranges.start()) is None
