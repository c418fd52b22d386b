"""Policies decide: pure, so that sites, prices, ledgers and time are plain values here."""

import random
from contextlib import contextmanager
from itertools import pairwise

import msgspec
import pytest

from headwater import __version__
from headwater.deploy.control.messages import PROTOCOL, Hello, Lane, PartState, Report, Resources
from headwater.deploy.coordinator.events import Heard, Joined
from headwater.deploy.coordinator.machine import Coordinator
from headwater.deploy.coordinator.policing import Policing
from headwater.deploy.coordinator.stages import Stages
from headwater.deploy.coordinator.state import CoordinatorState, Deployment
from headwater.deploy.cut import Cut
from headwater.deploy.policies import POLICIES, policy_named
from headwater.deploy.policies.deciding import Decider, Windows
from headwater.deploy.policies.planning import Planner
from headwater.deploy.policies.policy_state import Decision, PolicyState
from headwater.deploy.policies.telling import told_measured
from headwater.deploy.policies.view import View, idlest_load, view_of, who_goes
from headwater.deploy.promise import cores_of_steps, part_cores, promise_of
from headwater.errors import PlacementError, RunError
from headwater.flow.contract import Contract
from headwater.place.from_flow import GATHER_S, bridge_s
from headwater.rate.estimate import cores
from policed_tanks import MOVABLE, PRICES, at, carried_out, decided, policed, profile, tanks, views

FAR = {"pins": {"archive": "barn"}}


def test_a_cheaper_site_that_joins_is_taken_after_a_while_and_why_is_told():
    decider, sites = Decider(tanks(), policed(whole=True)), at("cloud")
    assert decided(decider, 0.0, views("barn", "cloud", **keep_off_barn()), sites)[0] is None
    decision, when = decided(decider, 100.0, views("barn", "cloud", "edge1", "edge2", **keep_off_barn()), sites)
    assert when == 105.0
    assert decision.moves == dict.fromkeys(MOVABLE, ("cloud", "edge1"))
    assert not decision.forced
    assert "site 'edge1' has joined" in decision.why
    assert "money 1.1 → 0.35" in decision.why
    assert decision.expects["money"] == pytest.approx((1.1, 0.35))
    assert decision.expects["state_bytes"] == (0.0, 100_000.0)


def keep_off_barn():
    """The barn has sensors and nothing to spare: steps that can move are elsewhere."""
    return {"barn": View("barn", here=True, price=0.1, why="it is a gate post")}


def test_prices_that_change_are_followed_but_not_at_once_and_not_for_little():
    decider, sites = Decider(tanks(), policed(whole=True)), at("edge1")
    everywhere = views("barn", "cloud", "edge1", "edge2", **keep_off_barn())
    assert decided(decider, 0.0, everywhere, sites)[0] is None
    dearer = everywhere | {"edge1": View("edge1", here=True, price=0.52)}
    assert decided(decider, 50.0, dearer, sites, for_s=30)[0] is None  # 3 % are not worth a move
    dearer["edge1"] = View("edge1", here=True, price=0.9)
    decision, _ = decided(decider, 100.0, dearer, sites)
    assert {to for _, to in decision.moves.values()} == {"edge2"}
    assert "price at 'edge1' 0.25 → 0.9" in decision.why
    sites = carried_out(decider, decision, sites)
    _, when = decided(decider, 110.0, everywhere, sites, for_s=100)
    assert when >= decision.at_s + 60.0


def test_carbon_of_a_site_that_tells_none_is_not_guessed():
    decider, sites = Decider(tanks(), policed("min-carbon", whole=True)), at("cloud")
    told = views("barn", "cloud", "edge1", "edge2", **keep_off_barn())
    told |= {"cloud": View("cloud", here=True, carbon=300.0), "edge2": View("edge2", here=True, carbon=40.0)}
    decision, _ = decided(decider, 0.0, told, sites)
    assert {to for _, to in decision.moves.values()} == {"edge2"}


def test_where_no_site_tells_its_carbon_that_is_what_is_said():
    planner = Planner(tanks(), policed("min-carbon", **FAR).asked, None, policy_named("min-carbon"))
    with pytest.raises(PlacementError) as refused:
        planner.anew(views("barn", "cloud", "edge1"))
    assert "'cloud' tells no carbon intensity (--carbon); 'edge1' tells no carbon intensity (--carbon)" in str(
        refused.value
    )
    assert "'edge2' is away" in str(refused.value)


