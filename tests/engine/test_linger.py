"""Records that come by themselves gather for a few milliseconds; whatever can be read as fast as one likes is."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import Flow, engine, io
from headwater.clock import now_ns
from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.engine.linger import ALL, Linger
from headwater.engine.options import Options
from headwater.errors import HeadwaterError
from headwater.flow.endpoints import Reject

MS = 1_000_000


def read(linger: Linger, *, count: int, at: int, created: int, called: int | None = None, limit: int = 100) -> float:
    """Tell of a read that returned at a moment; return for how long the source is then left alone."""
    linger.read(limit, count, created, at if called is None else called, at)
    return linger.pause_s(at)


def live(linger_s: float = 0.01) -> Linger:
    linger = Linger(linger_s)
    read(linger, count=0, at=0, created=0)
    return linger


def test_a_record_that_came_by_itself_is_taken_at_once_and_the_next_ones_gather():
    assert read(live(), count=1, at=50 * MS, created=50 * MS) == pytest.approx(0.01)


def test_where_many_gather_they_wait_less_for_each_other():
    linger = Linger(0.015, 0.010)
    assert read(linger, count=10, limit=2000, at=50 * MS, created=49 * MS) == pytest.approx(0.015)
    assert read(linger, count=300, limit=2000, at=90 * MS, created=89 * MS) == pytest.approx(0.010)
    options, given = Options(), Options(linger="20 ms")
    assert (options.linger_s, options.busy_linger_s, options.least_linger_s) == (0.015, 0.010, 0.006)
    assert (given.linger_s, given.busy_linger_s, given.least_linger_s) == (0.02, 0.02, 0.02)


@pytest.mark.parametrize(
    ("rate_hz", "expected_s"), [(5_000, 0.015), (50_000, 0.010), (125_000, 0.008), (500_000, 0.006), (3_000_000, 0.006)]
)
def test_the_more_come_the_shorter_they_gather_and_it_settles(rate_hz, expected_s):
    """A flow that takes no time; a read hands out 2,000 at most."""
    linger, at, taken = Linger(0.015, 0.010, 0.006), 0, 0
    for _ in range(20):
        pause = 0.0
        while not pause:
            due = at * rate_hz // 10**9
            got = min(2000, due - taken)
            linger.read(2000, got, (taken + 1) * 10**9 // rate_hz, at, at)
            taken += got
            pause = linger.pause_s(at)
            at += 0 if got else MS
        at += round(pause * 1e9)
    assert pause == pytest.approx(expected_s, rel=0.02)


def test_what_was_read_in_several_pieces_gathered_together():
    linger = Linger(0.015, 0.010, 0.002)
    assert read(linger, count=2000, limit=2000, at=10 * MS, created=0) == 0
    assert read(linger, count=500, limit=2000, at=10 * MS, created=8 * MS) == pytest.approx(0.004)  # 1,000 of 2,500
    assert read(linger, count=500, limit=2000, at=20 * MS, created=16 * MS) == pytest.approx(
        0.008
    )  # a gathering of its own


def test_what_the_flow_did_meanwhile_counts():
    linger = live()
    linger.read(100, 1, 50 * MS, 50 * MS, 50 * MS)
    assert linger.pause_s(54 * MS) == pytest.approx(0.006)
    assert linger.pause_s(70 * MS) == 0


def test_a_source_with_more_than_was_asked_for_is_read_on():
    assert read(live(), count=100, at=50 * MS, created=49 * MS) == 0


def test_nothing_lingers_while_the_flow_is_behind():
    assert read(live(), count=5, at=50 * MS, created=20 * MS) == 0


def test_a_source_that_makes_records_when_asked_never_lingers():
    linger = Linger(0.01)
    for at in range(0, 100 * MS, MS):
        assert read(linger, count=7, called=at, created=at, at=at + 10) == 0
    assert not linger.comes_by_itself


def test_a_source_whose_records_were_there_before_they_were_asked_for_lingers():
    assert read(Linger(0.01), count=7, called=5 * MS, created=4 * MS, at=5 * MS) > 0


def test_without_linger_nothing_waits_and_chunks_grow_as_they_are_filled():
    linger = live(0.0)
    assert read(linger, count=1, at=50 * MS, created=50 * MS) == 0
    assert linger.next_chunk(256, 2000) == 256
    read(linger, count=256, limit=256, at=60 * MS, created=60 * MS)
    assert linger.next_chunk(256, 2000) == 512


def test_what_gathered_is_asked_for_at_once_as_far_as_a_queue_has_room():
    linger = Linger(0.015, 0.010, 0.006)
    read(linger, count=10, limit=256, at=50 * MS, created=49 * MS)
    assert linger.next_chunk(256, 2000) == ALL
    assert linger.next_chunk(256, 2000, room=5000) == 5000
    assert linger.next_chunk(256, 2000, room=100) == 2000
    assert linger.next_chunk(256, 16_000) == 16_000  # of lanes


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=200))
def test_a_source_is_read_at_most_once_in_the_time_to_linger_and_no_record_waits_longer(gaps_us):
    """Records come with these gaps; a flow that takes no time reads them as it is told."""
    created, now = [], 0
    for gap in gaps_us:
        now += gap * 1000
        created.append(now)
    linger, at, taken, reads = live(), 0, 0, []
    while taken < len(created):
        at = max(at, created[taken])
        got = sum(1 for moment in created[taken:] if moment <= at)
        reads.append(at)
        assert all(at - moment <= 10 * MS for moment in created[taken : taken + got])
        linger.read(2000, got, created[taken], at, at)
        taken += got
        at += round(linger.pause_s(at) * 1e9)
    assert all(later - earlier >= 10 * MS for earlier, later in pairwise(reads))


@pytest.mark.parametrize("runner", ["engine", "threads"])
def test_a_slow_stream_takes_few_activations(runner):
    def activations(linger: str) -> int:
        flow = Flow("slow")
        read = flow.read("read", io.Generate(lambda numbers: {"n": numbers}, {"n": int}, 2000, count=600))
        read.map("same", lambda record: record).write("write", kept := io.Collect())
        report = engine.run(flow, on=runner, linger=linger)
        assert [row["n"] for row in kept.records] == list(range(600))
        return report.last.steps["same"].activations

    assert activations("20 ms") <= 600 / 20


def test_a_file_is_read_without_a_pause(tmp_path, monkeypatch):
    path = tmp_path / "many.jsonl"
    path.write_text("".join(f'{{"n": {n}, "text": "{"x" * 500}"}}\n' for n in range(3000)))
    pauses = []
    pause_s = Linger.pause_s
    monkeypatch.setattr(Linger, "pause_s", lambda self, now_ns: pauses.append(pause_s(self, now_ns)) or pauses[-1])
    flow = Flow("file")
    flow.read("read", io.JsonLines(path, {"n": int, "text": str})).write("write", io.Discard())
    assert engine.run(flow).last.records_in == 3000
    assert pauses
    assert not any(pauses)


@pytest.mark.parametrize("linger", ["2 s", "5 parsecs", -1, 0.01])
def test_a_linger_that_makes_no_sense_is_refused(linger):
    with pytest.raises(HeadwaterError, match=r"linger|duration"):
        Options(linger=linger)


class Windowed:
    """A source whose sender has one record on its way at a time, and waits until it is committed."""

    def __init__(self, count: int, awaits_commit: bool) -> None:
        self.schema = Schema.of({"n": int})
        self.count, self.awaits_commit = count, awaits_commit
        self.position = self.committed = 0

    def open(self, reject: Reject) -> Windowed:
        return self

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        if self.position == self.count:
            return None
        if self.position > self.committed:
            return Batch.none(self.schema)
        self.position += 1
        return Batch.of({"n": [self.position]}, self.schema, created_ns=now_ns() - MS)

    def commit(self, position: int) -> None:
        self.committed = position

    def close(self) -> None:
        pass


def paused(monkeypatch: pytest.MonkeyPatch, source: Windowed) -> int:
    """Return how often a run left its source alone."""
    pauses: list[float] = []
    decide = Linger.pause_s

    def noted(self: Linger, now: int) -> float:
        pauses.append(decide(self, now))
        return 0.0

    flow = Flow("windowed")
    flow.read("in", source).write("out", io.Discard())
    with monkeypatch.context() as patched:
        patched.setattr(Linger, "pause_s", noted)
        report = engine.run(flow, linger="1 s")
    assert report.last.records_out["out"] == source.count
    return sum(pause > 0 for pause in pauses)


def test_a_sender_that_waits_for_a_commit_is_not_made_to_wait_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert paused(monkeypatch, Windowed(20, awaits_commit=True)) == 0
    assert paused(monkeypatch, Windowed(20, awaits_commit=False)) > 0
