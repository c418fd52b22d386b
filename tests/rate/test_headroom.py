"""Whoever wants to know what may still be promised, and whether something would fit, asks without taking anything."""

import os

import pytest
from promised import demand

from headwater import Contract, rate
from headwater.rate.client import Client, board
from headwater.rate.grade import grade_here
from headwater.rate.ledger import Ledger
from headwater.rate.messages import Ask

CONTRACT = Contract(1000.0, 0.2)


def test_a_machine_without_promises_has_all_its_room(home):
    found = rate.room(home)
    assert (found.left, found.holders) == (Ledger(grade_here().cores).capacity, ())
    assert found.would_fit(demand(0.5).demand, CONTRACT).fits
    assert board(home) is None  # nobody was started for that


def test_what_is_left_who_holds_the_rest_and_what_would_fit_there(home):
    client = Client(home)
    client.say(Ask("etl", CONTRACT, 0.6, best_effort=True))
    found = rate.room(home)
    assert [(each.flow, each.cores) for each in found.holders] == [("etl", 0.6)]
    assert found.promised == 0.6
    assert found.left == pytest.approx(0.9 * len(os.sched_getaffinity(0)) - 0.6)
    small, large = (found.would_fit(demand(cores).demand, CONTRACT) for cores in (0.1, 40.0))
    assert small.fits
    assert not large.fits
    assert (large.cores, large.lanes) == (pytest.approx(40.0), 1)
    assert large.lacks == pytest.approx(40.0 - found.left)
    assert large.nearest.rate_hz == pytest.approx(1000 * min(0.8, found.left) / 40, rel=0.01)
    assert rate.room(home).left == found.left  # asking takes nothing
    client.close()


def test_several_lanes_may_share_what_one_may_not_have(home):
    room = rate.Room(cores=4.0, capacity=3.6, left=3.6, grade="reserved")
    wants = demand(1.5).demand
    assert not room.would_fit(wants, CONTRACT).fits
    answer = room.would_fit(wants, CONTRACT, lanes=4)
    assert (answer.fits, answer.lanes) == (True, 2)