def test_near_sources_and_min_latency_bring_steps_to_the_sensors():
    for name in ("near-sources", "min-latency"):
        decision, _ = decided(Decider(tanks(), policed(name)), 0.0, views(*PRICES), at("cloud"))
        assert decision.moves == dict.fromkeys(MOVABLE, ("cloud", "barn"))


def test_waits_at_bridges_count_in_what_a_policy_expects():
    slowest = [
        Decider(tanks(), policed("min-latency", every=every)).worth(views(*PRICES), at("cloud"))["critical"]
        for every in (None, "1 s")
    ]
    assert slowest[1] == pytest.approx(
        slowest[0] + GATHER_S + 2 * bridge_s("1 s")
    )  # from the barn to the cloud, and back


def test_fixed_is_a_policy_that_plans_nothing_and_an_unknown_one_is_told():
    assert policy_named("fixed").objective == ""
    assert {policy_named(name).name for name in POLICIES} == set(POLICIES)
    with pytest.raises(RunError, match=r"there is no policy 'min-coast'.*did you mean 'min-cost'"):
        policy_named("min-coast")


def test_a_site_that_is_away_is_waited_for_because_the_state_is_there():
    decider = Decider(tanks(), policed())
    assert decided(decider, 0.0, views("barn", "cloud", "edge2"), at("edge1"))[0] is None
    assert decider.waits == "sites 'edge1' are away, and the state of their steps is there"


# -- promises -------------------------------------------------------------------------------------------------------------

CONTRACT = Contract(1000.0, 0.04)


def test_a_flow_that_is_promised_goes_to_the_cheapest_site_that_admits_it():
    planner = Planner(tanks(), policed(contract=CONTRACT, **FAR).asked, CONTRACT, policy_named("min-cost"))
    whole = sum(cores_of_steps(CONTRACT, profile().demand).values()) + part_cores(CONTRACT, profile().demand)
    assert 0.3 < whole < 0.8
    seen = views("barn", "cloud", "edge1", "edge2", **keep_off_barn())
    assert {planner.anew(seen)[step] for step in MOVABLE} == {"edge1"}
    seen["edge1"] = View("edge1", here=True, price=0.25, free=0.1)
    assert {planner.anew(seen)[step] for step in MOVABLE} == {"edge2"}
    for name in ("cloud", "edge2"):
        seen[name] = View(name, here=True, price=PRICES[name], free=0.1)
    with pytest.raises(PlacementError) as refused:
        planner.anew(seen)
    assert "no site admits flow 'tanks'" in str(refused.value)
    assert f"It is promised 1 000/s within 40 ms, which takes {whole:.2f} cores in all" in str(refused.value)
    assert f"'edge1' has 0.10 cores to promise, where it takes {whole:.2f}" in str(refused.value)  # as fast as measured
    asked = msgspec.structs.replace(policed(contract=CONTRACT, **FAR).asked, measured_ips=5e9)
    told = Planner(tanks(), asked, CONTRACT, policy_named("min-cost")).no_site_admits(seen, "")
    assert f"'edge1' has 0.10 cores to promise, where it takes {5 * whole:.2f}" in told  # five times as slow
    seen["edge1"] = View("edge1", here=True, price=0.25, free=0.1, core_ips=2.5e9)  # played by a machine that is faster
    told = Planner(tanks(), asked, CONTRACT, policy_named("min-cost")).no_site_admits(seen, "")
    assert f"'edge1' has 0.10 cores to promise, where it takes {2 * whole:.2f}" in told


