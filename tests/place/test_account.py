"""The account, the explanation, repairs, fleets and what-ifs."""

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given

from headwater import net as nets
from headwater.errors import PlacementError
from headwater.place import Budget, Constraints, Objective, constrain, strategy, violations
from headwater.place.account import account
from headwater.place.explain import explain
from headwater.place.fleet import Fleet, uses
from headwater.place.picture import draw
from headwater.place.render import render
from headwater.place.repair import repair
from headwater.place.what_if import front, headroom, least
from headwater_bench.cases import ghosh, replica
from properties import examples

from .strategies import cep_problem, queue_problem, seeds

KEYS = {"status", "value", "bound", "gap", "placement", "paths", "devices", "links", "binding", "seconds"}


def test_the_account_has_the_keys_that_scripts_rely_on_and_is_plain_json():
    problem = cep_problem(5, size=8)
    document = account(strategy("exact")(problem, None))
    assert set(document) >= KEYS
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["status"] == "optimal"
    assert document["gap"] == 0.0
    assert set(document["placement"]) == set(problem.steps)


def test_the_slowest_path_is_as_long_as_the_objective_says():
    document = account(strategy("exact")(cep_problem(5, size=8), None))
    slowest = document["paths"][0]
    assert slowest["latency_s"] == pytest.approx(document["value"])
    assert slowest["steps"][0] == "q0"
    assert slowest["in_steps_s"] < slowest["latency_s"]


def test_loads_in_the_account_are_those_of_the_steps():
    problem = queue_problem(7, n=8, dense=True)
    found = strategy("best")(problem, Budget(time_s=60))
    document = account(found)
    total = sum(row["utilisation"] for row in document["devices"])
    kinds = problem.net.class_of[found.device]
    expected = sum(problem.rate_hz[i] * problem.service_s[i, kinds[i]] for i in range(8))
    assert total == pytest.approx(expected)
    assert sorted(step for row in document["devices"] for step in row["steps"]) == sorted(problem.steps)


def test_the_next_best_alternative_is_not_better_and_a_forbidden_one_says_why():
    problem = queue_problem(3, n=6)
    document = account(strategy("exact")(problem, None))
    assert document["alternative"]["next_best"]["worse_by"] >= -1e-12
    tight = dataclasses.replace(problem, memory_bytes=np.where(problem.pinned < 0, 6e8, 0.0))
    other = account(strategy("exact")(tight, None))
    assert "MB" in other["alternative"]["forbidden"]["because"]


def test_a_battery_shows_its_hours_and_binds_when_it_is_nearly_empty():
    problem = constrain(cep_problem(5, size=6), Constraints(pins={"q1": "field/0"}))
    document = account(strategy("exact")(problem, None))
    hours = [row["hours_to_empty"] for row in document["devices"] if row.get("hours_to_empty")]
    assert hours
    assert min(hours) > 24  # the battery must last to its daily recharge
    assert {row["kind"] for row in document["binding"]} == {"cpu", "memory", "energy"}


def test_the_account_in_words_names_steps_devices_and_the_proof():
    text = render(account(strategy("exact")(cep_problem(5, size=6), None)))
    assert "optimal by exact" in text
    assert "proven" in text
    assert "q1" in text
    assert "next best" in text


