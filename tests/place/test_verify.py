"""The judge counts for itself: its sums against the scores, the capacities and the compiled searches, on random problems."""

import ast
import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater.place
from headwater import net as nets
from headwater.net.device import DeviceClass
from headwater.place import violations
from headwater.place.capacity import Capacity
from headwater.place.copies import with_copies
from headwater.place.dense import dense
from headwater.place.fast_score import OUT, evaluate, scratch
from headwater.place.problem import DeviceUse, Model, Problem
from headwater.place.recount import Recount
from headwater.place.score import MEASURES, score
from properties import examples

from .strategies import queue_problem, seeds

CLASSES = (
    DeviceClass("battery", 4e9, 6e8, 20e6, battery_mah=900.0, idle_ma=3.0, busy_ma=90.0, radio_mas_per_byte=1e-4),
    DeviceClass("offline", 5e9, 1e9, 0.0),
    DeviceClass("rented", 3e11, 1e12, 1e9, cloud=True, price_per_hour=0.2, egress_per_gb=0.09),
)


@st.composite
def placed(draw) -> tuple[Problem, np.ndarray]:
    """A problem with a bit of everything, and any placement of it."""
    seed, model = draw(seeds), draw(st.sampled_from(list(Model)))
    random = np.random.default_rng(seed)
    net = nets.cloud_edge(2, 2, 3, seed=seed, classes=CLASSES)
    if draw(st.booleans()):
        net = net.without_links([(0, 2)])
    problem = queue_problem(
        seed,
        n=6,
        net=net,
        dense=draw(st.booleans()),
        model=model,
        window_s=random.uniform(0, 0.1, 6) * (random.random(6) < 0.5),
        overhead_s=random.uniform(0, 2e-5, (6, 3)),
        charge_mas=random.uniform(0, 3e-3, (6, 3)),
        hop_s=random.uniform(0, 0.1, (len(queue_problem(seed, n=6, net=net).stream_from), 2))
        if draw(st.booleans())
        else None,
        taken={
            int(d): DeviceUse(random.uniform(0, 0.4), 1e8, 1e6, 20.0, random.uniform(0, 1e-5), 5e3)
            for d in random.choice(len(net), 3, replace=False)
        }
        if draw(st.booleans())
        else {},
        at_most=(((("critical", 1.0), ("money", 0.1)), 0.15), ((("aggregate", 1.0),), 0.5)),
    )
    service = problem.service_s.copy()
    if draw(st.booleans()):
        service[int(random.integers(1, 6)), int(random.integers(3))] = random.choice([0.0, np.inf])
    problem = dataclasses.replace(problem, service_s=service)
    free = np.flatnonzero(problem.pinned < 0)
    if draw(st.booleans()) and len(free):
        problem = with_copies(problem, problem.steps[int(free[0])], 2)
    device = random.integers(len(net), size=len(problem.steps))
    if draw(st.booleans()):
        device[:] = device[0]
    return problem, np.where(problem.pinned >= 0, problem.pinned, device)


@given(placed())
@examples(300)
def test_the_judge_and_the_scores_count_alike(case):
    problem, device = case
    counted, scored = Recount(problem, device.tolist()), score(problem, device)
    able = np.isfinite(problem.service_s[np.arange(len(device)), problem.net.class_of[device]]).all()
    for name in MEASURES:
        if able or name not in ("critical", "aggregate"):
            assert counted.measure(name) == pytest.approx(scored.measure(name), rel=1e-9, abs=1e-15), name


@given(placed())
@examples(300)
def test_the_judge_and_the_compiled_search_agree_on_what_is_valid(case):
    problem, device = case
    field, out = dense(problem, np.arange(len(problem.net))), np.zeros(OUT)
    evaluate(field, device.astype(np.int64), *scratch(field), out)
    broken = violations(problem, device.tolist())
    assert (out[6] > 0) == bool(broken), [str(b) for b in broken]
    if not broken:
        assert out[: len(MEASURES)] == pytest.approx([score(problem, device).measure(m) for m in MEASURES], rel=1e-9)


@given(placed())
@examples(200)
def test_a_board_puts_no_step_where_the_judge_would_object(case):
    problem, device = case
    capacity = Capacity(dataclasses.replace(problem, at_most=()))
    for step in problem.order:
        row = capacity.row(int(device[step]))
        if not capacity.feasible(step)[row]:
            return
        capacity.put(step, row)
    assert not violations(capacity.problem, device.tolist())


def test_the_judge_imports_nothing_that_it_judges():
    folder = Path(headwater.place.__file__).parent
    for name in ("verify.py", "recount.py"):
        tree = ast.parse((folder / name).read_text())
        inside = {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and "place" in (n.module or "")}
        assert inside <= {"headwater.place.problem", "headwater.place.recount"}
        # what a problem works out from its fields, the scores use as well
        derived = {k for k, v in vars(Problem).items() if type(v).__name__ in ("cached_property", "property")}
        used = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)}
        assert not used & derived