def test_the_least_that_makes_room_leaves_a_site_that_has_promised_too_much():
    lanes = [Lane("a", "etl", 1, 0.4), Lane("b", "stats", 2, 0.5), Lane("c", "pred", 3, 0.2)]
    assert who_goes(lanes, 1.2) is None
    assert who_goes(lanes, 1.0).flow == "pred"
    assert who_goes(lanes, 0.8).flow == "etl"
    assert who_goes(lanes, 0.3).flow == "pred"  # nobody is enough: the least first

    def seen(pid, capacity):
        resources = Resources(cores=2.0, free_memory_bytes=0, capacity=capacity, lanes=lanes)
        report = Report([], 0.5, 0.0, 0, 0, resources)
        return view_of("edge1", report, here=True, pid=pid, price=0.25, idlest=idlest_load({"edge1": report}))

    assert seen(3, 1.0).free == 0.0
    assert "has promised 1.10 cores and can keep 1.00; 'pred', with 0.20 of them" in seen(3, 1.0).why
    assert (seen(1, 1.0).free, seen(1, 1.0).why) == (0.4, "")  # it stays as it is
    assert seen(None, 2.0).free == 0.8  # a lane is never more than that


def test_a_site_that_cannot_keep_a_promise_is_left_and_left_alone_for_a_while():
    decider, sites = Decider(tanks(), policed(contract=CONTRACT, whole=True, **FAR)), at("edge1")
    seen = views("barn", "cloud", "edge1", "edge2", **keep_off_barn())
    decision = None
    for second in range(120):
        kept = min(second, 70)
        decision = decider.decide(float(second), seen, sites, {"edge1": Windows(kept, second - kept)})
        if decision is not None:
            break
    assert decision.forced
    assert {to for _, to in decision.moves.values()} == {"edge2"}
    assert "site 'edge1' broke its promise" in decision.why
    sites = carried_out(decider, decision, sites)
    back, when = decided(decider, decision.at_s + 1, seen, sites, for_s=400)
    assert {to for _, to in back.moves.values()} == {"edge1"}
    assert when > decision.at_s + 100.0
    kept = CoordinatorState(
        deployed=Deployment(id="t-1", name="tanks", flow="t.py", known=[], sites=sites, policed=decider.policed)
    )
    again = msgspec.json.decode(msgspec.json.encode(kept), type=CoordinatorState).deployed.policed
    assert again == decider.policed  # all of it survives a coordinator's end


def test_a_site_that_refuses_a_move_is_left_alone_longer_each_time_and_what_is_there_stays(tmp_path):
    decider, sites = Decider(tanks(), policed(whole=True, **FAR)), at("edge2")
    machine = Coordinator(CoordinatorState())
    policing = Policing(machine, tmp_path)
    deployed = Deployment(id="t-1", name="tanks", flow="t.py", known=[], sites=sites, policed=decider.policed)
    seen, tried = views(*PRICES, **keep_off_barn()), []
    for second in range(3600):
        decision = decider.decide(float(second), seen, sites, {})
        if decision is not None:
            assert decision.moves == dict.fromkeys(MOVABLE, ("edge2", "edge1"))
            tried.append(second)
            decider.policed.note(decision)
            with clock_at(second):
                assert policing.came(tanks(), deployed, Stages(), "site 'edge1': its disk is full", "edge1")
    waits = [b - a for a, b in pairwise(tried)]
    assert len(tried) <= 6
    assert all(b >= 1.9 * a for a, b in pairwise(waits)), waits
    assert decided(Decider(tanks(), decider.policed), 3600.0, seen, at("edge1"), for_s=20)[0] is None


@contextmanager
def clock_at(now_s):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headwater.deploy.coordinator.policing.time.time", lambda: float(now_s))
        yield


def test_where_the_site_that_steps_should_leave_refuses_the_one_they_should_go_to_is_left_alone():
    state = policed()
    decision = Decision(at_s=0.0, why="", forced=False, moves={"means": ("edge1", "edge2")}, expects={})
    state.refused(decision, "edge1", 10.0)
    assert (list(state.barred), state.barred["edge2"].until_s) == (["edge2"], 130.0)


def told_by_second(decider, sites, windows_at, seconds):
    """Return the first decision, where windows of edge1's promise are as they are told for each second."""
    seen = views("barn", "cloud", "edge1", "edge2", **keep_off_barn())
    for second in range(seconds):
        decision = decider.decide(float(second), seen, sites, {"edge1": windows_at(second)})
        if decision is not None:
            return decision
    return None


