"""Promises in virtual time: the ledger decides as it does for real, weights protect, and all work is done once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import Contract
from headwater.flow.profile import Demand, StepDemand
from headwater.rate.estimate import cores as wanted_cores
from headwater.rate.estimate import tick_of
from headwater.rate.ledger import LANE, PROMISED
from headwater.sim.promises import Offer, _Lane, _shares, play
from properties import examples

CONTRACT = Contract(10_000.0, 0.05)


def demand(cores: float) -> Demand:
    """What makes 10,000 records a second want so many cores, margin included."""
    return Demand(10_000.0, tick_of(CONTRACT), 0.0, {"work": StepDemand(1.0, 1, 1.0, 0.0, cores / 1.4 / 10_000, 0.0)})


def offer(cores: float = 0.5, **more) -> Offer:
    return Offer(f"wants {cores}", CONTRACT, demand(cores), **more)


def test_what_is_asked_for_is_what_admission_would_ask_for_and_the_ledger_refuses_as_it_does_for_real():
    played = play([offer(0.7), offer(0.9), offer(0.7), offer(0.7)], cores=2)
    assert [each.refused is None for each in played] == [True, False, True, False]
    assert (
        played[0].reserved == pytest.approx(wanted_cores(demand(0.7), 10_000, tick_of(CONTRACT))) == pytest.approx(0.7)
    )
    assert played[3].refused.left == pytest.approx(PROMISED * 2 - 1.4)
    assert played[1].refused.why == "lane"


@pytest.mark.parametrize("competitors", [0, 2, 16, 64])
def test_promises_are_kept_beside_any_competition_and_break_without_protection(competitors):
    mix = [offer(0.7), offer(0.6), offer(0.4)]
    kept = play(mix, cores=2, competitors=competitors)
    assert all(each.kept == each.windows for each in kept)
    without = play(mix, cores=2, competitors=competitors, protected=False)
    assert all(each.kept == each.windows for each in without) == (competitors == 0)


def test_a_lane_offered_ten_times_its_promise_hurts_itself_alone():
    greedy, honest = play([offer(0.3, offered_hz=100_000.0), offer(0.6)], cores=2, competitors=4)
    assert honest.kept == honest.windows
    assert greedy.kept < greedy.windows
    assert greedy.done < 0.9


def test_twice_the_cores_hold_twice_the_promises():
    admitted = [sum(p.refused is None for p in play([offer(0.75)] * 200, cores=n, seconds=2)) for n in (4, 8, 16, 80)]
    assert admitted == [int(n * PROMISED / 0.75) for n in (4, 8, 16, 80)]


@given(st.lists(st.floats(0.05, LANE), min_size=1, max_size=12), st.floats(1, 16), st.integers(0, 40))
@examples(60)
def test_nobody_gets_more_than_a_core_nor_all_more_than_there_are(wants, cores, competitors):
    lanes = [_Lane(offer(each), each, protected=bool(at % 2)) for at, each in enumerate(wants)]
    for lane in lanes:
        lane.comes(1.0)
    shares = _shares(lanes, cores, competitors)
    assert all(0 < share <= 1.0 + 1e-9 for share in shares)
    assert sum(shares) <= cores + 1e-6
    if not competitors:
        assert sum(shares) == pytest.approx(min(cores, len(lanes)))


def test_what_one_lane_may_not_have_is_shared_by_as_few_as_are_enough():
    (alone,) = play([offer(2.0)], cores=4)
    assert alone.refused.why == "lane"
    split, beside = play([offer(2.0, lanes=4), offer(0.7)], cores=4, competitors=8)
    assert (split.lanes, split.reserved) == (3, pytest.approx(2.0))
    assert (split.kept, split.done) == (split.windows, pytest.approx(1.0, abs=0.01))
    assert beside.kept == beside.windows
    assert play([offer(2.0, lanes=4), offer(0.7), offer(1.0, lanes=2)], cores=4)[2].refused.left == pytest.approx(0.9)


def test_the_same_offers_play_the_same():
    mix = [offer(0.5), offer(0.3)]
    assert play(mix, cores=2, competitors=3) == play(mix, cores=2, competitors=3)
