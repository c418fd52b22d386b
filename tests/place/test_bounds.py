"""Bounds hold, whatever the model, the objective and the time; proofs under shared time and on unequal devices."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import net as nets
from headwater.place import best, brute, exact, exact_aggregate, strategy
from headwater.place.lower_bound import lower_bound
from headwater.place.objective import Objective
from headwater.place.placement import Budget
from headwater.place.problem import DeviceUse, Model
from headwater.place.score import MEASURES
from headwater_bench.cases import veith
from properties import examples

from .strategies import cep_problem, queue_problem, seeds

SMALL = nets.cloud_edge(1, 2, 2, seed=3)


@given(seeds, st.sampled_from(list(Model)), st.sampled_from(MEASURES))
@examples(40)
def test_no_placement_goes_below_the_floor(seed, model, measure):
    problem, goal = queue_problem(seed, n=5, net=SMALL, dense=True, model=model), Objective.parse(measure)
    forced = brute.solve(problem, Budget(objective=goal))
    if forced.device is not None:
        assert lower_bound(problem, goal) <= forced.value * (1 + 1e-9)


@given(seeds)
@examples(20)
def test_the_floor_holds_where_streams_have_times_of_their_own(seed):
    problem = cep_problem(seed % 100_000, size=6)
    forced = brute.solve(problem)
    if forced.device is not None:
        assert 0 < lower_bound(problem, forced.objective) <= forced.value


@given(seeds, st.sampled_from([Model.SHARED, Model.ROUND_ROBIN]), st.sampled_from(["aggregate", "critical"]))
@examples(25)
def test_the_program_proves_what_brute_force_finds_under_shared_and_round_robin_time(seed, model, measure):
    problem = queue_problem(seed, n=5, net=SMALL, dense=True, model=model)
    budget = Budget(time_s=30, objective=Objective.parse(measure))
    forced, proof = brute.solve(problem, budget), exact_aggregate.solve(problem, budget)
    assert (forced.device is None) == (proof.device is None)
    if proof.device is not None:
        assert proof.bound <= forced.value * (1 + 1e-6)
        assert proof.value == pytest.approx(forced.value, rel=1e-5)
        assert proof.status == "optimal"


def test_what_others_use_of_a_device_counts_under_shared_time():
    problem = queue_problem(5, n=5, net=SMALL, dense=True, model=Model.SHARED)
    busy = dataclasses.replace(problem, taken={d: DeviceUse(utilisation=0.5) for d in range(1, len(SMALL))})
    forced, proof = brute.solve(busy), exact_aggregate.solve(busy, Budget(time_s=30))
    assert proof.value == pytest.approx(forced.value, rel=1e-5)
    assert proof.value > exact_aggregate.solve(problem, Budget(time_s=30)).value


@pytest.mark.parametrize("model", [Model.SHARED, Model.ROUND_ROBIN])
def test_beyond_brute_force_there_is_a_proof_or_a_bound(model):
    net = nets.cloud_edge(3, 4, 6, seed=2)  # more devices than brute force could try, of three classes
    problem = queue_problem(11, n=12, net=net, model=model)
    found = exact.solve(problem, Budget(time_s=20, seed=1))
    assert found.device is not None
    assert 0 < found.bound <= found.value
    assert found.gap < 0.01


@pytest.mark.parametrize("strategy", [exact.solve, best.solve])
@pytest.mark.parametrize("model", list(Model))
def test_without_time_there_is_still_a_placement_a_bound_and_a_gap(strategy, model):
    net = nets.cloud_edge(20, 20, 20, seed=0)
    problem = queue_problem(3, n=20, net=net, model=model)
    found = strategy(problem, Budget(time_s=0.001))
    assert found.device is not None
    assert 0 < found.bound <= found.value
    assert found.gap < 1


def test_the_bound_of_a_large_case_is_near_before_any_proof():
    reading, shapes, net = veith.preset("veith"), veith.graphs(0), nets.cloud_edge(100, 100, 100)
    problem = veith.problem(shapes[12], veith.setting(shapes[12], 0, reading), net, reading)
    found = best.solve(problem, Budget(time_s=1.0), prove=False)
    assert found.device is not None
    assert found.gap < 0.06  # of what a placement can change; of the whole, windows and all, it is a thirtieth of that
    assert np.isfinite(found.value)


@pytest.mark.parametrize("measure", ["aggregate", "critical"])
def test_a_gap_is_that_of_what_a_placement_can_change(measure):
    plain = queue_problem(9, n=8)
    windows = np.where(np.arange(8) % 3 == 1, 5.0, 0.0)
    filled = dataclasses.replace(plain, window_s=windows)
    goal = Objective.parse(measure)
    worst = dataclasses.replace(strategy("cloud-only")(filled, Budget(objective=goal)), bound=lower_bound(filled, goal))
    assert worst.device is not None
    optimum = strategy("exact")(filled, Budget(time_s=20, objective=goal))
    assert optimum.status == "optimal"
    above = (worst.value - optimum.value) / worst.movable
    assert worst.gap >= above * (1 - 1e-9)
    assert worst.movable < 0.1 * worst.value  # seconds of windows, milliseconds of all else
    assert worst.gap > 5 * (worst.value - worst.bound) / worst.value
    if measure == "aggregate":
        alike = strategy("cloud-only")(plain, Budget(objective=goal))
        alike = dataclasses.replace(alike, bound=lower_bound(plain, goal))
        assert worst.gap == pytest.approx(alike.gap, rel=1e-6)