def test_a_promise_that_is_about_to_be_broken_is_left_before_it_is():
    decider = Decider(tanks(), policed(contract=CONTRACT, whole=True, **FAR))
    decision = told_by_second(decider, at("edge1"), lambda s: Windows(s, 0, max(0, s - 90)), 120)
    assert decision.forced
    assert {to for _, to in decision.moves.values()} == {"edge2"}
    assert "site 'edge1' is about to break its promise, and is left alone" in decision.why
    again = msgspec.json.decode(msgspec.json.encode(decider.policed), type=PolicyState)
    assert again == decider.policed


def test_a_promise_that_was_always_kept_by_a_hair_is_no_reason_to_go():
    decider = Decider(tanks(), policed(contract=CONTRACT, whole=True, **FAR))
    assert told_by_second(decider, at("edge1"), lambda s: Windows(s, 0, s), 200) is None


def test_a_ledger_that_shrank_makes_the_flow_move_soon_and_a_place_that_is_nowhere_is_told():
    decider, sites = Decider(tanks(), policed(contract=CONTRACT, whole=True, **FAR)), at("edge1")
    seen = views("barn", "cloud", "edge1", "edge2", **keep_off_barn())
    assert decided(decider, 0.0, seen, sites)[0] is None
    seen["edge1"] = View("edge1", here=True, price=0.25, free=0.0, why="site 'edge1' has promised too much")
    decision, when = decided(decider, 20.0, seen, sites)
    assert (decision.forced, decision.why, when) == (True, "site 'edge1' has promised too much", 25.0)
    for name in ("cloud", "edge2"):
        seen[name] = View(name, here=True, price=PRICES[name], free=0.05)
    assert decided(decider, 40.0, seen, sites)[0] is None
    assert "no site admits flow 'tanks'" in decider.waits
    assert "'edge2' has 0.05 cores to promise" in decider.waits


def test_what_parts_promise_is_what_comes_to_them():
    cut = Cut(tanks(), at("edge1"))
    edge = promise_of(cut, "edge1", CONTRACT, profile())
    assert edge.contract.rate_hz == pytest.approx(1000.0)
    assert set(edge.profile.demand.steps) == {*MOVABLE, "levels (received)", "means (sent)"}
    barn = promise_of(cut, "barn", CONTRACT, profile())
    assert barn.contract.rate_hz == pytest.approx(1000.0 + 1000.0 * 0.9 * 0.01)
    behind = promise_of(Cut(tanks(), at("edge1", means="edge2")), "edge2", CONTRACT, profile())
    assert behind.contract.rate_hz == pytest.approx(900.0)
    assert behind.profile.demand.steps["means"].scale == pytest.approx(1.0)
    assert edge.cores == pytest.approx(cores(edge.profile.demand, edge.contract.rate_hz, 0.01))
    least = sum(cores_of_steps(CONTRACT, profile().demand)[step] for step in MOVABLE)
    assert least < edge.cores <= least + part_cores(CONTRACT, profile().demand) + 1e-9  # a plan never asks too little


def test_what_was_moved_by_hand_stays_until_it_is_let_go_or_its_site_is_drained():
    decider, sites = Decider(tanks(), policed(**FAR)), at("edge1", means="cloud")
    seen = views(*PRICES, **keep_off_barn())
    decider.policed.hold({"means": "cloud"}, 0.0)
    again = Decider(tanks(), msgspec.json.decode(msgspec.json.encode(decider.policed), type=PolicyState))
    decision, _ = decided(again, 100.0, seen, sites, for_s=300)  # all others come to it: one rent is cheaper than two
    assert decision.moves == dict.fromkeys(("time", "sound"), ("edge1", "cloud"))
    whole = at("cloud")
    assert decided(again, 1000.0, seen, whole, for_s=300)[0] is None
    leaves = again.leaving(seen, whole, "cloud", 2000.0)
    assert leaves.moves == dict.fromkeys(MOVABLE, ("cloud", "edge1"))
    again.policed.let_go(["means"])
    assert decided(again, 3000.0, seen, whole)[0].moves == dict.fromkeys(MOVABLE, ("cloud", "edge1"))


def test_what_was_to_be_held_at_a_site_and_did_not_come_there_is_not_held():
    state = policed()
    state.hold({"means": "cloud", "sound": "edge1"}, 5.0)
    assert state.moved_s == [5.0]  # it rests after it
    state.hold_only(at("edge1"))
    assert state.held == {"sound": "edge1"}
    state.hold({"sound": "cloud", "means": "cloud"}, 9.0)
    state.hold_only(at("edge1"))  # that came to nothing too: it stays where somebody has moved it
    assert state.held == {"sound": "edge1"}
    state.let_go(["sound"])
    state.hold_only(at("edge1"))
    assert state.held == {}


