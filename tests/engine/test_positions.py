"""A source that keeps its records until they are safe hears of it: when the flow has them in its own hands."""

import threading

import pytest

from headwater import Flow, Schema, engine, io
from headwater.data.batch import Batch
from headwater.errors import RunError

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


class Moving(Kept):
    """Its position is one object, which moves."""

    resume = "position"

    def __init__(self, count):
        super().__init__(count)
        self.position = {"n": 0}

    def open(self, reject, position=None):
        self.position = position or self.position
        return self

    def read(self, limit, timeout_s):
        taken = range(self.position["n"], min(self.count, self.position["n"] + limit))
        self.position["n"] = taken.stop
        return Batch.of({"n": list(taken)}, SCHEMA) if taken else None


def test_a_position_that_moves_is_kept_as_it_was():
    source = Moving(100)
    engine.run(flow_of(source, io.Discard()), chunk=10)
    told = [position["n"] for position in source.said]
    assert (told[0], told[-1]) == (0, 100)
    assert len(set(told)) > 2


def test_a_position_that_moves_loses_nothing_behind_a_checkpoint(tmp_path):
    class Breaking(Moving):
        breaks_at = 0

        def read(self, limit, timeout_s):
            if self.position["n"] >= self.breaks_at:
                raise ValueError("broken")
            return super().read(limit, timeout_s)

    def run(breaks_at):
        source = Breaking(300)
        source.breaks_at = breaks_at
        engine.run(flow_of(source, io.JsonLines(path)), chunk=10, checkpoint=tmp_path / "kept", every="1 ms")

    path = tmp_path / "out.jsonl"
    for breaks_at in (95, 195):
        with pytest.raises(RunError, match="source 'in' broke: ValueError: broken"):
            run(breaks_at)
    run(breaks_at=1000)
    assert path.read_text() == "".join(f'{{"n":{n}}}\n' for n in range(300))


def test_a_source_that_cannot_be_opened_is_named():
    class Locked(Kept):
        def open(self, reject):
            raise PermissionError("the device is in use")

    with pytest.raises(RunError, match="source 'in' cannot be opened: PermissionError: the device is in use"):
        engine.run(flow_of(Locked(1), io.Discard()))


def test_a_sink_that_cannot_be_opened_is_named():
    class Locked(io.Discard):
        def open(self, schema):
            raise PermissionError("the device is in use")

    with pytest.raises(RunError, match="sink 'out' cannot be opened: PermissionError: the device is in use"):
        engine.run(flow_of(Kept(1), Locked()))
