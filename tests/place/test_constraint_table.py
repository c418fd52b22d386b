"""Each constraint means the same as arrays, as a linear form and to the judge, who reckons for himself."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st

from headwater import net as nets
from headwater.place import Budget, DeviceUse, Model, descent, violations
from headwater.place import constraint_table as table
from headwater.place.capacity import Capacity
from headwater.place.dense import dense
from headwater.place.exact_aggregate import solve as by_program
from headwater.place.fast_score import OUT, evaluate, scratch
from headwater.place.why_not import why_not
from properties import examples

from .strategies import queue_problem, seeds

MODELS = [Model.QUEUE, Model.SHARED, Model.ENGINE, Model.ROUND_ROBIN]


def tight_net(random):
    """A net on which everything can run out: small, slow, on batteries, with dear radio, and one link cut."""
    edge = nets.DeviceClass(
        "edge",
        cpu_ips=random.uniform(0.5e8, 4e8),
        memory_bytes=random.uniform(1e8, 1.5e9),
        access_bps=random.uniform(1e7, 2e8),
        battery_mah=random.uniform(2e3, 2e4),
        idle_ma=random.uniform(10, 100),
        busy_ma=400.0,
        radio_mas_per_byte=random.uniform(0, 2e-5),
    )
    cloud = nets.DeviceClass("cloud", cpu_ips=1e10, cloud=True, access_bps=1e9)
    wan = np.array([[0.0, 0.02, 0.05], [0.02, 0.0, math.inf], [0.05, math.inf, 0.0]])
    return nets.Net(
        name="tight",
        classes=(edge, cloud),
        zones=("a", "b", "cloud"),
        first=np.array([0, 2, 4, 5]),
        class_of=np.array([0, 0, 0, 0, 1], np.uint16),
        lan_s=np.full(5, 0.001),
        wan=nets.Matrix(wan),
        trust=("farm", "farm", "open"),
    )


def tight_problem(seed, model):
    """A problem of which many placements break something, and many do not."""
    random = np.random.default_rng(seed)
    net = tight_net(random)
    problem = queue_problem(seed, n=4, net=net, dense=True, model=model)
    slower = random.uniform(0.002, 0.06)
    charge = problem.service_s * (400.0 - 50.0) * (~net.is_cloud)
    zone_allowed = random.random((4, 3)) > 0.1 if random.random() < 0.4 else None
    return dataclasses.replace(
        problem,
        rate_hz=problem.rate_hz * slower,
        stream_hz=problem.stream_hz * slower,
        pinned=np.full(4, -1),
        charge_mas=charge,
        overhead_s=problem.service_s if model is Model.ENGINE else np.zeros_like(problem.service_s),
        zone_allowed=zone_allowed,
        together=((1, 2),) if random.random() < 0.2 else (),
        closed=frozenset({3}) if random.random() < 0.3 else frozenset(),
        taken={1: DeviceUse(0.3, 1e8, 1e6, 20.0, 1e-5, 10.0)} if random.random() < 0.4 else {},
    )


placements = st.lists(st.integers(0, 4), min_size=4, max_size=4)


@examples(300)
@given(seeds, st.sampled_from(MODELS), placements)
def test_compiled_searches_and_the_judge_agree(seed, model, device):
    problem, everywhere = tight_problem(seed, model), np.arange(5)
    field, out = dense(problem, everywhere), np.zeros(OUT)
    evaluate(field, np.array(device), *scratch(field), out)
    assert (out[6] == 0) == (violations(problem, device) == [])


@examples(200, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(seeds, st.sampled_from(MODELS), placements, st.integers(0, 3), st.integers(0, 4))
def test_growing_searches_and_the_judge_agree(seed, model, device, step, elsewhere):
    problem = tight_problem(seed, model)
    moved = [elsewhere if i == step else d for i, d in enumerate(device)]
    assume(not violations(problem, device))  # so that what is wrong with the other comes of the move
    capacity = Capacity(problem)
    for i, d in enumerate(device):
        if i != step:
            capacity.put(i, capacity.row(d))
    rows = [capacity.row(d) for d in (device[step], elsewhere)]
    before, after = capacity.feasible(step)[rows]
    assert before
    assert after == (violations(problem, moved) == [])


@examples(60)
@given(seeds, st.sampled_from(MODELS), placements)
def test_the_program_and_the_judge_agree(seed, model, device):
    problem = tight_problem(seed, model)
    broken = violations(problem, device)
    try:
        fixed = dataclasses.replace(problem, pinned=np.array(device))
    except Exception:  # pins against a wish to be together are refused at once
        assert broken
        return
    found = by_program(fixed, Budget(time_s=20.0))
    assert (found.device is None) == bool(broken)


@pytest.mark.parametrize("limit", table.LIMITS, ids=lambda limit: limit.name)
def test_every_limit_says_what_there_is_too_little_of(limit):
    problem = tight_problem(1, Model.QUEUE)
    ample = {"memory_bytes": 1e10, "access_bps": 1e10, "battery_mah": 1e10}
    classes = tuple(dataclasses.replace(kind, **ample) for kind in problem.net.classes)
    full = {d: DeviceUse(**{limit.use_field: limit.most(classes[0]) - limit.idle(classes[0])}) for d in range(5)}
    problem = dataclasses.replace(
        problem,
        net=dataclasses.replace(problem.net, classes=classes),
        rate_hz=problem.rate_hz / 10,
        charge_mas=np.ones((4, 2)),
        zone_allowed=np.array([[True] * 3, [True, True, False], [True] * 3, [True] * 3]),  # not beside its neighbour
        together=(),
        closed=frozenset(),
        taken=full,
    )
    capacity = Capacity(problem)
    capacity.put(0, capacity.row(4))  # the cloud, from which there is a way to all
    capacity._used[:, capacity.row(4)] = 0.0
    told = why_not(capacity, 1)
    assert limit.words in told
    assert "would fill" in told if limit is table.CPU else f"the most free is 0.0 {limit.unit}" in told


def test_what_a_step_draws_and_what_its_radio_draws_count_together():
    """Half of a battery for the work and half for the radio is a battery; one of them alone would leave room."""
    kind = nets.DeviceClass("mote", cpu_ips=1e9, battery_mah=24.0, radio_mas_per_byte=1e-3, access_bps=1e9)
    strong = dataclasses.replace(kind, name="strong", battery_mah=2400.0)
    net = nets.Net(
        "motes", (kind, strong), ("a",), np.array([0, 2]), np.array([0, 1], np.uint16), np.zeros(2),
        nets.Matrix(np.zeros((1, 1))), ("open",),
    )  # fmt: skip
    problem = queue_problem(1, n=2, net=net)
    problem = dataclasses.replace(
        problem,
        service_s=np.array([[0.0, 0.0], [1e-6, 1e-5]]),  # the weak one is faster, and so the greedy choice
        rate_hz=np.array([600.0, 600.0]),
        stream_hz=np.array([600.0]),
        stream_bytes=np.array([1.0]),
        charge_mas=np.array([[0.0, 0.0], [1e-3, 1e-3]]),
        pinned=np.array([1, -1]),
        memory_bytes=np.zeros(2),
    )  # one milliampere is the budget of a mote; 0.6 go into the work, 0.6 into the radio
    found = descent.foresee(problem)
    assert found.device is not None, found.reason
    assert found.by_name["s1"] == "a/1"
