"""What a sink has done, asked for while it does more."""

import pickle
import sys
from threading import Thread

import numpy as np

from headwater.clock import now_ns
from headwater.operators.counters import Latencies


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
