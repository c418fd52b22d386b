"""What lies at the border of sense: no link, no memory, no battery, no way."""

import dataclasses
import math

import numpy as np
import pytest

from headwater import net as nets
from headwater.net.device import DeviceClass
from headwater.place import Budget, Model, strategy, violations
from headwater.place.account import account
from headwater.place.explain import explain
from headwater.place.render import render
from headwater.place.strategies import MODULES

from .strategies import queue_problem

ODD = [
    {"access_bps": 0.0},
    {"memory_bytes": 0.0},
    {"battery_mah": 0.0, "busy_ma": 10.0},
    {"access_bps": 0.0, "memory_bytes": 0.0, "battery_mah": 0.0},
]


SHORT = {"genetic": {"least": 50, "most": 100}, "anneal": {"steps": 2000, "starts": 1}, "random": {"trials": 500}}
"""Enough for so small a problem."""


def odd_problem(model: Model, odd: dict[str, float]):
    """A flow from an edge device to a cloud; one class of edge device has nothing of something."""
    classes = (DeviceClass("odd", 5e9, **odd), DeviceClass("box", 5e9, 1e9, 1e8), nets.RYZEN)
    net = nets.cloud_edge(1, 1, 4, classes=classes)
    box = int(np.flatnonzero(net.class_of == 1)[0])
    charge = np.zeros((4, 3))
    charge[:, 0] = 1e-3
    memory = np.full(4, 1e3)
    pinned = np.array([box, -1, -1, 0])
    return queue_problem(1, n=4, net=net, model=model, pinned=pinned, charge_mas=charge, memory_bytes=memory)


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: "+".join(odd))
@pytest.mark.parametrize("model", list(Model))
@pytest.mark.parametrize("name", list(MODULES))
def test_a_device_that_has_nothing_of_something_is_left_alone(name, model, odd):
    problem = odd_problem(model, odd)
    found = strategy(name)(problem, Budget(time_s=1), **SHORT.get(name, {}))
    assert found.device is None or not violations(problem, found.device.tolist())
    if name in ("best", "exact", "brute-force", "anneal", "aels"):
        assert found.device is not None
        assert 0 not in problem.net.class_of[found.device]
        assert render(account(found))


def test_what_is_pinned_to_a_device_without_a_link_is_said_to_have_none():
    problem = odd_problem(Model.QUEUE, {"access_bps": 0.0})
    stuck = dataclasses.replace(
        problem, pinned=np.array([int(np.flatnonzero(problem.net.class_of == 0)[0]), -1, -1, 0])
    )
    found = strategy("best")(stuck, Budget(time_s=1))
    assert found.device is None
    assert found.proven
    assert explain(stuck, Budget(time_s=1)).relaxations is not None


@pytest.mark.parametrize("name", ["best", "exact", "aels", "brute-force"])
def test_a_net_that_falls_apart_is_said_to_have_no_route(name):
    whole = nets.cloud_edge(1, 2, 2)
    far = 0.05 * (1 - np.eye(3))
    far[0, 1] = far[1, 0] = math.inf  # cloud and site-0, but both reach site-1
    problem = queue_problem(
        3,
        n=4,
        net=dataclasses.replace(whole, wan=nets.Matrix(far.copy())),
        pinned=np.array([1, -1, -1, 0]),
        stream_from=np.arange(3),
        stream_to=np.arange(1, 4),
        stream_hz=np.full(3, 100.0),
        stream_bytes=np.full(3, 100.0),
    )
    assert strategy("best")(problem, Budget(time_s=1)).device is not None
    far[0, 2] = far[2, 0] = math.inf  # now the cloud stands alone
    apart = dataclasses.replace(problem, net=dataclasses.replace(whole, wan=nets.Matrix(far)))
    found = strategy(name)(apart, Budget(time_s=1))
    assert found.status == "infeasible"
    assert found.proven
    assert "there is no route between 'site-0/0', where step 's0' is pinned, and 'cloud-0'" in found.reason
    assert "no route" in explain(apart, Budget(time_s=1)).reasons[0]
