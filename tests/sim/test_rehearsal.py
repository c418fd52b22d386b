"""The simulator ranks policies as the engine does."""

import numpy as np
import pytest

from headwater import sim
from headwater.bench.rehearsal import LEAST_STALLS, problem_of_topology, rank_correlation, simulated, stalls_here
from headwater.bench.topologies import topologies
from headwater.errors import RunError

#: p99 in ms that two runs of `headwater bench scheduler` measured, geometric mean over nine topologies, at 60 to 75 % of
#: capacity and at 80 to 90 % (docs/diary.md)
MEASURED = {
    "below": {
        "threads": 178.0,
        "random": 11.9,
        "longest_queue": 11.6,
        "min_memory": 11.6,
        "min_latency": 10.6,
        "oldest_first": 9.1,
    },
    "near": {
        "threads": 173.6,
        "min_memory": 61.8,
        "min_latency": 50.8,
        "random": 46.8,
        "oldest_first": 46.0,
        "longest_queue": 38.0,
    },
}
LOADS = {"below": (0.6, 0.7), "near": (0.9,)}
ENGINE, THREADS = sim.Costs(turn_s=12e-6, ride_s=1e-6), sim.Costs(turn_s=40e-6)


@pytest.fixture(scope="module", params=LOADS)
def ranked(request) -> tuple[dict[str, float], dict[str, float]]:
    """What was measured in a region of load, and what the simulator says."""
    measured = MEASURED[request.param]
    p99: dict[str, list[float]] = {config: [] for config in measured}
    for topology in topologies():
        problem = problem_of_topology(topology)
        for load in LOADS[request.param]:
            for config, values in p99.items():
                costs = THREADS if config == "threads" else ENGINE
                report = simulated(problem, config, load * topology.capacity_hz(2), 0.45, 2, costs, LEAST_STALLS)
                values.append(report.last.latency.percentile(99) / 1e6)
    return measured, {config: float(np.exp(np.mean(np.log(values)))) for config, values in p99.items()}


def test_the_simulator_ranks_configurations_as_they_were_measured(ranked):
    measured, played = ranked
    assert rank_correlation([measured[config] for config in measured], [played[config] for config in measured]) >= 0.8


def test_what_is_best_is_what_was_measured_to_be_best(ranked):
    measured, played = ranked
    assert min(played, key=played.__getitem__) == min(measured, key=measured.__getitem__)


def test_a_thread_for_each_step_is_far_behind(ranked):
    _, played = ranked
    assert played["threads"] > 2 * max(p99 for config, p99 in played.items() if config != "threads")


def test_without_stalls_policies_are_all_alike_below_capacity():
    # what tells policies apart is how they work a backlog off, so without one there is little to rank
    topology = next(t for t in topologies() if t.name == "chain of 10")
    problem, rate_hz = problem_of_topology(topology), 0.6 * topology.capacity_hz(2)
    rare = sim.Stalls(every_s=1e6, length_s=0.0)
    p99 = [
        simulated(problem, config, rate_hz, 0.3, 2, ENGINE, rare).last.latency.percentile(99)
        for config in ("longest_queue", "min_latency")
    ]
    assert p99[0] == pytest.approx(p99[1], rel=0.05)


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
