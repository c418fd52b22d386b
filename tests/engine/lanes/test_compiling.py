"""While one lane waits for kernels, sources that are read in other lanes know of it, and their clocks start anew."""

from __future__ import annotations

import multiprocessing
import os
import threading

import numpy as np
import pytest

from headwater import Flow, engine, io
from headwater.data.jit import COMPILED, kernel
from headwater.engine.lanes import compiling
from headwater.engine.lanes.compiling import SharedCompiling
from headwater.engine.lanes.share import ShareReader, shared
from headwater.flow.endpoints import clock_of
from headwater.operators import Operator
from slow_compiler import slow_compiler
from waiting import PATIENCE_S, wait_until

COUNT = 100_000


def test_every_lane_knows_what_another_waits_for_until_it_is_there_or_the_other_says_nothing_more(monkeypatch):
    shared_by_all = SharedCompiling(3)
    shared_by_all.tell(0, 0)
    assert shared_by_all.most() == 0
    shared_by_all.tell(1, 2)
    shared_by_all.tell(2, 5)
    assert shared_by_all.most() == 5
    shared_by_all.tell(2, 0)
    assert shared_by_all.most() == 2
    monkeypatch.setattr(compiling, "_HOLDS_S", 0)
    shared_by_all.tell(1, 2)
    assert shared_by_all.most() == 0


def test_the_clock_that_lanes_share_goes_on_from_now_for_all_of_them(monkeypatch):
    found = shared(io.Generate(lambda n: {"n": n}, {"n": int}, 100, count=1000))
    assert found is not None
    ranges, place = found
    now_ns = [10**18]
    monkeypatch.setattr(ranges, "_now_ns", lambda: now_ns[0])
    place.open()
    try:
        one, other = (ShareReader(ranges, place, lambda *_: None) for _ in range(2))
        one.read(10, 0.0)
        now_ns[0] += 200_000_000
        assert one.read(20, 0.0)["n"].tolist() == list(range(20))
        now_ns[0] += 10**9
        start_anew = clock_of(one)
        assert start_anew is not None
        start_anew()
        assert other.read(100, 0.0).length == 0  # as if no time had passed
        now_ns[0] += 30_000_000
        made = other.read(100, 0.0)
        assert made["n"].tolist() == [20, 21, 22]
        assert (now_ns[0] - made.stamps[:, 0]).tolist() == [20_000_000, 10_000_000, 0]
        assert made.watermark == 1  # no block was lost
    finally:
        place.close()


def test_a_file_has_no_clock_in_lanes_either(tmp_path):
    (tmp_path / "n.jsonl").write_text('{"n": 1}\n')
    found = shared(io.JsonLines(tmp_path / "n.jsonl", {"n": int}))
    assert found is not None
    assert clock_of(ShareReader(*found, lambda *_: None)) is None


@kernel
def twice(values):
    out = np.empty_like(values)
    for i in range(len(values)):
        out[i] = 2 * values[i]
    return out


class TwiceInLaneOne(Operator):
    """Needs its kernel in the other lane alone; this one goes on behind its first records when that one has asked for it."""

    here: int
    asked: threading.Event

    def __init__(self):
        self.batches = 0

    def process(self, batch, port):
        self.batches += 1
        if os.getpid() == self.here:
            if self.batches > 1:
                self.asked.wait(PATIENCE_S)
            batch.columns["n"] = batch.columns["n"] * 2
        else:
            batch.columns["n"] = twice(batch.columns["n"])
            self.asked.set()
        return batch


@pytest.fixture
def compiler(monkeypatch):
    """A compiler that is not done, in any lane, before it is told to be, and that nothing was compiled by before."""
    context = multiprocessing.get_context("fork")
    monkeypatch.setattr(TwiceInLaneOne, "here", os.getpid(), raising=False)
    monkeypatch.setattr(TwiceInLaneOne, "asked", context.Event(), raising=False)
    with slow_compiler(monkeypatch, twice, context.Event()) as done:
        yield done


@pytest.mark.skipif(not COMPILED, reason="nothing is compiled without Numba")
@pytest.mark.parametrize("kept", [False, True], ids=["each lane reads", "one lane reads"])
def test_a_generator_waits_for_what_another_lane_has_compiled(kept, compiler, caplog, tmp_path):
    flow, out = Flow("fast"), tmp_path / "out.jsonl"
    source = io.Generate(lambda n: {"n": n}, {"n": int}, 1e6, count=COUNT)
    flow.read("read", source).apply("twice", TwiceInLaneOne).write("keep", io.JsonLines(out))
    options = {"checkpoint": tmp_path / "state"} if kept else {}
    run = engine.start(flow, lanes=2, **options)
    wait_until(lambda: "source read waits until kernels are compiled" in caplog.text)
    assert 0 < run.sample().records_in < COUNT
    compiler.set()
    assert run.wait().last.records_in == COUNT
    assert sorted(int(line[5:-1]) for line in out.read_text().split("\n") if line) == list(range(0, 2 * COUNT, 2))
    (stopped_s,) = (source.compiling_s() for source in run._own.sources if source.task.name == "read")
    assert stopped_s > 0
