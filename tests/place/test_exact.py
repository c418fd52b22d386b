"""Proofs: brute force, its canonical form and both exact models agree, and nothing beats them."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import net as nets
from headwater.errors import PlacementError
from headwater.place import anneal, best, brute, exact, exact_aggregate, exact_latency, genetic, random_search
from headwater.place.dense import dense
from headwater.place.objective import Objective
from headwater.place.placement import Budget
from headwater.place.problem import Model
from headwater.place.verify import violations
from headwater_bench.cases import ghosh, replica
from properties import examples

from .strategies import cep_problem, detour_problem, queue_problem, seeds

NS = 5e-9
"""The constraint model counts whole nanoseconds; a path has a handful of them to lose."""


def agree(proof, forced, **within):
    """Have the same been found: a value as good, or that there is none."""
    assert forced.status == proof.status
    if forced.device is not None:
        assert proof.value == pytest.approx(forced.value, **within)


@pytest.mark.parametrize(
    ("free", "expected"), [(1, 3), (2, 10), (3, 37), (4, 151), (5, 674), (6, 3263), (7, 17007), (8, 94828), (9, 562595)]
)
def test_brute_force_tries_as_many_assignments_as_the_r_bell_numbers_say(free, expected):
    dag = ghosh.sampled(
        "chain", 1, 1, (None, *["Fil 1.0"] * (free + 1)), tuple((i, i + 1) for i in range(free + 1)), seed=1
    )
    problem = ghosh.problem(dag, 100)
    field = dense(problem, np.arange(len(problem.net)))
    assert brute.count(field, 10**9) == expected
    assert brute.count(field, 10**10, canonical=False) == (free + 2) ** free


@given(seeds, st.sampled_from(["liberal", "conservative"]), st.sampled_from([100.0, 1000.0, 4000.0]))
@examples(25)
def test_raw_and_canonical_brute_force_and_the_constraint_model_agree(seed, resources, rate):
    problem = cep_problem(seed % 100_000, size=6, rate=rate, resources=resources)
    raw, canonical = brute.solve(problem, canonical=False), brute.solve(problem)
    proof = exact_latency.solve(problem)
    assert raw.status == canonical.status == proof.status
    if raw.device is not None:
        assert raw.value == pytest.approx(canonical.value, rel=1e-12)
        assert proof.value == pytest.approx(raw.value, abs=NS)


@pytest.mark.parametrize("seed", range(3))
def test_brute_force_and_the_constraint_model_agree_on_nine_queries(seed):
    problem = cep_problem(seed, size=9, rate=1000.0)
    forced, proof = brute.solve(problem), exact_latency.solve(problem)
    agree(proof, forced, abs=NS)


@given(seeds)
@examples(25)
def test_the_constraint_model_finds_placements_that_go_back_and_forth(seed):
    problem = detour_problem(seed % 100_000)
    forced, proof = brute.solve(problem), exact_latency.solve(problem)
    agree(proof, forced, abs=NS)


def test_a_detour_is_really_taken_when_the_cloud_is_near_but_tiny():
    crossings = 0
    for seed in range(40):
        problem = detour_problem(seed)
        found = exact_latency.solve(problem)
        if found.device is not None:
            vm = len(problem.net) - 1
            on_vm = found.device == vm
            crossings += any(
                on_vm[a] and not on_vm[b] for a, b in zip(problem.stream_from, problem.stream_to, strict=True)
            )
    assert crossings > 0


@given(seeds, st.sampled_from(["aggregate", "critical", "wan", "devices", "aggregate + 0.001 * devices"]))
@examples(30)
def test_the_linear_program_agrees_with_brute_force(seed, goal):
    problem = queue_problem(seed, n=5, net=nets.cloud_edge(1, 2, 3, seed=seed), dense=bool(seed % 2))
    budget = Budget(objective=Objective.parse(goal), time_s=30)
    forced, proof = brute.solve(problem, budget), exact.solve(problem, budget)
    agree(proof, forced, rel=1e-5, abs=1e-9)


def test_the_bound_holds_for_devices_that_were_not_listed():
    net = nets.cloud_edge(20, 20, 20, seed=4)
    problem = queue_problem(11, n=7, net=net)
    found = exact_aggregate.solve(problem)
    assert found.status == "optimal"
    for other in range(50):
        device = np.random.default_rng(other).integers(len(net), size=7)
        device = np.where(problem.pinned >= 0, problem.pinned, device)
        if not violations(problem, device.tolist()):
            from headwater.place.score import score

            assert score(problem, device).aggregate >= found.bound * (1 - 1e-6)


@given(seeds)
@examples(12)
def test_no_strategy_beats_exact_and_every_answer_is_valid(seed):
    problem = cep_problem(seed % 100_000, size=7)
    proof = exact.solve(problem)
    small = Budget(seed=seed % 1000)
    answers = [
        genetic.solve(problem, small, least=300),
        random_search.solve(problem, small, trials=500),
        anneal.solve(problem, small, steps=3_000),
        best.solve(problem, small, prove=False),
    ]
    for found in answers:
        if found.device is not None:
            assert violations(problem, found.device.tolist()) == []
            assert found.value >= proof.value - NS
        if proof.status == "infeasible":
            assert found.device is None


@given(seeds)
@examples(10)
def test_best_is_at_least_as_good_as_every_strategy_and_says_when_it_is_proven(seed):
    problem = queue_problem(seed, n=8)
    found = best.solve(problem, Budget(time_s=60))
    rivals = [solve(problem, Budget()) for solve in best.GREEDY]
    values = [r.value for r in rivals if r.device is not None]
    if values:
        assert found.value <= min(values) * (1 + 1e-12)
    if found.device is not None:
        assert found.status == "optimal"
        assert found.gap == 0.0


def test_out_of_time_there_is_still_a_valid_placement_and_a_true_bound():
    dag = next(d for d in replica.shipped() if d.name == "50_1_1")
    problem = ghosh.problem(dag, 100)
    start = anneal.solve(problem, Budget(), steps=20_000)
    found = exact_latency.solve(problem, Budget(time_s=0.0), hint=start.device)
    assert found.device is not None
    assert found.status == "feasible"
    assert 0.1 < found.bound <= 0.1257  # below the optimum, and more than nothing
    assert 0 < found.gap < 0.2


def test_scaling_all_times_scales_the_optimum():
    problem = cep_problem(8, size=7, rate=100.0)
    scaled = dataclasses.replace(
        problem,
        service_s=problem.service_s * 3,
        hop_s=problem.hop_s * 3,
        rate_hz=problem.rate_hz / 3,
        stream_hz=problem.stream_hz / 3,
    )
    assert exact.solve(scaled).value == pytest.approx(3 * exact.solve(problem).value, abs=3 * NS)


@given(seeds)
@examples(8)
def test_one_more_device_never_worsens_the_optimum(seed):
    dag = ghosh.draw(7, 1, seed=seed % 100_000)
    tight, loose = ghosh.problem(dag, 1000, "conservative"), ghosh.problem(dag, 1000, "liberal")
    assert exact.solve(loose).value <= exact.solve(tight).value + NS


def test_the_same_seed_gives_the_same_answer():
    problem = cep_problem(5, size=9)
    for solve in (genetic.solve, anneal.solve, random_search.solve):
        a, b = solve(problem, Budget(seed=7)), solve(problem, Budget(seed=7))
        assert a.device.tolist() == b.device.tolist()


def test_levels_are_solved_one_after_the_other():
    problem = cep_problem(9, size=7)
    first = exact.solve(problem, Budget(objective=Objective.parse("critical")))
    both = exact.solve(problem, Budget(objective=Objective.parse("critical then devices")))
    forced = brute.solve(problem, Budget(objective=Objective.parse("critical then devices")))
    assert both.status == "optimal"
    assert both.value == pytest.approx(first.value, abs=NS)
    assert both.score.devices <= first.score.devices
    assert both.score.devices == forced.score.devices


def test_fewest_devices_for_a_latency_target():
    problem = cep_problem(9, size=8)
    least = exact.solve(problem).value
    asked = dataclasses.replace(problem, at_most=(((("critical", 1.0),), least * 1.05),))
    budget = Budget(objective=Objective.parse("devices"))
    found, forced = exact.solve(asked, budget), brute.solve(asked, budget)
    assert found.status == "optimal"
    assert found.score.critical <= least * 1.05
    assert found.score.devices == forced.score.devices


def test_an_impossible_target_is_proven_impossible():
    problem = cep_problem(9, size=7)
    least = exact.solve(problem).value
    asked = dataclasses.replace(problem, at_most=(((("critical", 1.0),), least * 0.9),))
    assert exact.solve(asked).status == "infeasible"
    assert exact.solve(asked).proven


def test_steps_that_belong_together_stay_together():
    problem = dataclasses.replace(cep_problem(4, size=7), together=((1, 2),))
    if problem.pinned[2] >= 0:
        problem = dataclasses.replace(problem, together=((1, 3),))
    a, b = problem.together[0]
    for solve in (exact.solve, brute.solve, anneal.solve):
        found = solve(problem, Budget())
        assert found.device is not None
        assert found.device[a] == found.device[b]
    queue = queue_problem(3, n=6, together=((1, 3),))
    found = exact.solve(queue, Budget())
    assert found.status == "optimal"
    assert found.device[1] == found.device[3]


def test_shared_time_on_a_small_net_is_proven_by_brute_force():
    problem = queue_problem(2, n=5, net=nets.cloud_edge(1, 1, 2), model=Model.SHARED)
    found = exact.solve(problem, Budget())
    assert found.status == "optimal"
    assert found.value == brute.solve(problem).value


@given(seeds)
@examples(15)
def test_a_flow_without_measured_hops_is_proven_too(seed):
    problem = cep_problem(seed % 100_000, size=6)
    plain = dataclasses.replace(problem, hop_s=None)
    forced, proof = brute.solve(plain), exact.solve(plain, Budget(time_s=60))
    agree(proof, forced, abs=NS)


@given(seeds)
@examples(15)
def test_money_with_egress_is_proven(seed):
    classes = tuple(
        dataclasses.replace(c, price_per_hour=p, egress_per_gb=g)
        for c, p, g in zip((nets.PI_2, nets.PI_3, nets.RYZEN), (0.01, 0.02, 0.3), (0.001, 0.001, 0.09), strict=True)
    )
    problem = queue_problem(seed, n=5, net=nets.cloud_edge(1, 2, 3, seed=seed, classes=classes), dense=bool(seed % 2))
    budget = Budget(objective=Objective.parse("money + 0.1 * aggregate"), time_s=20)
    forced, proof = brute.solve(problem, budget), exact.solve(problem, budget)
    agree(proof, forced, rel=1e-5)


def test_brute_force_refuses_what_it_could_never_finish():
    with pytest.raises(PlacementError, match="use 'exact' instead"):
        brute.solve(cep_problem(1, size=40, sources=1, rate=10.0), canonical=False)


def test_a_proof_asked_for_the_wrong_model_says_which_to_use():
    with pytest.raises(PlacementError, match="use strategy 'exact'"):
        exact_latency.solve(queue_problem(1))
    with pytest.raises(PlacementError, match="times per stream"):
        exact_aggregate.solve(cep_problem(1))


def test_the_literal_wheel_of_the_paper_still_finds_something_valid():
    problem = cep_problem(5, size=8)
    found = genetic.solve(problem, Budget(), literal=True, least=500)
    assert found.device is not None
    assert found.notes["generations"] >= 500
