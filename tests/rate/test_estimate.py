"""How many cores a promise needs grows with its rate, and what is said to fit does fit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import Contract
from headwater.flow.profile import Demand, StepDemand
from headwater.rate import cores, invocations, nearest, tick_of

small = st.floats(1e-9, 1e-4)
steps = st.builds(
    StepDemand,
    scale=st.floats(0.01, 10),
    batch=st.integers(1, 1000),
    cores=st.floats(0.1, 1),
    limit_s=small,
    record_s=st.floats(1e-9, 1e-5),
    tick_s=small,
)
demands = st.builds(
    Demand,
    rate_hz=st.just(1000.0),
    tick_s=st.just(0.01),
    engine_s=st.floats(1e-5, 1e-3),
    steps=st.dictionaries(st.sampled_from("abcdef"), steps, min_size=1),
    cooling=st.floats(0, 1),
)
contracts = st.builds(Contract, st.floats(1, 1e6), st.floats(0.004, 0.9))


def test_the_paper_s_reservation_is_its_formula():
    step = StepDemand(scale=6.0, batch=100, cores=0.8, limit_s=0.002, record_s=0, tick_s=0)
    guaranteed = invocations(step, 20_000)
    assert guaranteed.per_s == 20_000 * 6 / 100
    assert guaranteed.cores == pytest.approx(1200 * 0.002 * 0.8)


def test_ours_is_what_a_tick_costs_as_often_as_it_comes():
    step = StepDemand(scale=1.0, batch=1, cores=1, limit_s=0, record_s=1e-6, tick_s=100e-6)
    demand = Demand(10_000, 0.01, 0.0005, {"only": step})
    assert cores(demand, 10_000, 0.01) == pytest.approx(1.4 * (100 * (100e-6 + 100 * 1e-6) + 0.05))
    # once a record where records are rarer than ticks
    assert cores(demand, 10, 0.01) == pytest.approx(1.4 * (10 * (100e-6 + 1e-6) + 0.05))


@given(demands, contracts, st.floats(1.0, 10))
def test_more_records_and_shorter_ticks_need_no_fewer_cores(demand, contract, more):
    tick_s = tick_of(contract)
    at = cores(demand, contract.rate_hz, tick_s)
    assert cores(demand, contract.rate_hz * more, tick_s) >= at * (1 - 1e-9)
    assert cores(demand, contract.rate_hz, tick_s / more) >= at * (1 - 1e-9)


@given(demands, contracts, st.floats(0.01, 2))
def test_what_is_said_to_fit_fits(demand, contract, room):
    found = nearest(demand, contract, room)
    if found.rate_hz is not None:
        assert found.rate_hz <= contract.rate_hz
        assert cores(demand, found.rate_hz, tick_of(contract)) <= room
    if found.latency_s is not None:
        offered = Contract(contract.rate_hz, found.latency_s)  # whoever asks for just that must get it
        assert cores(demand, offered.rate_hz, tick_of(offered)) <= room * (1 + 1e-6)


def test_a_tick_costs_less_where_it_comes_before_caches_are_cold():
    step = StepDemand(scale=1.0, batch=1, cores=1, limit_s=0, record_s=1e-6, tick_s=800e-6)
    demand = Demand(10_000, 0.02, 0.0004, {"only": step}, cooling=0.5)
    assert cores(demand, 10_000, 0.02) == pytest.approx(1.4 * (50 * (800e-6 + 400e-6) + 0.01))
    assert cores(demand, 10_000, 0.005) == pytest.approx(1.4 * (200 * (400e-6 + 200e-6) + 0.01))
    assert cores(demand, 10_000, 0.001) == pytest.approx(1.4 * (1000 * (400e-6 + 200e-6) + 0.01))  # and no colder


def test_where_nothing_fits_nothing_is_offered():
    step = StepDemand(scale=1.0, batch=1, cores=1, limit_s=0, record_s=1e-6, tick_s=0)
    found = nearest(Demand(1000, 0.01, 0.01, {"only": step}), Contract(1000, 0.04), 0.01)
    assert found.rate_hz is None
    assert found.latency_s is None


def test_records_gather_for_a_quarter_of_the_latency_and_never_for_long():
    assert tick_of(Contract(1, 0.04)) == 0.01
    assert tick_of(Contract(1, 10.0)) == 0.02
    assert tick_of(Contract(1, 0.0001)) == 0.001
