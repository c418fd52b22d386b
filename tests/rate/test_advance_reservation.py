"""Cores that are asked for before a flow starts: once, and again only where they were refused or are for something else."""

from promised import demand, flow

from headwater import Contract, rate
from headwater.rate.advance_reservation import AdvanceReservation
from headwater.rate.messages import Ask, End, Granted, Noted, Refused

CONTRACT = Contract(1000.0, 0.2)


class Line:
    """Grants what is asked for, unless it is told to refuse, and remembers who held what."""

    def __init__(self, refuses=0):
        self._refuses = refuses
        self.asked, self.ended = [], []

    def say(self, message):
        if isinstance(message, End):
            self.ended.append(message.id)
        if not isinstance(message, Ask):
            return Noted(known=True)
        self.asked.append(message.cores)
        if len(self.asked) <= self._refuses:
            return Refused(message.cores, 0.0, [], "")
        return Granted(f"lane {len(self.asked)}", message.cores, "reserved", "for a test")

    def close(self):
        pass


def ran(line, contract=CONTRACT):
    """Ask ahead, then run a flow for a moment; return what was held for it."""
    given = {"profile": demand(0.1), "best_effort": True}
    ahead = AdvanceReservation(flow(1000, 1), CONTRACT, **given, client=line)
    running = rate.start(flow(1000, 1), contract, **given, trial_s=0, ahead=ahead)
    running.stop()
    running.wait()
    return running.admitted.id


def test_what_was_asked_for_ahead_is_held_for_the_run_and_let_go_with_it():
    line = Line()
    assert ran(line) == "lane 1"
    assert (len(line.asked), line.ended) == (1, ["lane 1"])


def test_what_was_refused_ahead_is_asked_for_again_when_the_flow_starts():
    line = Line(refuses=1)
    assert ran(line) == "lane 2"
    assert (len(line.asked), line.ended) == (2, ["lane 2"])


def test_what_is_held_for_another_contract_is_let_go():
    line = Line()
    assert ran(line, Contract(500.0, 0.2)) == "lane 2"
    assert line.ended == ["lane 1", "lane 2"]
