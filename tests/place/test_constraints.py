"""Pins, company, trust and targets: kept by every strategy, refused when they contradict."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given

from headwater import net as nets
from headwater.errors import NetError, PlacementError
from headwater.place import Budget, Constraints, constrain, strategy, violations
from properties import examples

from .strategies import queue_problem, seeds

GREEDY = ("aels", "aels-rp", "aels-rp-la", "tcep", "cloud-only")


def guarded_net(seed: int = 0) -> nets.Net:
    net = nets.cloud_edge(2, 3, 3, seed=seed)
    return dataclasses.replace(net, trust=("open", "open", "inside", "inside", "open"))


def chain(net: nets.Net, **changes):
    """s0 → s1 → s2 → s3 → s4 with free inner steps."""
    n = 5
    fields = {
        "stream_from": np.arange(n - 1),
        "stream_to": np.arange(1, n),
        "rate_hz": np.full(n, 1000.0),
        "stream_hz": np.full(n - 1, 1000.0),
        "stream_bytes": np.full(n - 1, 200.0),
        "pinned": np.array([net.device("site-0/0"), -1, -1, -1, net.device("cloud-1")]),
    }
    return queue_problem(1, n=n, net=net, **(fields | changes))


def trust_of(problem, device: int) -> str:
    return problem.net.trust[int(problem.net.zone_of(device))]


@pytest.mark.parametrize("name", [*GREEDY, "best", "exact", "anneal", "genetic", "random", "brute-force"])
def test_a_confined_stream_stays_in_its_zone_until_it_is_anonymised(name):
    net = guarded_net()
    problem = constrain(chain(net), Constraints(keep={"s0": "inside"}, anonymise=frozenset({"s2"})))
    found = strategy(name)(problem, Budget(time_s=60))
    if found.device is None:  # these want the cloud for a step whose sink is there, and cannot keep it inside
        assert name in ("cloud-only", "tcep", "aels-rp", "aels-rp-la")
        return
    assert violations(problem, found.device.tolist()) == []
    assert [trust_of(problem, int(found.device[i])) for i in (0, 1, 2)] == ["inside"] * 3


def test_without_an_anonymising_step_nothing_downstream_may_leave():
    net = guarded_net()
    inside_only = chain(net, pinned=np.array([net.device("site-0/0"), -1, -1, -1, net.device("site-1/2")]))
    found = strategy("best")(constrain(inside_only, Constraints(keep={"s0": "inside"})), Budget(time_s=60))
    assert {trust_of(inside_only, int(d)) for d in found.device} == {"inside"}


def test_the_verifier_sees_a_step_outside_its_trust_zone():
    net = guarded_net()
    problem = constrain(chain(net), Constraints(keep={"s0": "inside"}, anonymise=frozenset({"s2"})))
    device = np.array([net.device("site-0/0"), 0, net.device("site-0/0"), 0, net.device("cloud-1")])
    assert [v.kind for v in violations(problem, device.tolist())] == ["zone"]


CONTRADICTIONS = {
    "a sink pinned outside": (Constraints(keep={"s0": "inside"}), "its input must not go there"),
    "an unknown trust zone": (Constraints(keep={"s0": "insde"}), "no trust zone 'insde'; it has 'inside', 'open'"),
    "two zones at once": (Constraints(keep={"s0": "inside", "s1": "open"}), "must stay in 'inside' and 'open'"),
    "an unknown step": (Constraints(keep={"s9": "inside"}), "no step 's9'"),
    "a closed pin": (
        Constraints(closed=frozenset({"site-0/0"})),
        "step 's0' is pinned to 'site-0/0', which is closed",
    ),
    "pins that cannot be together": (Constraints(together=(("s0", "s4"),)), "must share a device"),
    "an unknown measure": (Constraints(at_most={"latency": 1.0}), "unknown measure 'latency'"),
    "a negative target": (Constraints(at_most={"critical": -1.0}), "must be 0 or more; got -1"),
}


@pytest.mark.parametrize("what", CONTRADICTIONS)
def test_a_contradicting_wish_is_refused_with_its_reason(what):
    constraints, message = CONTRADICTIONS[what]
    with pytest.raises(PlacementError, match=message):
        constrain(chain(guarded_net()), constraints)


def test_a_pin_names_a_site_for_any_of_its_devices():
    net = guarded_net()
    free = chain(net, pinned=np.array([net.device("site-0/0"), -1, -1, -1, -1]))
    problem = constrain(free, Constraints(pins={"s1": "site-1", "s4": "cloud-1"}))
    assert problem.pinned[problem.step("s4")] == net.device("cloud-1")
    assert problem.zone_allowed is not None
    at_site = np.flatnonzero(problem.zone_allowed[problem.step("s1")])
    assert [net.zones[zone] for zone in at_site] == ["site-1"]
    found = strategy("best")(problem, Budget(time_s=60))
    assert found.device is not None
    assert net.zones[int(net.zone_of(int(found.device[problem.step("s1")])))] == "site-1"


def test_a_pin_to_a_site_that_a_steps_input_must_not_go_to_is_refused():
    with pytest.raises(PlacementError, match=r"step 's1' is pinned to site 'site-2' .* its input must not go there"):
        constrain(chain(guarded_net()), Constraints(keep={"s0": "inside"}, pins={"s1": "site-2"}))


def test_a_pin_to_an_unknown_device_names_it():
    with pytest.raises(NetError, match="no device 'site-9/0'"):
        constrain(chain(guarded_net()), Constraints(pins={"s1": "site-9/0"}))


@given(seeds)
@examples(20)
def test_greedy_strategies_keep_pins_closures_and_company(seed):
    problem = queue_problem(seed, n=8)
    lost = int(np.random.default_rng(seed).integers(len(problem.net)))
    if lost in problem.pinned:
        return
    problem = dataclasses.replace(problem, closed=frozenset({lost}), together=((2, 3),))
    for name in GREEDY:
        found = strategy(name)(problem, None)
        if found.device is not None:
            assert violations(problem, found.device.tolist()) == []
            assert lost not in found.device
            assert found.device[2] == found.device[3]


def test_a_step_that_must_join_a_pinned_one_is_pinned_with_it():
    net = guarded_net()
    problem = constrain(chain(net), Constraints(together=(("s2", "s4"),)))
    assert problem.pinned[2] == problem.pinned[4] == net.device("cloud-1")
    for name in (*GREEDY, "best"):
        found = strategy(name)(problem, Budget(time_s=60))
        assert found.device is not None, name
        assert found.by_name["s2"] == "cloud-1"


def test_a_net_in_two_parts_is_infeasible_for_a_flow_that_spans_both():
    net = guarded_net()
    cut = net.without_links([(a, b) for a in range(5) for b in range(a + 1, 5)])
    found = strategy("best")(chain(cut), Budget(time_s=60))
    assert found.status == "infeasible"
    assert "there is no route between" in strategy("aels")(chain(cut), None).reason


def test_an_unknown_strategy_suggests_the_near_one():
    with pytest.raises(PlacementError, match="no strategy 'ales'; did you mean 'aels'"):
        strategy("ales")
