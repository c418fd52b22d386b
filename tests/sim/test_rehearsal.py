"""The simulator ranks policies as the engine does."""

import numpy as np
import pytest

from headwater import sim
from headwater.errors import RunError
from headwater_bench.experiments.rehearsal import (
    LEAST_STALLS,
    problem_of_topology,
    rank_correlation,
    simulated,
    stalls_here,
)
from headwater_bench.experiments.topologies import topologies

#: p99 in ms that one run of the trials of `headwater bench scheduler` measured on two quiet cores, geometric mean over nine
#: topologies, at 65 % of capacity and at 80 and 90 % (docs/diary.md)
MEASURED = {
    "below": {
        "threads": 37.0,
        "random": 18.6,
        "min_memory": 12.9,
        "longest_queue": 11.2,
        "oldest_first": 10.2,
        "min_latency": 9.3,
    },
    "near": {
        "threads": 280.9,
        "random": 42.4,
        "min_memory": 31.6,
        "oldest_first": 30.3,
        "min_latency": 29.7,
        "longest_queue": 29.5,
    },
}
LOADS = {"below": (0.65,), "near": (0.8, 0.9)}
ENGINE, THREADS = sim.Costs(activation_s=12e-6, inline_s=1e-6), sim.Costs(activation_s=40e-6)


#: those that look at what waits; with activations that take all of it they differ little
KNOWING = ("longest_queue", "min_memory", "min_latency", "oldest_first")


@pytest.fixture(scope="module", params=LOADS)
def ranked(request) -> tuple[dict[str, float], dict[str, float]]:
    """What was measured in a region of load, and what the simulator says."""
    measured = MEASURED[request.param]
    p99: dict[str, list[float]] = {config: [] for config in measured}
    for topology in topologies(sizes=(10, 20)):
        problem = problem_of_topology(topology)
        for load in LOADS[request.param]:
            for config, values in p99.items():
                costs = THREADS if config == "threads" else ENGINE
                report = simulated(problem, config, load * topology.capacity_hz(2), 0.8, 2, costs, LEAST_STALLS)
                values.append(report.last.latency.percentile(99) / 1e6)
    return measured, {config: float(np.exp(np.mean(np.log(values)))) for config, values in p99.items()}


@pytest.mark.thorough
def test_a_thread_for_each_step_is_far_behind_as_was_measured(ranked):
    for p99 in ranked:
        assert p99["threads"] > 1.5 * max(p99[config] for config in KNOWING)


@pytest.mark.thorough
def test_who_serves_by_lot_is_behind_who_looks_at_the_queues_as_was_measured(ranked):
    for p99 in ranked:
        assert p99["random"] > max(p99[config] for config in KNOWING)


@pytest.mark.thorough
def test_those_that_look_at_the_queues_are_near_each_other_as_was_measured(ranked):
    for p99 in ranked:
        assert max(p99[config] for config in KNOWING) < 1.4 * min(p99[config] for config in KNOWING)


def test_equal_values_share_a_rank():
    assert rank_correlation([1, 2, 3, 4], [1, 2, 3, 4]) == 1
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == -1
    assert rank_correlation([1, 1, 2], [5, 5, 9]) == 1
    assert rank_correlation([1, 1], [1, 2]) is None


def test_this_machine_has_some_share_of_its_cores():
    stalls, share = stalls_here(1)
    assert 0 <= share <= 1
    assert stalls.length_s < stalls.every_s


def test_stalls_stretch_work_by_as_much_as_they_take():
    from tests.sim.test_engine import chain

    problem = chain([0, 4e-4], rate=10.0)
    quiet, stalled = (
        sim.run_engine(
            problem, np.zeros(2, int), sim.EngineOptions(seconds=20.0, arrivals=sim.Constant(), stalls=stalls, seed=3)
        )
        for stalls in (None, sim.Stalls(every_s=0.02, length_s=0.01))
    )
    assert stalled.last.records_out == quiet.last.records_out
    # a record meets a stall with even odds and then waits for half of it, and may meet one more while it is served
    assert stalled.extra["mean_latency_s"]["s1"] == pytest.approx(4e-4 + 0.5 * 0.005 + 4e-4, rel=0.25)


def test_a_stall_must_be_shorter_than_the_time_between_two():
    with pytest.raises(RunError, match="must be shorter"):
        sim.Stalls(every_s=0.01, length_s=0.02)
