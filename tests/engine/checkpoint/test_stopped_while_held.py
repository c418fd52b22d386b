"""A run that is stopped while a full queue holds its source: the last checkpoint has what was in the source's hand."""

from __future__ import annotations

import time

import pytest

from headwater import Flow, engine, io
from headwater.data.batch import Batch
from headwater.data.schema import Schema
from waiting import PATIENCE_S


class Numbers:
    """Takes note of the numbers that come; nothing is undone when they come again."""

    writers = "one"
    delivery = "idempotent"
    apart = False

    def __init__(self) -> None:
        self.came: list[int] = []

    def open(self, schema: Schema) -> Numbers:
        return self

    def write(self, batch: Batch) -> None:
        self.came += [row["n"] for row in batch.rows()]

    def close(self) -> None:
        pass


@pytest.mark.parametrize("on", ["engine", "threads"])
def test_what_a_held_source_has_in_hand_is_not_read_again(tmp_path, on):
    def slow(batch):
        time.sleep(0.02)
        return batch

    sink = Numbers()
    for _ in range(3):
        flow = Flow("held")
        source = io.Generate(lambda n: {"n": n}, {"n": int}, rate=1e6)
        flow.read("numbers", source).map_batches("slow", slow).write("out", sink)
        running = engine.start(flow, on=on, queue_records=100, take=50, chunk=50, checkpoint=tmp_path, every="1 h")
        until = time.monotonic() + PATIENCE_S
        while not running.sample().backpressure_s and time.monotonic() < until:
            time.sleep(0.01)
        assert running.sample().backpressure_s > 0
        running.stop()
        report = running.wait(PATIENCE_S)
        assert report is not None
        assert report.left == 0
    assert sink.came == list(range(len(sink.came)))