@pytest.mark.parametrize("contract", [None, CONTRACT])
def test_a_clock_that_is_set_back_makes_a_policy_rest_no_longer_than_it_should(contract):
    decider, sites = Decider(tanks(), policed(contract=contract, whole=True, **FAR)), at("cloud")
    seen = views(*PRICES, **keep_off_barn())
    decision, when = decided(decider, 7200.0, seen, sites)
    sites = carried_out(decider, decision, sites)
    decider.policed.bar("edge2", when)
    dearer = seen | {"edge1": View("edge1", here=True, price=0.9)}
    assert decider.decide(when + 1, dearer, sites, {"edge1": Windows(1, 0)}) is None
    back, when = decided(decider, 3600.0, dearer, sites, {"edge1": Windows(1, 0)}, for_s=300)
    assert back is not None
    assert 3660.0 <= when <= 3730.0  # a rest, and until the dear one may be left for the one that was barred


def decided_at_rate(decider, sites, rate_at, seconds):
    """Return the decisions, where the source brings what is told for each second."""
    seen, decisions = views(*PRICES, **keep_off_barn()), []
    for second in range(seconds):
        decision = decider.decide(float(second), seen, sites, {}, {"levels": rate_at(second)})
        if decision is not None:
            sites = carried_out(decider, decision, sites)
            decisions.append(decision)
    return decisions


def test_what_sources_bring_now_counts_and_not_what_they_did_when_the_flow_was_deployed():
    state = policed("min-cost", whole=True)
    net = msgspec.json.decode(state.asked.net)
    net["classes"]["edge1"]["cpu_ips"] = 2e7  # 1000 records/s take 3.5 of it
    state.asked = msgspec.structs.replace(state.asked, net=msgspec.json.encode(net).decode())
    (decision,) = decided_at_rate(Decider(tanks(), state), at("cloud"), lambda s: 900.0, 60)
    assert {to for _, to in decision.moves.values()} == {"edge2"}
    state.moved_s = []
    (decision,) = decided_at_rate(Decider(tanks(), state), at("edge2"), lambda s: 1000.0 if s < 30 else 150.0, 200)
    assert {to for _, to in decision.moves.values()} == {"edge1"}
    assert "rate of 'levels' 1000 → 150 records/s" in decision.why
    assert state.rates_hz == {"levels": 150.0}
    promised = policed(contract=CONTRACT, whole=True)
    decided_at_rate(Decider(tanks(), promised), at("edge1"), lambda s: 150.0, 20)
    assert promised.rates_hz == {}  # what was promised counts


@pytest.mark.parametrize("seed", range(3))
def test_a_rate_that_wavers_or_stops_or_is_more_than_could_be_moves_nothing(seed):
    chance = random.Random(seed)
    state = policed("min-latency", whole=True)
    assert (
        decided_at_rate(Decider(tanks(), state), at("edge1"), lambda s: 1000.0 * chance.uniform(0.85, 1.2), 300) == []
    )
    assert state.rates_hz == {}
    assert decided_at_rate(Decider(tanks(), state), at("edge1"), lambda s: 0.0, 100) == []
    assert state.rates_hz == {}
    assert decided_at_rate(Decider(tanks(), state), at("edge1"), lambda s: 1e6 * chance.uniform(1, 3), 300) == []


# -- it does not flap -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("contract", [None, CONTRACT])
def test_however_sites_come_and_go_and_figures_jump_moves_are_bounded(seed, contract):
    chance = random.Random(seed)
    decider, sites, moves = Decider(tanks(), policed(contract=contract, whole=True, **FAR)), at("cloud"), 0
    prices, rooms, lasts_s = (0.05, 0.25, 0.5, 1.0), (0.0, 0.2, 0.8), 900
    seen = views(*PRICES, **keep_off_barn())
    for second in range(lasts_s):
        if second % 5 == 0:
            name = chance.choice(["cloud", "edge1", "edge2"])
            free, here = chance.choice(rooms), chance.random() < 0.9
            seen = seen | {name: View(name, here=here, price=chance.choice(prices), free=free)}
        decision = decider.decide(float(second), seen, sites, {})
        if decision is not None:
            sites, moves = carried_out(decider, decision, sites), moves + 1
    assert moves <= 2 + 2 * lasts_s / decider.policed.rest_s


