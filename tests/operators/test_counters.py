"""What a sink has done, asked for while it does more."""

import pickle
import sys
from threading import Thread

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import Batch, Schema
from headwater.clock import now_ns
from headwater.data.batch import NO_WATERMARK
from headwater.histogram import Histogram, add_rows
from headwater.operators.counters import Counters, Latencies
from headwater.operators.kernels.ages import ages_at_once, tallied_ages
from headwater.operators.queue import QueueEntry


def test_latencies_may_be_asked_for_while_a_sink_writes():
    latencies, batches = Latencies(), 300_000
    stamps = np.zeros((1, 2), np.int64)
    broke = []

    def ask():
        while writing.is_alive():
            try:
                latencies.histograms()
            except Exception as error:
                broke.append(error)

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        writing = Thread(target=lambda: [latencies.arrived(stamps) for _ in range(batches)])
        asking = Thread(target=ask)
        writing.start()
        asking.start()
        writing.join()
        asking.join()
    finally:
        sys.setswitchinterval(usual)
    assert not broke


def test_stamps_of_large_batches_are_counted_while_they_are_few():
    latencies, most = Latencies(), 0
    for _ in range(100):  # too few to decide that batches come too fast to look at each
        latencies.arrived(np.zeros((3000, 2), np.int64))
        most = max(most, latencies.pending)
    assert 3000 < most < 20_000
    assert [histogram.count for histogram in latencies.histograms()] == [300_000, 300_000]
    assert latencies.pending == 0


def test_of_batches_that_come_too_fast_some_stand_for_all():
    latencies = Latencies()
    for _ in range(128 + 16 * 128):
        latencies.arrived(np.zeros((1, 2), np.int64))
        latencies._decided_ns = now_ns()  # as on a machine that takes no time
    assert latencies.histograms()[0].count == 128 + 16 * 128


def test_latencies_travel_with_the_task_that_counts_them():
    latencies = pickle.loads(pickle.dumps(Latencies()))
    latencies.arrived(np.zeros((3, 2), np.int64))
    assert latencies.histograms()[0].count == 3


@given(
    st.lists(st.lists(st.tuples(*[st.integers(0, 2**62)] * 2), max_size=40), min_size=1, max_size=5).filter(any),
    st.integers(0, 2**62),
)
def test_the_kernel_tallies_ages_as_the_histogram_does(batches, now):
    stamps = np.array([stamp for batch in batches for stamp in batch], np.int64)
    ends = np.cumsum([len(batch) for batch in batches])
    arrived = now + np.arange(len(batches)) * 1000
    histograms = Histogram(), Histogram()
    ages = np.repeat(arrived, [len(batch) for batch in batches]) - stamps.T
    add_rows(list(histograms), ages, times=3)
    for tally in (tallied_ages, ages_at_once):
        for row, expected in zip(tally(stamps, ends, arrived), histograms, strict=True):
            found = Histogram()
            found.add_tally(row, times=3)
            assert (found.count, found.total, found.largest) == (expected.count, expected.total, expected.largest)
            assert np.array_equal(found.buckets, expected.buckets)
    assert histograms[0].total == 3 * sum(max(1, int(age)) for age in ages[0])


@pytest.mark.parametrize("size", [10, 5_000])
def test_few_and_many_stamps_are_counted_alike(size):
    latencies = Latencies()
    stamps = np.full((size, 2), now_ns() - 5_000_000_000)
    latencies.arrived(stamps)
    latencies.arrived(stamps[:0])
    created, emitted = latencies.histograms()
    assert created.count == emitted.count == size
    assert 5e9 <= created.mean() <= 1e12
    assert np.array_equal(created.buckets, emitted.buckets)


def test_nothing_but_empty_batches_is_nothing():
    latencies = Latencies()
    latencies.arrived(np.zeros((0, 2), np.int64))
    assert latencies.histograms()[0].count == 0


def test_it_is_told_how_long_most_records_were_at_a_step_those_that_were_never_in_its_queue_too():
    counters, ms = Counters(0), 1_000_000
    batch = Batch.of_rows([{"x": 1}] * 90, Schema.of({"x": int}))
    counters.activated([QueueEntry(0, batch, NO_WATERMARK, 10 * ms, 90, 0, None)], 11 * ms, 12 * ms)
    told = counters.metrics("step", 20 * ms)
    assert told.time_ms(0.5) == pytest.approx(2, rel=0.05)
    counters.activated([QueueEntry(0, batch, NO_WATERMARK, 10 * ms, 9, 0, None)], 50 * ms, 60 * ms)
    counters.inlined(ms // 4, 1, times=16)
    later = counters.metrics("step", 60 * ms)
    assert [later.time_ms(share) for share in (0.1, 0.5, 0.99)] == pytest.approx([0.25, 2, 50], rel=0.05)
    assert later.since(told).time_ms(0.99) == pytest.approx(50, rel=0.05)
    assert sum(later.plus(told).times.values()) == 90 + 9 + 16 + 90
    assert Counters(0).metrics("idle", ms).to_json()["p99_ms"] is None
