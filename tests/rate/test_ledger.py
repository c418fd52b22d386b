"""The ledger never promises more than there is, and whatever ends gives back what it held."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from headwater import Contract
from headwater.rate.ledger import LANE, Ledger, Reservation


def lane(name="a", cores=0.5, pid=1) -> Reservation:
    return Reservation(name, f"flow {name}", Contract(1000.0, 0.05), cores, pid, 0)


def test_a_refusal_names_what_is_wanted_what_is_left_and_who_holds_the_rest():
    ledger = Ledger(2)
    assert ledger.ask(lane("a", 0.8)) is None
    assert ledger.ask(lane("b", 0.7)) is None
    refused = ledger.ask(lane("c", 0.6))
    assert str(refused) == "it wants 0.60 cores, and 0.30 are left; held by flow a 0.80, flow b 0.70"
    assert set(ledger.reservations) == {"a", "b"}


def test_one_lane_gets_no_more_than_its_one_worker_can_use():
    refused = Ledger(64).ask(lane(cores=LANE + 0.01))
    assert refused.why == "lane"
    assert "one lane may have 0.80" in str(refused)


def test_where_less_is_left_than_a_lane_may_have_that_is_what_is_told_and_what_would_fit_hangs_on():
    ledger = Ledger(1)
    ledger.ask(lane("a", 0.6))
    refused = ledger.ask(lane("b", LANE + 0.01))
    assert (refused.why, str(refused)) == ("machine", "it wants 0.81 cores, and 0.30 are left; held by flow a 0.60")


def test_a_trial_that_needs_more_than_is_left_lets_go_of_everything():
    ledger = Ledger(1)
    ledger.ask(lane("a", 0.5))
    ledger.ask(lane("b", 0.3))
    assert ledger.settle("b", 0.35) is None
    assert ledger.settle("b", 0.45).left == pytest.approx(0.4)
    assert set(ledger.reservations) == {"a"}
    assert ledger.settle("nobody", 0.1) is not None


class Machine(RuleBasedStateMachine):
    """Random asks, trials, ends and kills, also of who keeps the ledger."""

    lanes = Bundle("lanes")

    def __init__(self):
        super().__init__()
        self.ledger = Ledger(4)
        self.alive: dict[str, float] = {}
        self.number = 0

    @rule(target=lanes, cores=st.floats(0.01, 2.0), lanes=st.integers(0, 3))
    def ask(self, cores, lanes):
        """Ask for one lane, several, or an application, which has no lanes."""
        self.number += 1
        name = str(self.number)
        wanted = replace(lane(name, cores, self.number), lanes=lanes)
        left = self.ledger.left
        refused = self.ledger.ask(wanted)
        assert (refused is None) == (cores <= left and (not lanes or cores <= LANE * lanes))
        if refused is None:
            self.alive[name] = cores
        return name

    @rule(name=lanes, cores=st.floats(0.01, 2.0))
    def ask_again(self, name, cores):
        """Ask under a name that may hold some: those are given up only where the others are had."""
        if self.ledger.ask(lane(name, cores)) is None:
            self.alive[name] = cores

    @rule()
    def begin_anew(self):
        """A supervisor that was killed finds what its book has."""
        self.ledger = Ledger(4, self.ledger.reservations.values())

    @rule(name=lanes, cores=st.floats(0.01, 1.2))
    def settle(self, name, cores):
        if self.ledger.settle(name, cores) is None:
            self.alive[name] = cores
        else:
            self.alive.pop(name, None)

    @rule(name=lanes)
    def end(self, name):
        self.ledger.free(name)
        self.alive.pop(name, None)

    @rule(name=lanes)
    def kill(self, name):
        self.alive.pop(name, None)
        self.ledger.sweep(lambda held: held.id in self.alive)

    @invariant()
    def never_over_committed_and_never_leaks(self):
        held = {name: each.cores for name, each in self.ledger.reservations.items()}
        assert held == self.alive
        assert sum(held.values()) <= self.ledger.capacity + 1e-9


TestMachine = Machine.TestCase


@given(st.lists(st.floats(0.01, 0.8), max_size=12))
def test_a_ledger_that_is_read_back_has_the_same_left(all_cores):
    ledger = Ledger(4)
    for number, cores in enumerate(all_cores):
        ledger.ask(replace(lane(cores=cores), id=str(number)))
    assert Ledger(4, ledger.reservations.values()).left == pytest.approx(ledger.left)
