"""The simulator that drives the engine's own scheduler."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater.sim.site
from headwater import net as nets
from headwater import sim
from headwater.engine.policy import POLICIES
from headwater.errors import RunError
from headwater.place.problem import Model, Problem
from properties import examples
from recorder import Recorder

NET = nets.cloud_edge(1, 1, 2)


def chain(service, rate=1000.0, ratios=None) -> Problem:
    n = len(service)
    rates = np.cumprod([rate, *(ratios or [1.0] * (n - 1))])
    return Problem(
        "chain",
        NET,
        Model.QUEUE,
        tuple(f"s{i}" for i in range(n)),
        np.repeat(np.array(service)[:, None], 3, axis=1),
        rates,
        np.arange(n - 1),
        np.arange(1, n),
        rates[1:],
        np.full(n - 1, 100.0),
        np.full(n, -1),
    )


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_what_it_decides_is_decided_alike_without_it(policy, monkeypatch):
    made = []
    monkeypatch.setattr(
        headwater.sim.site, "Scheduler", lambda *args, **how: made.append(Recorder(*args, **how)) or made[-1]
    )
    costs = [0, 2e-5, 1e-4, 5e-6, 3e-4]
    sim.run_engine(chain(costs, rate=0.9 / sum(costs)), np.zeros(5, int), sim.EngineOptions(seconds=0.2, policy=policy))
    (recorder,) = made
    assert len(recorder.trace) > 50
    assert recorder.replayed() == recorder.trace


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_loses_or_doubles_a_record(policy):
    report = sim.run_engine(
        chain([0, 2e-4, 3e-4, 1e-4]),
        np.zeros(4, int),
        sim.EngineOptions(seconds=2.0, policy=policy, queue_records=50),
    )
    assert report.last.records_out["s3"] == report.last.records_in
    assert report.last.steps["s2"].records_in == report.last.records_in


@given(seed=st.integers(0, 1000))
@examples(10)
def test_the_same_seed_gives_the_same_run(seed):
    problem, options = (
        chain([0, 2e-4, 3e-4], ratios=[1.0, 0.5]),
        sim.EngineOptions(seconds=0.5, seed=seed, policy="random"),
    )
    a, b = (sim.run_engine(problem, np.zeros(3, int), options).to_json() for _ in range(2))
    assert a == b


def test_an_idle_device_serves_a_record_in_its_service_time():
    report = sim.run_engine(
        chain([0, 2e-4], rate=10.0), np.zeros(2, int), sim.EngineOptions(seconds=5.0, arrivals=sim.Constant())
    )
    assert report.extra["mean_latency_s"]["s1"] == pytest.approx(2e-4)


def test_one_worker_serves_two_steps_in_turn_and_two_workers_at_once():
    problem = chain([0, 4e-4, 4e-4])
    one = sim.run_engine(problem, np.zeros(3, int), sim.EngineOptions(seconds=5.0, workers=1))
    two = sim.run_engine(problem, np.zeros(3, int), sim.EngineOptions(seconds=5.0, workers=2))
    assert two.extra["mean_latency_s"]["s2"] < one.extra["mean_latency_s"]["s2"]


def test_a_remote_step_costs_at_least_the_latency_of_the_way():
    problem = chain([0, 1e-4])
    report = sim.run_engine(problem, np.array([1, 0]), sim.EngineOptions(seconds=2.0))
    assert report.extra["mean_latency_s"]["s1"] > float(NET.latency_s(1, 0))


def test_streams_of_a_device_share_its_access_link():
    # two streams of 60 % of the link each cannot both get through in time; one of them alone can
    net = nets.cloud_edge(1, 1, 2)
    problem = Problem(
        "two",
        net,
        Model.QUEUE,
        ("s", "a", "b"),
        np.repeat(np.array([0.0, 1e-6, 1e-6])[:, None], len(net.classes), axis=1),
        np.full(3, 1000.0),
        np.array([0, 0]),
        np.array([1, 2]),
        np.full(2, 1000.0),
        np.full(2, 7500.0),  # 60 Mbit/s of 100
        np.full(3, -1),
    )
    both = sim.run_engine(problem, np.array([1, 0, 0]), sim.EngineOptions(seconds=2.0))
    one = sim.run_engine(problem, np.array([1, 0, 1]), sim.EngineOptions(seconds=2.0))
    assert both.seconds == pytest.approx(2.0 * 1.2, rel=0.1)
    assert one.seconds < 2.2


def test_a_bounded_queue_holds_up_the_step_before_it():
    problem = chain([0, 1e-5, 1.2e-3])
    report = sim.run_engine(
        problem, np.zeros(3, int), sim.EngineOptions(seconds=1.0, workers=2, queue_records=20, take=5)
    )
    assert report.last.records_out["s2"] == report.last.records_in
    assert report.seconds > 1.1  # 1,000 records at 1.2 ms each cannot end in time


def test_congestion_awareness_beats_chance_on_a_saturated_device():
    # a step that turns one record into six congests what follows; serving the longest queue clears it first
    problem = chain([0, 3e-4, 1.2e-4, 5e-5], rate=900.0, ratios=[1.0, 6.0, 1.0])
    latency = {}
    for policy in ("longest_queue", "random"):
        options = sim.EngineOptions(seconds=20.0, workers=1, policy=policy, take=50, costs=sim.Costs(activation_s=2e-5))
        latency[policy] = sim.run_engine(problem, np.zeros(4, int), options).last.latency.percentile(50)
    assert latency["longest_queue"] < latency["random"]


def test_a_source_that_sleeps_hands_over_what_came_meanwhile():
    problem = chain([0, 1e-5])
    report = sim.run_engine(problem, np.zeros(2, int), sim.EngineOptions(seconds=2.0, tick_s=0.01))
    assert report.last.records_out["s1"] == report.last.records_in
    assert report.last.steps["s1"].activations <= 202
    assert report.extra["mean_latency_s"]["s1"] == pytest.approx(0.005, rel=0.15)


def latencies(problem: Problem, options: sim.EngineOptions):
    """Play a chain on one device with every policy; all of them meet the same records."""
    device = np.zeros(len(problem.steps), int)
    return {
        policy: sim.run_engine(problem, device, dataclasses.replace(options, policy=policy)).last.latency
        for policy in POLICIES
    }


def test_all_policies_meet_the_same_records_and_agree_when_nothing_waits():
    by_policy = latencies(chain([0, 1e-5, 1e-5], rate=100.0), sim.EngineOptions(seconds=2.0, arrivals=sim.Constant()))
    assert len({round(each.percentile(50)) for each in by_policy.values()}) == 1


def test_where_two_cores_are_not_enough_the_longest_queue_keeps_both_busy():
    # beyond capacity latency follows throughput, and who goes by age lets a bottleneck stand idle now and then
    costs = 1e-6 * 100 ** np.random.default_rng(2).random(12)
    problem = chain([0, *costs.tolist()], rate=1.1 * 2 / costs.sum())
    options = sim.EngineOptions(seconds=0.5, tick_s=1e-3, costs=sim.Costs(activation_s=6e-6), arrivals=sim.Constant())
    p99 = {policy: each.percentile(99) for policy, each in latencies(problem, options).items()}
    assert min(p99, key=p99.__getitem__) == "longest_queue"


def test_an_unknown_policy_is_refused_before_anything_runs():
    with pytest.raises(RunError, match="unknown policy 'longest'"):
        sim.EngineOptions(policy="longest")
    with pytest.raises(RunError, match="at least 1 worker"):
        sim.EngineOptions(workers=0)
