"""While kernels are being compiled, few records are on their way, and a source with a clock that would fall behind waits."""

from __future__ import annotations

import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import Flow, engine, io
from headwater.data.jit import COMPILED, kernel
from headwater.engine.options import Options
from headwater.engine.pace import FEW, FIRST, LATE_S, LONGEST_S, PROBE_S, Pace
from headwater.engine.scheduler.batch_size import UNCOMPILED
from headwater.engine.workers import WorkerPool
from headwater.operators import Operator
from slow_compiler import slow_compiler
from waiting import PATIENCE_S, wait_until

RUNNERS = ["engine", "threads"]
run_module = sys.modules[engine.EngineRun.__module__]  # `engine.run` is the function


def test_a_first_read_is_small_and_the_next_waits_until_it_is_through_or_compiled():
    pace = Pace(clocked=True)
    assert pace.most(False) == FIRST
    assert not pace.waits(False, idle=True, now_s=0.0)
    pace.read(0.0, compiling=False)
    assert pace.waits(False, idle=False, now_s=2.0)  # they may still show what there is to compile
    assert not pace.waits(False, idle=False, now_s=2.0 + PROBE_S)
    assert not pace.waits(False, idle=True, now_s=2.0)
    assert pace.waits(True, idle=False, now_s=2.0)


def test_a_source_without_a_clock_is_read_by_few_when_those_before_are_through():
    pace = Pace(clocked=False)
    assert pace.most(False) is None
    pace.read(5.0, compiling=False)
    assert not pace.waits(False, idle=False, now_s=1.0)
    assert pace.waits(True, idle=False, now_s=1.0)
    assert not pace.waits(True, idle=True, now_s=2.0)
    assert (pace.most(True), pace.most(False)) == (FEW, None)
    assert not pace.starts_anew(2.0)


def test_a_slow_source_with_a_clock_is_read_on_and_only_its_first_records_stop_the_clock():
    pace = Pace(clocked=True)
    pace.read(0.0, compiling=False)
    assert pace.waits(True, idle=False, now_s=1.0)
    assert not pace.waits(True, idle=True, now_s=1.5)
    assert pace.starts_anew(1.5)
    assert pace.stopped_s(9.0) == 0.5
    pace.read(LATE_S / 2, compiling=True)
    assert not pace.waits(True, idle=True, now_s=2.0)
    assert not pace.starts_anew(2.0)


def test_a_source_that_falls_behind_waits_until_all_is_compiled_and_its_clock_starts_anew():
    pace = Pace(clocked=True)
    for _ in range(2):
        pace.read(2 * LATE_S, compiling=True)
    assert pace.waits(True, idle=True, now_s=1.0)
    assert pace.waits(True, idle=True, now_s=5.0)
    assert pace.is_behind
    assert not pace.waits(False, idle=True, now_s=8.0)
    assert pace.starts_anew(8.0)
    assert not pace.starts_anew(8.0)
    assert (pace.stopped_s(9.0), pace.is_behind) == (7.0 + 2 * LATE_S, False)  # what it was late by is given back


LOOK = st.tuples(st.booleans(), st.floats(0, 10), st.booleans(), st.floats(0, 50))


@given(st.lists(LOOK, max_size=50), st.booleans())
def test_no_source_waits_for_long_while_nothing_is_compiled_nor_for_longer_than_that_in_all(looks, clocked):
    pace, now_s, stopped_s, in_vain_s = Pace(clocked=clocked), 0.0, 0.0, None
    for compiling, late_s, idle, passed_s in looks:
        now_s += passed_s
        if pace.waits(compiling, idle, now_s):
            assert stopped_s < LONGEST_S
            if not compiling:
                in_vain_s = now_s if in_vain_s is None else in_vain_s
                assert now_s - in_vain_s < PROBE_S
        else:
            pace.starts_anew(now_s)
            pace.read(late_s, compiling)
        assert pace.stopped_s(now_s) >= stopped_s
        stopped_s = pace.stopped_s(now_s)
    assert clocked or stopped_s == 0


@kernel
def twice(values):
    out = np.empty_like(values)
    for i in range(len(values)):
        out[i] = 2 * values[i]
    return out


class Twice(Operator):
    sizes: list[tuple[bool, int]]

    def process(self, batch, port):
        uncompiled = not vars(twice)["_loaded"]
        self.sizes.append((uncompiled, batch.length))
        if uncompiled:
            time.sleep(0.005)  # as long as kernels of real steps take
        batch.columns["n"] = twice(batch.columns["n"])
        return batch


