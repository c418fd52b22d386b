"""What a sink has done, asked for while it does more."""

import pickle
import sys
from threading import Thread

import numpy as np

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


def test_latencies_travel_with_the_task_that_counts_them():
    latencies = pickle.loads(pickle.dumps(Latencies()))
    latencies.arrived(np.zeros((3, 2), np.int64))
    assert latencies.histograms()[0].count == 3
