"""Patterns and sequences agree with a brute-force matcher, whatever the matcher, the batches and the moves between machines."""

from __future__ import annotations

from brute import Happening
from chains import canonical, chains, expected, happenings, operator_of, run
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.cep import syntax as s
from headwater.cep.compared import comparisons

cuts = st.lists(st.integers(0, 30), max_size=4)


@settings(max_examples=300, deadline=None)
@given(chains(plain=True), happenings(), cuts)
def test_compiled_matchers_agree_with_brute_force(chain: s.Chain, events: list[Happening], at: list[int]) -> None:
    make, ports = operator_of(chain)
    assert comparisons(make.automaton) is not None
    assert canonical(run(make, ports, events, at)) == canonical(expected(chain, events, ports))


@settings(max_examples=400, deadline=None)
@given(chains(plain=False), happenings(), cuts)
def test_the_general_matcher_agrees_with_brute_force(chain: s.Chain, events: list[Happening], at: list[int]) -> None:
    make, ports = operator_of(chain)
    assert canonical(run(make, ports, events, at)) == canonical(expected(chain, events, ports))


@settings(max_examples=200, deadline=None)
@given(chains(plain=False, streams="ab"), happenings(streams="ab"), cuts)
def test_several_streams_are_matched_in_order_of_time(chain: s.Chain, events: list[Happening], at: list[int]) -> None:
    make, ports = operator_of(chain)
    assert canonical(run(make, ports, events, at)) == canonical(expected(chain, events, ports))
