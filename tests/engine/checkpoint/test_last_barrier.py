"""Behind the last barrier of a source nothing comes: a step that waits for those of others would have it in its state."""

import json
import os
import signal
import threading
import time
from collections import Counter
from math import inf

import pytest

from headwater import Flow, Schema, engine, io
from headwater.data.batch import Batch
from waiting import wait_until

SIDES = ("left", "right")


class Numbers:
    """Hands out one number at a time; another source may have to have ended before that."""

    schema = Schema.of({"side": str, "n": int})
    resume = "position"

    def __init__(self, side):
        self.side, self.count, self.position = side, inf, 0
        self.waits = lambda: None

    def open(self, reject, position=None):
        self.position = position or 0
        return self

    def read(self, limit, timeout_s):
        self.waits()
        if self.position >= self.count:
            return None
        time.sleep(0.001)
        self.position += 1
        return Batch.of({"side": [self.side], "n": [self.position - 1]}, self.schema)

    def close(self):
        pass


def flow_of(sources, path):
    flow = Flow("both")
    left, right = (flow.read(name, source) for name, source in sources.items())
    both = left.union("union", right).key_by("n")
    both.process("seen", seen, out={"side": str, "n": int, "times": int}).write("out", io.JsonLines(path))
    return flow


def seen(state, record):
    state = {**(state or {}), record["side"]: (state or {}).get(record["side"], 0) + 1}
    return state, {**record, "times": state[record["side"]]}


def rows(path):
    return Counter(tuple(json.loads(line).values()) for line in path.read_text().splitlines())


def undisturbed(sources):
    return Counter((side, n, 1) for side, source in sources.items() for n in range(source.count))


def has_ended(side):
    return all(thread.name != f"read {side}" for thread in threading.enumerate())


class StoppedAmidALook(threading.Event):
    """Whether a run is to stop; told so, and its sources asked for the last barrier, right after the left one has looked."""

    def __init__(self, run):
        super().__init__()
        self.run, self.now = run, False

    def is_set(self):
        was = super().is_set()
        if self.now and not was and threading.current_thread().name == "read left":
            self.now = False
            self.run.stop()
            wait_until(lambda: self.run.checkpointer._stopping, "the last checkpoint")
            with self.run.lock:  # in which sources are asked
                return was
        return was


@pytest.mark.parametrize("on", ["engine", "threads"])
def test_nothing_is_handed_over_behind_the_last_barrier_though_a_source_looked_before_the_stop(tmp_path, on):
    sources = {side: Numbers(side) for side in SIDES}
    flow = flow_of(sources, tmp_path / "out.jsonl")
    run = engine.RUNNERS[on](flow, engine.Options(checkpoint=tmp_path / "kept", every="1 h"))
    run.stopping = StoppedAmidALook(run)
    run.start()
    wait_until(lambda: sources["left"].position > 10, "some records")
    sources["right"].waits = lambda: wait_until(lambda: has_ended("left"), "the end of the other source")
    run.stopping.now = True
    run.wait()
    for source in sources.values():
        source.count, source.waits = source.position + 10, lambda: None
    engine.run(flow, on=on, checkpoint=tmp_path / "kept")
    assert rows(tmp_path / "out.jsonl") == undisturbed(sources)


def test_nothing_is_handed_over_behind_the_last_barrier_though_lanes_that_start_again_are_not_told_to_stop(tmp_path):
    sources = {side: Numbers(side) for side in SIDES}
    left, right = sources.values()
    flow = flow_of(sources, tmp_path / "out.jsonl")
    run = engine.start(flow, lanes=2, checkpoint=tmp_path / "kept", every="20 ms")

    def stopped():
        run.stop()
        right.waits = lambda: wait_until(lambda: begun.is_set() and has_ended("left"), "the end of the other source")

    def back():
        wait_until(lambda: run._keeper._final, "the last checkpoint")
        begun.set()
        position = left.position
        wait_until(lambda: has_ended("left") or left.position > position + 20, "the end of the first source")

    begun, run.lanes_died, run.lanes_are_back = threading.Event(), stopped, back
    wait_until(lambda: run.report().extra["checkpoints"]["complete"], "a checkpoint")
    os.kill(run._children[0].pid, signal.SIGKILL)
    assert run.wait().extra["restarts"] == 1
    for source in sources.values():
        source.count, source.waits = source.position + 10, lambda: None
    engine.run(flow, lanes=3, checkpoint=tmp_path / "kept")
    assert rows(tmp_path / "out.jsonl") == undisturbed(sources)
