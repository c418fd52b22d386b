"""R-Storm, the original TCEP, and steps in several copies."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given

from headwater import net as nets
from headwater import sim
from headwater.errors import PlacementError
from headwater.place import brute, exact, r_storm, tcep_original
from headwater.place.copies import with_copies
from headwater.place.explain import explain, slower
from headwater.place.placement import Budget
from headwater.place.problem import Model, Problem
from headwater.place.score import score
from headwater.place.verify import violations
from headwater_bench.cases import ghosh
from properties import examples

from .strategies import queue_problem, seeds


@given(seeds)
@examples(30)
def test_what_they_answer_is_valid_and_no_better_than_the_optimum(seed):
    problem = queue_problem(seed, n=5, net=nets.cloud_edge(1, 2, 2, seed=1), dense=True)
    optimum = brute.solve(problem)
    for solve in (r_storm.solve, tcep_original.solve):
        found = solve(problem)
        if found.device is not None:
            assert violations(problem, found.device.tolist()) == []
            assert found.value >= optimum.value * (1 - 1e-9)


def test_r_storm_stays_on_the_first_device_and_then_in_its_zone():
    problem = queue_problem(4, n=6, net=nets.cloud_edge(2, 3, 3), pinned=np.array([4, -1, -1, -1, -1, -1]))
    found = r_storm.solve(problem)
    assert found.device is not None
    assert set(problem.net.zone_of(found.device).tolist()) == {int(problem.net.zone_of(4))}


def test_the_original_tcep_takes_the_smallest_device_that_is_large_enough():
    problem = queue_problem(4, n=4, net=nets.cloud_edge(2, 3, 4), pinned=np.array([4, -1, -1, -1]))
    slow, fast = (np.flatnonzero([c.name == name for c in problem.net.classes])[0] for name in ("pi-2", "ryzen-1800x"))
    assert problem.net.class_of[tcep_original.solve(problem).device[1:]].tolist() == [slow] * 3
    heavy = dataclasses.replace(
        problem, service_s=problem.service_s * 0.9 / (problem.rate_hz[:, None] * problem.service_s)[1:, slow].min()
    )
    found = tcep_original.solve(heavy)
    if found.device is not None:
        assert fast in problem.net.class_of[found.device[1:]].tolist()


def hot(rate=3000.0) -> Problem:
    """A step that one Pi cannot serve: 0.5 ms per record."""
    net = nets.cloud_edge(1, 1, 4)
    return Problem(
        "hot",
        net,
        Model.QUEUE,
        ("in", "work", "out"),
        np.repeat(np.array([0.0, 5e-4, 1e-6])[:, None], len(net.classes), axis=1),
        np.array([rate, rate, rate]),
        np.array([0, 1]),
        np.array([1, 2]),
        np.array([rate, rate]),
        np.array([100.0, 100.0]),
        np.array([1, -1, 1]),
    )


def test_copies_share_the_records_and_make_an_impossible_step_possible():
    problem = hot()
    assert exact.solve(problem).status == "infeasible"
    shared = with_copies(problem, "work", 2)
    assert shared.steps == ("in", "work #1", "work #2", "out")
    assert shared.rate_hz.tolist() == [3000, 1500, 1500, 3000]
    assert shared.stream_hz.tolist() == [1500, 1500, 1500, 1500]
    found = exact.solve(shared)
    assert found.status == "optimal"
    assert found.by_name["work #1"] != found.by_name["work #2"]
    played = sim.run_queues(shared, found.device, sim.QueueOptions(seconds=20)).extra["sinks"]["out"]
    assert played["simulated_s"] == pytest.approx(played["predicted_s"], rel=0.05)


def test_copies_work_where_streams_have_times_of_their_own():
    problem = ghosh.problem(ghosh.draw(6, 1, seed=3), 1000)
    free = problem.steps[int(np.flatnonzero(problem.pinned < 0)[0])]
    shared = with_copies(problem, free, 3)
    assert len(shared.steps) == len(problem.steps) + 2
    assert shared.hop_s.shape[0] == len(shared.stream_from)
    assert exact.solve(shared).value <= exact.solve(problem).value + 1e-3


def test_an_explanation_proposes_copies():
    why = explain(hot(), Budget(time_s=20))
    assert "step 'work' in 2 copies" in why.relaxations


def test_a_step_that_must_be_in_one_place_has_no_copies():
    with pytest.raises(PlacementError, match="pinned to one device"):
        with_copies(hot(), "out", 2)
    with pytest.raises(PlacementError, match="at least 1"):
        with_copies(hot(), "work", 0)
    with pytest.raises(PlacementError, match="no step 'wrok'"):
        with_copies(hot(), "wrok", 2)
    assert with_copies(hot(), "work", 1).steps == hot().steps


def test_copies_of_a_step_do_not_multiply_its_paths():
    problem = dataclasses.replace(hot(), rate_hz=hot().rate_hz / 10, stream_hz=hot().stream_hz / 10)
    shared = with_copies(with_copies(problem, "work", 3), "work #2", 2)
    device = np.zeros(len(shared.steps), int)
    alone = score(problem, np.zeros(len(problem.steps), int))
    # no more than one step's time, less what the queues of copies are shorter
    assert score(shared, device).aggregate <= alone.aggregate
    assert shared.step_paths[shared.step("out")] == pytest.approx(1)
    assert sum(shared.step_paths[i] for i, s in enumerate(shared.steps) if s.startswith("work")) == pytest.approx(1)


def test_windows_of_records_follow_the_rate_and_windows_of_time_do_not():
    window = np.where(np.arange(3) == 1, 0.5, 0.0)
    counted = dataclasses.replace(hot(), window_s=window, window_records=100 * window)
    timed = dataclasses.replace(hot(), window_s=window)
    assert slower(counted, 0.5).window_s[1] == pytest.approx(1.0)
    assert slower(timed, 0.5).window_s[1] == pytest.approx(0.5)
    assert with_copies(counted, "work", 2).window_s[1] == pytest.approx(1.0)
    assert with_copies(timed, "work", 2).window_s[1] == pytest.approx(0.5)
