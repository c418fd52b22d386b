"""A source that keeps its records until they are safe hears of it: when the flow has them in its own hands."""

import threading

from headwater import Flow, Schema, engine, io
from headwater.data.batch import Batch

SCHEMA = Schema.of({"n": int})


class Kept:
    """Holds its records until they are committed, as a broker does."""

    schema = SCHEMA
    resume = "sender"

    def __init__(self, count):
        self.count, self.position, self.said = count, 0, []

    def open(self, reject):
        return self

    def read(self, limit, timeout_s):
        assert self.said[-1] == self.position, "it was asked for more, and not told that the last are safe"
        taken = range(self.position, min(self.count, self.position + limit))
        self.position = taken.stop
        return Batch.of({"n": list(taken)}, SCHEMA) if taken else None

    def commit(self, position):
        self.said.append(position)

    def close(self):
        self.closed_at = self.said[-1]


def flow_of(source, sink):
    flow = Flow("kept")
    flow.read("in", source).write("out", sink)
    return flow


def test_what_the_flow_has_is_committed_before_more_is_read():
    source, out = Kept(500), io.Collect()
    engine.run(flow_of(source, out), chunk=10)
    assert source.said[0] == 0
    assert source.closed_at == 500
    assert [row["n"] for row in out.records] == list(range(500))


def test_what_a_run_that_is_aborted_had_in_hand_is_not_committed():
    class Aborting(Kept):
        def read(self, limit, timeout_s):
            batch = super().read(limit, timeout_s)
            if self.position >= 50:
                running.wait()
                run.abort()
            return batch

    source, running = Aborting(500), threading.Event()
    run = engine.start(flow_of(source, io.Discard()), chunk=10)
    running.set()
    run.wait()
    assert source.closed_at < source.position <= 500