@pytest.mark.parametrize("seed", range(3))
def test_noise_that_is_smaller_than_what_a_move_must_gain_moves_nothing(seed):
    chance = random.Random(seed)
    decider, sites = Decider(tanks(), policed(whole=True)), at("edge1")
    for second in range(0, 600, 5):
        around = {
            name: View(name, here=True, price=round(price * chance.uniform(0.98, 1.02), 3))
            for name, price in {"cloud": 1.0, "edge1": 0.25, "edge2": 0.25}.items()
        }
        assert decider.decide(float(second), views(*PRICES, **keep_off_barn()) | around, sites, {}) is None


# -- what came of it ------------------------------------------------------------------------------------------------------


def reported(machine, name, parts, clock_s):
    machine.handle(Heard(name, Report(parts, 0.0, clock_s, 10**12), clock_s))


def test_what_parts_measured_before_and_after_a_decision_is_told_beside_what_was_expected(tmp_path):
    state = policed(**FAR)
    streams = [("levels", "barn", "cloud"), ("means", "cloud", "barn")]
    deployed = Deployment(
        id="t-1", name="tanks", flow="t.py", known=[*PRICES], sites=at("cloud"), streams=streams, policed=state,
        phase="running",
    )  # fmt: skip
    machine = Coordinator(CoordinatorState(deployed=deployed))
    policing = Policing(machine, tmp_path)
    for name in ("barn", "cloud", "edge1"):
        machine.handle(Joined(name, Hello(name, __version__, PROTOCOL, "127.0.0.1", 2.0, 10**9)))

    def run_on(began_s, id, other, cores, p50, p99, hz):
        for second in range(15):
            sent, clock_s = {"levels (sent)": second * hz}, began_s + second
            reported(machine, "barn", [PartState(id, "running", sinks=sent, cores=0.2, delay_ms=(p50, p99))], clock_s)
            reported(machine, other, [PartState(id, "running", cores=cores, delay_ms=(99.0, 99.0))], clock_s)

    run_on(100.0, "t-1", "cloud", 0.6, 2.0, 9.0, 500)
    moves = dict.fromkeys(MOVABLE, ("cloud", "edge1"))
    decision = Decision(at_s=115.0, why="dear", forced=False, moves=moves, expects={"money": (1.1, 0.35)}, id="t-2")
    policing.note(tanks(), deployed, decision)
    before = {"cores": 0.8, "sinks_p50_ms": 2.0, "sinks_p99_ms": 9.0, "crossing_hz": 500.0}
    assert {name: was for name, (was, _) in decision.measured.items()} == pytest.approx(before)
    assert told_measured(decision) == ""
    deployed = machine.kept.deployed = msgspec.structs.replace(
        deployed, id="t-2", sites=at("edge1"), streams=[("levels", "barn", "edge1"), ("means", "edge1", "barn")]
    )
    with clock_at(120):
        assert policing.came(tanks(), deployed, Stages(), "")
    run_on(121.0, "t-2", "edge1", 0.3, 1.0, 4.0, 400)
    assert not policing.measure(tanks(), deployed, 130.0)  # too soon
    assert policing.measure(tanks(), deployed, 136.0)
    assert not policing.measure(tanks(), deployed, 140.0)  # once is enough
    after = {"cores": 0.5, "sinks_p50_ms": 1.0, "sinks_p99_ms": 4.0, "crossing_hz": 400.0}
    kept = msgspec.json.decode(msgspec.json.encode(state), type=PolicyState).decisions[-1]
    assert {name: now for name, (_, now) in kept.measured.items()} == pytest.approx(after)
    assert told_measured(kept).startswith("measured: cores 0.8 → 0.5, sinks_p50_ms 2 → 1, sinks_p99_ms 9 → 4")
    lines = (tmp_path / "journal.jsonl").read_text().splitlines()
    assert msgspec.json.decode(lines[-1])["measured"]["crossing_hz"] == [500.0, 400.0]
