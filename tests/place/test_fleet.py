"""Several flows on one net: what each takes counts for the others, and none breaks another."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given

from headwater import net as nets
from headwater.net.device import DeviceClass
from headwater.place import Budget, Constraints, DeviceUse, Model, Problem, constrain, strategy, violations
from headwater.place.fleet import Fleet, uses
from properties import examples

from .strategies import queue_problem, seeds

BOX = DeviceClass("box", 1e9)
NET = nets.pis_and_vm(2, lan_s=2e-3, pi=BOX, vm=DeviceClass("rented", 1e9, cloud=True))


def flow(name: str, model: Model, *, rate: float, service_s: float, steps: int = 1, at: str = "field/0", **changes):
    """A source on a device and a chain of steps after it, which may run anywhere."""
    n = steps + 1
    problem = Problem(
        name=name,
        net=NET,
        model=model,
        steps=("source", *(f"step {i}" for i in range(1, n))),
        service_s=np.repeat(np.array([0.0] + [service_s] * steps)[:, None], 2, axis=1),
        rate_hz=np.full(n, rate),
        stream_from=np.arange(steps),
        stream_to=np.arange(1, n),
        stream_hz=np.full(steps, rate),
        stream_bytes=np.full(steps, 10.0),
        pinned=np.full(n, -1),
    )
    return constrain(problem, Constraints(pins={"source": at}, **changes))


def pinned_to(problem: Problem, device: str) -> Problem:
    return constrain(problem, Constraints(pins=dict.fromkeys(problem.steps, device)))


def test_flows_that_together_break_round_robin_are_not_put_on_one_device():
    fleet, budget = Fleet(NET), Budget(time_s=1)
    slow = pinned_to(flow("slow", Model.ROUND_ROBIN, rate=10, service_s=4e-3, steps=2), "field/0")
    quick = pinned_to(flow("quick", Model.ROUND_ROBIN, rate=200, service_s=1e-4), "field/0")
    assert fleet.add(slow, budget).device is not None
    # one turn would take 8.1 ms, and the quick one brings a record every 5 ms, though the device is 10 % busy
    refused = fleet.add(quick, budget)
    assert refused.device is None
    elsewhere = fleet.add(flow("quick", Model.ROUND_ROBIN, rate=200, service_s=1e-4), budget)
    assert elsewhere.by_name["step 1"] != "field/0"
    assert fleet.violations() == {"slow": [], "quick": []}


@pytest.mark.parametrize("solve", ["best", "aels", "anneal", "exact", "brute-force", "random"])
def test_every_strategy_minds_the_turns_of_other_flows(solve):
    busy = dataclasses.replace(
        flow("more", Model.ROUND_ROBIN, rate=100, service_s=1e-3), taken={0: DeviceUse(turn_s=1e-2, fastest_hz=50.0)}
    )
    found = strategy(solve)(busy, Budget(time_s=1))
    assert found.by_name["step 1"] != "field/0"
    there = dataclasses.replace(busy, rate_hz=busy.rate_hz / 100)
    late = dataclasses.replace(there, taken={0: DeviceUse(turn_s=1e-2, fastest_hz=95.0)})
    assert {v.kind for v in violations(late, [0, 0])} == {"rate"}


@pytest.mark.parametrize("model", [Model.SHARED, Model.ENGINE, Model.ROUND_ROBIN])
def test_a_later_flow_does_not_break_an_earlier_ones_target(model):
    fleet, budget = Fleet(NET), Budget(time_s=1)
    promised = flow("promised", model, rate=100, service_s=2e-3, at_most={"critical": 2.6e-3})
    first = fleet.add(promised, budget)
    assert first.by_name["step 1"] == "field/0"
    second = fleet.add(flow("second", model, rate=100, service_s=2e-3), budget)
    assert second.device is not None
    assert second.by_name["step 1"] != "field/0"
    assert not second.proven
    assert fleet.violations() == {"promised": [], "second": []}
    stuck = pinned_to(flow("stuck", model, rate=100, service_s=2e-3), "field/0")
    refused = fleet.add(stuck, budget)
    assert refused.device is None
    assert "would break flow 'promised': critical is" in refused.reason
    assert "stuck" not in fleet.placements


def test_a_flow_knows_what_came_after_it():
    fleet, budget = Fleet(NET), Budget(time_s=1)
    fleet.add(pinned_to(flow("one", Model.SHARED, rate=100, service_s=2e-3), "field/0"), budget)
    alone = fleet.placements["one"].value
    assert alone == pytest.approx(2e-3 / 0.8)
    fleet.add(pinned_to(flow("two", Model.SHARED, rate=100, service_s=2e-3), "field/0"), budget)
    assert fleet.placements["one"].value == pytest.approx(2e-3 / 0.6)
    fleet.remove("two")
    assert fleet.placements["one"].value == pytest.approx(alone)


def test_a_loss_is_mended_without_breaking_those_who_stay():
    fleet, budget = Fleet(NET), Budget(time_s=1)
    fleet.add(pinned_to(flow("stays", Model.SHARED, rate=100, service_s=2e-3, at_most={"critical": 2.6e-3}), "field/1"))
    moving = dataclasses.replace(flow("moves", Model.SHARED, rate=100, service_s=2e-3), pinned=np.full(2, -1))
    moving = constrain(moving, Constraints(closed=frozenset({"vm"})))
    fleet.add(moving, budget)
    assert set(fleet.placements["moves"].by_name.values()) == {"field/0"}
    mended = fleet.lose("field/0", budget)["moves"]
    assert mended.device is None  # only where it would make the other one late
    assert "would break flow 'stays'" in mended.reason
    assert fleet.violations() == {"stays": []}


@given(seeds)
@examples(15)
def test_all_flows_together_are_one_valid_placement(seed):
    net = nets.cloud_edge(1, 2, 2, seed=seed)
    fleet = Fleet(net)
    models = list(Model)
    for number in range(4):
        problem = queue_problem(seed + number, n=4, net=net, dense=True, model=models[(seed + number) % 4])
        fleet.add(dataclasses.replace(problem, name=f"flow {number}"), Budget(time_s=0.2))
    assert all(not broken for broken in fleet.violations().values())
    whole = fleet.device_use()
    for name, placement in fleet.placements.items():
        own = uses(placement.problem, placement.device)
        for device, use in own.items():
            rest = fleet.device_use(but=name).get(device, DeviceUse())
            assert whole[device].utilisation == pytest.approx(use.utilisation + rest.utilisation)
            assert whole[device].fastest_hz == max(use.fastest_hz, rest.fastest_hz)
