"""Scores: the papers' equations against numbers worked out by hand, and against slow plain sums."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given

from headwater import net as nets
from headwater.errors import PlacementError
from headwater.place.dense import dense
from headwater.place.fast_score import OUT, evaluate, scratch
from headwater.place.objective import Objective
from headwater.place.problem import Model, Problem
from headwater.place.score import MEASURES, score
from properties import examples

from .strategies import cep_problem, queue_problem, seeds


def chain(**changes) -> Problem:
    """source → work → sink on a net of one cloud and one site of two Pis."""
    net = nets.Net(
        "tiny",
        (nets.PI_2, nets.RYZEN),
        ("cloud", "site"),
        np.array([0, 1, 3]),
        np.array([1, 0, 0], np.uint16),
        np.array([0.0, 0.0002, 0.0003]),
        nets.Matrix(np.array([[0.0, 0.07], [0.07, 0.0]])),
    )
    fields = {
        "name": "chain",
        "net": net,
        "model": Model.QUEUE,
        "steps": ("source", "work", "sink"),
        "service_s": np.array([[0, 0], [5_000 / 4.74e9, 5_000 / 304.51e9], [0, 0]]),
        "rate_hz": np.array([5_000.0, 5_000.0, 5_500.0]),
        "stream_from": np.array([0, 1]),
        "stream_to": np.array([1, 2]),
        "stream_hz": np.array([5_000.0, 5_500.0]),
        "stream_bytes": np.array([100.0, 1_300.0]),
        "pinned": np.array([1, -1, 0]),
        "window_s": np.array([0.0, 50 / 5_000, 0.0]),
    }
    return Problem(**(fields | changes))


def test_a_step_waits_as_in_an_m_m_1_queue():
    scored = score(chain(), np.array([1, 1, 0]))
    assert scored.step_s[1] == pytest.approx(1.0604e-6, rel=1e-4)
    assert scored.windows == pytest.approx(0.010)


def test_a_stream_waits_for_its_link_and_then_travels():
    scored = score(chain(), np.array([1, 1, 0]))
    assert scored.stream_s[0] == 0.0
    assert scored.stream_s[1] == pytest.approx(242.99e-6 + 0.07 + 0.0002, rel=1e-5)
    assert scored.critical == pytest.approx(scored.step_s[1] + 0.010 + scored.stream_s[1])
    assert scored.wan == 5_500 * 1_300


def test_two_devices_of_a_site_are_two_lan_hops_apart():
    scored = score(chain(), np.array([1, 2, 0]))
    bits = 800 / (100e6 - 5_000 * 800)
    assert scored.stream_s[0] == pytest.approx(bits + 0.0002 + 0.0003)
    assert scored.devices == 3


def test_an_overloaded_queue_takes_for_ever():
    slow = chain(service_s=np.array([[0, 0], [1e-3, 1e-5], [0, 0]]))
    assert score(slow, np.array([1, 1, 0])).critical == np.inf


def test_round_robin_time_is_one_turn_of_all_steps_on_the_device():
    problem = cep_problem(3)
    device = np.where(problem.pinned >= 0, problem.pinned, 0)
    scored = score(problem, device)
    pi = sum(problem.service_s[i, 0] for i in range(len(device)) if device[i] == 0)
    free = [i for i in range(len(device)) if problem.pinned[i] < 0]
    assert all(scored.step_s[i] == pytest.approx(pi) for i in free)
    assert scored.step_s[0] == 0.0  # a source only emits


def test_shared_time_grows_with_the_load_of_the_neighbours():
    problem = queue_problem(5, dense=True)
    device = np.full(len(problem.steps), 0)
    alone = score(problem, device).step_s
    shared = score(dataclasses.replace(problem, model=Model.SHARED), device).step_s
    assert (shared >= alone).all()
    assert shared[1] > alone[1]


@given(seeds)
@examples(60)
def test_counting_paths_gives_the_sum_over_all_of_them(seed):
    problem = queue_problem(seed, n=8, window_s=np.random.default_rng(seed).uniform(0, 1, 8))
    device = np.random.default_rng(seed).integers(len(problem.net), size=8)
    scored = score(problem, device)
    lengths = []

    def walk(step, so_far):
        so_far += scored.step_s[step] + problem.window_s[step]
        if not problem.outputs[step]:
            lengths.append(so_far)
        for e in problem.outputs[step]:
            walk(int(problem.stream_to[e]), so_far + scored.stream_s[e])

    for source in problem.sources:
        walk(source, 0.0)
    assert scored.aggregate == pytest.approx(sum(lengths))
    assert scored.critical == pytest.approx(max(lengths))


@given(seeds)
@examples(60)
def test_compiled_scores_equal_plain_ones(seed):
    random = np.random.default_rng(seed)
    for problem in (queue_problem(seed, dense=True), cep_problem(seed % 1000)):
        devices = np.arange(len(problem.net))
        for goal in (None, Objective.parse("critical")):
            field = dense(problem, devices, goal)
            device = np.where(
                problem.pinned >= 0, problem.pinned, random.integers(len(devices), size=len(problem.steps))
            )
            out = np.zeros(OUT)
            evaluate(field, device.astype(np.int64), *scratch(field), out)
            scored = score(problem, device)
            for number, measure in enumerate(MEASURES[:1] if field.turns_only else MEASURES):
                if np.isfinite(scored.measure(measure)):
                    assert out[number] == pytest.approx(scored.measure(measure), rel=1e-9), measure


def test_the_deployment_order_sends_a_step_back_until_its_inputs_are_listed():
    # 0 → 1 → 2 → 3 and 0 → 3: step 3 is met first, and goes to the end of the queue twice
    ends = np.array([[0, 1], [0, 3], [1, 2], [2, 3]])
    problem = chain(
        steps=("a", "b", "c", "d"),
        service_s=np.zeros((4, 2)),
        rate_hz=np.ones(4),
        stream_from=ends[:, 0],
        stream_to=ends[:, 1],
        stream_hz=np.ones(4),
        stream_bytes=np.ones(4),
        pinned=np.full(4, -1),
        window_s=np.zeros(4),
    )
    assert problem.order == (0, 1, 2, 3)
    assert problem.paths_to.tolist() == [1, 1, 1, 2]
    assert problem.paths_from.tolist() == [2, 1, 1, 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stream_from": np.array([1, 2]), "stream_to": np.array([2, 1])}, "cycle"),
        ({"rate_hz": np.array([1.0, np.nan, 1.0])}, "step 'work': rate_hz must be 0 or more; got nan"),
        ({"service_s": np.full((3, 2), -1.0)}, "service_s must be 0 or more"),
        ({"stream_bytes": np.array([1.0, np.nan])}, "stream 'work' → 'sink': stream_bytes"),
        ({"pinned": np.array([1, -1, 99])}, "step 'sink' is pinned to device 99; the net has 3"),
        ({"together": ((0, 2),)}, "must share a device, but are pinned to 'site/0' and 'cloud'"),
        ({"stream_to": np.array([1, 7])}, "joins steps 1 and 7"),
        ({"rate_hz": np.ones(2)}, "rate_hz must be"),
        ({"steps": ()}, "no steps"),
    ],
)
def test_a_contradictory_problem_says_so(changes, message):
    with pytest.raises(PlacementError, match=message):
        chain(**changes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("latancy", "unknown measure 'latancy'"),
        ("critical +", "cannot read ''"),
        ("-1 * money", "0 or more; got -1"),
        ("1.2.3 * money", "not a number"),
        ("critical thn devices", "cannot read"),
    ],
)
def test_a_wrong_objective_says_what_is_wrong(text, message):
    with pytest.raises(PlacementError, match=message):
        Objective.parse(text)


def test_an_objective_reads_back_as_it_was_written():
    text = "critical + 0.5 * money then devices"
    assert str(Objective.parse(text)) == text