def test_a_picture_is_drawn_and_nothing_is_drawn_of_nothing(tmp_path):
    draw(strategy("exact")(cep_problem(5, size=6), None), tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    impossible = queue_problem(3, memory_bytes=np.full(6, 2e13))
    with pytest.raises(PlacementError, match="nothing to draw"):
        draw(strategy("aels")(impossible, None), tmp_path / "q.png")


def test_infeasibility_names_the_smallest_conflict_and_a_relaxation_that_works():
    dag = next(d for d in replica.shipped() if d.name == "20_4_1")
    problem = ghosh.problem(dag, 1000)
    why = explain(problem, Budget(time_s=300))
    assert 1 <= len(why.steps) <= 4
    lowered = next(text for text in why.relaxations if text.startswith("rates lowered"))
    percent = float(lowered.split()[3])
    assert 0 < percent < 60
    slower = ghosh.problem(dag, 1000 * (1 - percent / 100) * 0.999)
    assert strategy("exact")(slower, Budget(time_s=300)).device is not None


def test_a_step_too_big_for_every_device_is_named_with_what_is_free():
    problem = queue_problem(3, memory_bytes=np.array([0, 0, 2e13, 0, 0, 0]))
    why = explain(problem, Budget(time_s=60))
    assert why.steps == ("s2",)
    assert "no device can hold step 's2'" in why.reasons[0]
    assert any("more memory" in text for text in why.relaxations)


def test_a_target_that_is_too_tight_says_which_would_do():
    problem = cep_problem(5, size=6)
    least_s = strategy("exact")(problem, None).value
    asked = dataclasses.replace(problem, at_most=(((("critical", 1.0),), least_s / 2),))
    why = explain(asked, Budget(time_s=60))
    target = next(text for text in why.relaxations if "critical" in text)
    assert float(target.split("of ")[1].split()[0]) == pytest.approx(least_s, rel=0.02)


@given(seeds)
@examples(25)
def test_a_repair_moves_only_what_it_must(seed):
    problem = queue_problem(seed, n=8, net=nets.cloud_edge(3, 4, 4, seed=seed))
    before = strategy("best")(problem, Budget(time_s=0.1)).device
    if before is None:
        return
    movable = [int(d) for i, d in enumerate(before) if problem.pinned[i] < 0 and d not in problem.pinned]
    if not movable:
        return
    lost = dataclasses.replace(problem, closed=frozenset({movable[0]}))
    mended = repair(lost, before)
    assert mended.device is not None
    assert violations(lost, mended.device.tolist()) == []
    moved = np.flatnonzero(mended.device != before)
    assert set(moved) == {i for i in range(8) if before[i] == movable[0]}
    assert mended.notes["moves"] == len(moved)


def test_a_lost_link_moves_what_it_cut_off():
    net = nets.cloud_edge(2, 2, 2, seed=3)
    ends = np.array([net.device("site-0/0"), -1, -1, -1, net.device("site-0/1")])
    chain = {
        "stream_from": np.arange(4),
        "stream_to": np.arange(1, 5),
        "rate_hz": np.full(5, 100.0),
        "stream_hz": np.full(4, 100.0),
        "stream_bytes": np.full(4, 100.0),
        "pinned": ends,
    }
    problem = queue_problem(1, n=5, net=net, **chain)
    before = np.where(ends >= 0, ends, net.device("cloud-0"))
    assert violations(problem, before.tolist()) == []
    cut = dataclasses.replace(problem, net=net.without_links([(0, 2)]))
    assert {v.kind for v in violations(cut, before.tolist())} == {"disconnected"}
    mended = repair(cut, before)
    assert violations(cut, mended.device.tolist()) == []
    assert mended.notes["moves"] == 2  # the ends of the chain step aside, its middle can stay


def test_an_unchanged_problem_needs_no_move():
    problem = queue_problem(2, n=8)
    before = strategy("best")(problem, None).device
    assert repair(problem, before).notes["moves"] == 0


def test_a_rate_that_grows_moves_steps_off_the_crowded_device():
    problem = queue_problem(4, n=6, net=nets.cloud_edge(1, 1, 3), pinned=np.array([1, -1, -1, -1, -1, 1]))
    busy = dataclasses.replace(problem, service_s=np.where(problem.service_s > 0, 0.2 / problem.rate_hz[:, None], 0))
    before = np.full(6, 1)
    assert violations(busy, before.tolist()) == []
    grown = dataclasses.replace(
        busy,
        rate_hz=busy.rate_hz * 1.5,
        stream_hz=busy.stream_hz * 1.5,
        stream_bytes=np.full(len(busy.stream_hz), 10.0),
    )
    assert violations(grown, before.tolist())
    mended = repair(grown, before)
    assert violations(grown, mended.device.tolist()) == []
    assert 1 <= mended.notes["moves"] <= 3


def test_spare_moves_are_spent_on_what_gains_most():
    problem = queue_problem(6, n=8)
    clouds = np.where(problem.pinned >= 0, problem.pinned, 0)
    assert not violations(problem, clouds.tolist())  # the first cloud can hold the flow
    kept, improved = repair(problem, clouds), repair(problem, clouds, spare_moves=3)
    assert kept.notes["moves"] == 0
    assert improved.notes["moves"] <= 3
    assert improved.value <= kept.value


def test_flows_share_a_net_and_leave_it_as_they_found_it():
    net = nets.cloud_edge(1, 1, 2)
    fleet = Fleet(net)
    heavy = {"memory_bytes": np.array([0.0, 4e8, 4e8, 0.0]), "pinned": np.array([1, -1, -1, 1])}
    first = queue_problem(1, n=4, net=net, name="first", **heavy)
    second = queue_problem(2, n=4, net=net, name="second", **heavy)
    a = fleet.add(first)
    used = fleet.device_use()
    b = fleet.add(second)
    assert a.device is not None
    assert b.device is not None
    total = fleet.device_use()
    for d, use in total.items():
        assert use.memory_bytes <= net.classes[int(net.class_of[d])].memory_bytes
    with pytest.raises(PlacementError, match="placed already"):
        fleet.add(first)
    fleet.remove("second")
    assert fleet.device_use() == used
    with pytest.raises(PlacementError, match="no flow 'second'"):
        fleet.remove("second")


def test_a_fleet_mends_the_flows_of_a_lost_device():
    net = nets.cloud_edge(2, 2, 3)
    fleet = Fleet(net)
    problem = queue_problem(1, n=6, net=net, name="one", pinned=np.array([2, -1, -1, -1, -1, 3]))
    placed = fleet.add(problem)
    hosts = {int(d) for i, d in enumerate(placed.device) if problem.pinned[i] < 0} - {2, 3}
    lost = min(hosts) if hosts else 4
    mended = fleet.lose(net.device_name(lost))
    assert set(mended) == ({"one"} if hosts else set())
    assert lost not in fleet.placements["one"].device


@pytest.mark.parametrize("make", [queue_problem, cep_problem])
def test_losing_the_device_of_a_pinned_step_is_infeasible_and_says_so(make):
    problem = make(3)
    before = strategy("best")(problem, Budget(time_s=60)).device
    lost = dataclasses.replace(problem, closed=frozenset({int(problem.pinned[0])}))
    for found in (repair(lost, before, Budget(time_s=60)), strategy("exact")(lost, Budget(time_s=2))):
        assert found.status == "infeasible"
        assert found.reason


def test_uses_add_up_to_the_account():
    problem = queue_problem(9, n=7)
    found = strategy("aels")(problem, None)
    by_device = uses(problem, found.device)
    rows = {row["device"]: row for row in account(found, alternatives=False)["devices"]}
    for d, use in by_device.items():
        row = rows[problem.net.device_name(d)]
        assert use.utilisation == pytest.approx(row["utilisation"])
        assert use.access_bps == pytest.approx(row["access_bps"])


def test_what_if_asks_for_the_fewest_devices_within_a_latency():
    problem = cep_problem(9, size=8)
    fast = strategy("exact")(problem, None)
    few = least(problem, "devices", latency_s=fast.value * 1.2)
    assert few.status == "optimal"
    assert few.score.critical <= fast.value * 1.2
    assert few.score.devices <= fast.score.devices
    assert least(problem, "devices", latency_s=fast.value * 0.9).status == "infeasible"


def test_a_front_leads_from_the_fastest_to_the_cheapest_and_nothing_on_it_is_dominated():
    net = nets.cloud_edge(2, 2, 2, classes=(nets.PI_2, nets.PI_3, dataclasses.replace(nets.RYZEN, price_per_hour=0.5)))
    problem = queue_problem(3, n=5, net=net, dense=True, pinned=np.array([2, -1, -1, -1, -1]))
    found = front(problem, "critical", "money", points=4, budget=Budget(time_s=40))
    assert found
    seconds, money = ([f.score.measure(m) for f in found] for m in ("critical", "money"))
    assert seconds == sorted(seconds)
    assert money == sorted(money, reverse=True)
    assert all(violations(problem, f.device.tolist()) == [] for f in found)
    assert seconds[0] == pytest.approx(strategy("exact")(problem, Budget(objective=Objective.parse("critical"))).value)
    with pytest.raises(PlacementError, match="at least 2 points"):
        front(problem, "critical", "money", points=1)


def test_headroom_is_the_factor_at_which_the_placement_breaks():
    problem = cep_problem(9, size=8, rate=100.0)
    device = strategy("exact")(problem, None).device
    factor = headroom(problem, device)
    assert factor > 1
    for f, broken in ((factor * 0.999, False), (factor * 1.01, True)):
        grown = dataclasses.replace(problem, rate_hz=problem.rate_hz * f, stream_hz=problem.stream_hz * f)
        assert bool(violations(grown, device.tolist())) is broken


def test_a_heuristic_that_fails_does_not_claim_a_proof():
    impossible = queue_problem(3, memory_bytes=np.full(6, 2e13))
    document = account(strategy("aels")(impossible, None))
    assert document["status"] == "infeasible"
    assert document["proven"] is False
    assert document["value"] is None
    assert math.isinf(strategy("aels")(impossible, None).gap)


def test_a_mix_of_latency_and_devices_lies_between_its_parts():
    problem = queue_problem(5, n=6)
    alone = strategy("exact")(problem, Budget(objective=Objective.parse("aggregate"))).score
    mixed = strategy("exact")(problem, Budget(objective=Objective.parse("aggregate + 0.05 * devices"))).score
    few = strategy("exact")(problem, Budget(objective=Objective.parse("devices then aggregate"))).score
    assert few.devices <= mixed.devices <= alone.devices
    assert alone.aggregate <= mixed.aggregate + 1e-9 <= few.aggregate + 1e-6
