"""The simulator ranks policies as the engine does."""

import numpy as np
import pytest

from headwater import sim
from headwater.bench.rehearsal import LEAST_STALLS, problem_of_topology, rank_correlation, simulated, stalls_here
from headwater.bench.topologies import topologies
from headwater.errors import RunError

#: p99 in ms that `headwater bench scheduler` measured, geometric mean over nine topologies and loads from 50 to 90 % of
#: capacity (docs/measurements.md)
MEASURED = {
    "threads": 116.9,
    "random": 20.9,
    "longest_queue": 16.6,
    "oldest_first": 15.6,
    "min_memory": 19.7,
    "min_latency": 19.2,
}
ENGINE, THREADS = sim.Costs(turn_s=12e-6, ride_s=1e-6), sim.Costs(turn_s=40e-6)


@pytest.fixture(scope="module")
def played() -> dict[str, float]:
    p99: dict[str, list[float]] = {config: [] for config in MEASURED}
    for topology in topologies():
        problem = problem_of_topology(topology)
        for load in (0.6, 0.7, 0.8, 0.9):
            for config, values in p99.items():
                costs = THREADS if config == "threads" else ENGINE
                report = simulated(problem, config, load * topology.capacity_hz(2), 0.45, 2, costs, LEAST_STALLS)
                values.append(report.last.latency.percentile(99) / 1e6)
    return {config: float(np.exp(np.mean(np.log(values)))) for config, values in p99.items()}


def test_the_simulator_ranks_configurations_as_they_were_measured(played):
    measured, simulated_p99 = ([of[config] for config in MEASURED] for of in (MEASURED, played))
    assert rank_correlation(measured, simulated_p99) >= 0.75


def test_first_and_last_are_those_that_were_measured(played):
    policies = {config: p99 for config, p99 in played.items() if config != "threads"}
    assert min(policies, key=policies.__getitem__) == "oldest_first"
    assert max(policies, key=policies.__getitem__) == "random"
    assert played["threads"] > 2 * max(policies.values())


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