@pytest.fixture
def compiler(monkeypatch):
    """A compiler that is not done before it is told to be, and that nothing was compiled by before."""
    monkeypatch.setattr(Twice, "sizes", [], raising=False)
    with slow_compiler(monkeypatch, twice, threading.Event()) as done:
        yield done


@pytest.mark.skipif(not COMPILED, reason="nothing is compiled without Numba")
@pytest.mark.parametrize("on", RUNNERS)
def test_a_generator_that_is_too_fast_for_uncompiled_kernels_waits_for_the_compiler(on, compiler, caplog):
    flow, kept = Flow("fast"), io.Collect()
    source = io.Generate(lambda n: {"n": n}, {"n": int}, 1e6, count=50_000)
    flow.read("read", source).apply("twice", Twice).write("keep", kept)
    run = engine.start(flow, on=on)
    wait_until(lambda: "source read waits until kernels are compiled, once on this machine" in caplog.text)
    assert 0 < run.sample().records_in < 50_000
    assert "being compiled, once on this machine" in run.status_line()
    compiler.set()
    run.wait()
    assert [row["n"] for row in kept.records] == list(range(0, 100_000, 2))
    assert max(size for uncompiled, size in Twice.sizes if uncompiled) <= UNCOMPILED
    assert max(size for _, size in Twice.sizes) > UNCOMPILED  # from then on


@pytest.mark.skipif(not COMPILED, reason="nothing is compiled without Numba")
@pytest.mark.parametrize("on", RUNNERS)
def test_a_file_is_read_on_uncompiled_with_few_records_on_their_way(on, compiler, tmp_path):
    (tmp_path / "n.csv").write_text("n\n" + "".join(f"{n}\n" for n in range(3000)))
    flow, kept = Flow("file"), io.Collect()
    flow.read("read", io.Csv(tmp_path / "n.csv", {"n": int})).apply("twice", Twice).write("keep", kept)
    engine.run(flow, on=on)  # ends, although nothing was compiled
    assert sum(row["n"] for row in kept.records) == 2999 * 3000
    assert max(size for _, size in Twice.sizes) <= UNCOMPILED


@pytest.mark.skipif(not COMPILED, reason="nothing is compiled without Numba")
@pytest.mark.parametrize("on", RUNNERS)
def test_a_step_does_not_hang_while_its_kernels_are_being_compiled(on, compiler, caplog):
    released = threading.Event()

    class Slow(Twice):
        def process(self, batch, port):
            made = super().process(batch, port)
            released.wait(PATIENCE_S)
            return made

    flow = Flow("slow")
    flow.read("read", io.Items([{"n": 1}])).apply("slow", Slow).write("keep", io.Discard())
    run = engine.start(flow, on=on, hang="20 ms", on_hang="stop")
    wait_until(lambda: "its kernels are still being compiled" in caplog.text)
    released.set()
    assert run.wait().left == 0
    assert caplog.text.count("step slow has been at the same 1 records") == 1


def test_while_a_clock_is_stopped_just_before_the_end_no_more_samples_are_kept_than_otherwise(monkeypatch):
    flow = Flow("late")
    flow.read("read", io.Items([{"n": 1}])).write("keep", io.Discard())
    run, now, looks = WorkerPool(flow, Options(seconds=5.0)), SimpleNamespace(s=0.0), []

    def wait(seconds):
        now.s += seconds
        looks.append(seconds)
        return run.stopping.is_set()

    monkeypatch.setattr(run_module, "time", SimpleNamespace(monotonic=lambda: now.s))
    monkeypatch.setattr(run, "done", SimpleNamespace(wait=wait))
    monkeypatch.setattr(run, "_reading_s", lambda: now.s if now.s < 4.9995 else max(4.9995, now.s - 60.0))
    monkeypatch.setattr(run, "sample", lambda: now.s)
    monkeypatch.setattr(run, "stop", run.stopping.set)
    run._watch()
    kept = list(run.samples)
    assert 60 <= len(kept) <= 66  # one each second, and one at the end
    assert min(looks) >= 0.001
    assert len(looks) < 60 / run_module._AGAIN_S + 100
    assert 65.0 <= kept[-1] < 65.0 + 2 * run_module._AGAIN_S
    run._close()
