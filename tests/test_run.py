"""Whatever runs a flow hands out a run that is followed, stopped and aborted in the same way."""

import threading

import numpy as np
import pytest

from conservation import missing
from headwater import Flow, Profile, StepProfile, col, engine, io, sim
from headwater import net as nets
from headwater.place.from_flow import problem_of
from headwater.run import Run
from waiting import PATIENCE_S

RATE = 2000.0


def ticking() -> Flow:
    flow = Flow("ticking")
    ticks = flow.read("ticks", io.Generate(lambda n: {"n": n}, {"n": int}, RATE))
    ticks.filter("some", col.n >= 0).write("out", io.Discard())
    return flow


def on_engine(flow) -> Run:
    return engine.start(flow)


def on_threads(flow) -> Run:
    return engine.start(flow, on="threads")


def in_lanes(flow) -> Run:
    return engine.start(flow, lanes=2)


def simulated(flow) -> Run:
    costs = {"ticks": StepProfile(0.0), "some": StepProfile(1e-4), "out": StepProfile(1e-5)}
    net = nets.cloud_edge(1, 1, 2)
    problem = problem_of(flow, net, Profile(flow.name, net.classes[0].name, costs), RATE)
    # hours of virtual time, so that it is not over before it is stopped
    return sim.start(problem, np.zeros(3, np.int64), sim.EngineOptions(seconds=2000.0))


def on_spark(flow) -> Run:
    from headwater import spark

    return spark.start(flow)


RUNNERS = [on_engine, on_threads, in_lanes, simulated, pytest.param(on_spark, marks=pytest.mark.spark)]


@pytest.fixture(params=RUNNERS)
def start(request):
    if request.param is on_spark:
        request.getfixturevalue("spark")
    return request.param


def followed_until_it_reads(run):
    while (report := run.wait(0.02)) is None:
        if run.sample().records_in:
            return
    raise AssertionError(f"an endless source has ended: {report}")


def test_a_run_is_followed_and_stopped_in_order(start):
    flow = ticking()
    run = start(flow)
    followed_until_it_reads(run)
    run.stop()
    run.stop()  # once more does no harm
    report = run.wait(PATIENCE_S)
    assert report is not None
    assert report.error is None
    assert report.runner == run.runner
    assert report.flow == "ticking"
    assert report.left == 0
    assert report.last.records_out["out"] == report.last.records_in > 0
    assert missing(flow, report) == []
    assert run.sample().records_in == report.last.records_in  # and nothing is read after the end
    run.stop()
    assert run.wait().last.records_out == report.last.records_out


def test_an_aborted_run_ends_at_once_and_accounts_for_what_it_left(start):
    flow = ticking()
    run = start(flow)
    followed_until_it_reads(run)
    run.abort()
    report = run.wait(PATIENCE_S)
    assert report is not None
    assert report.left == sum(step.left for step in report.last.steps.values())
    if start is not on_spark:  # there, what a micro-batch had in hand is read again
        assert missing(flow, report) == []


def test_a_run_is_sampled_by_others_while_it_is_waited_for(start):
    run = start(ticking())
    seen = []

    def watch():
        while not seen or not seen[-1]:
            seen.append(run.sample().records_in)
        run.stop()

    watcher = threading.Thread(target=watch)
    watcher.start()
    report = run.wait(PATIENCE_S)
    watcher.join()
    assert report is not None
    assert report.last.records_in >= seen[-1]
    assert seen == sorted(seen)
