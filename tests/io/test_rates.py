import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import FlowError
from headwater.io import rates

hertz = st.floats(1, 1e5)
all_rates = st.one_of(
    hertz.map(rates.constant),
    st.tuples(hertz, hertz).map(lambda r: rates.step([("0 s", r[0]), ("2 s", 0), ("3 s", r[1])])),
    st.tuples(st.just(0) | hertz, hertz).map(lambda r: rates.burst(*r, every="5 s", length="500 ms")),
    st.tuples(hertz, st.floats(0, 1)).map(lambda r: rates.sine(r[0], r[0] * r[1], period="7 s")),
)


@given(all_rates, st.integers(1, 10**6))
def test_a_record_is_due_at_the_moment_that_its_number_is_reached(rate, number):
    [at] = rate.when(np.array([number]))
    assert rate.due(float(at)) == pytest.approx(number, abs=1e-2, rel=1e-9)


@given(all_rates, st.integers(1, 10**6))
def test_due_times_never_fall(rate, first):
    assert (np.diff(rate.when(np.arange(first, first + 5000))) >= 0).all()


def test_a_step_changes_the_rate_where_it_says():
    rate = rates.step([("0 s", 10), ("2 s", 100)])
    assert [rate.due(t) for t in (0, 1, 2, 3)] == [0, 10, 20, 120]


def test_a_burst_lasts_its_length_at_the_end_of_each_period():
    rate = rates.burst(10, 1000, every="10 s", length="1 s")
    assert [rate.due(t) for t in (9, 9.5, 10, 19, 20)] == [90, 590, 1090, 1180, 2180]


def test_a_sine_rises_first_and_returns_to_its_mean():
    rate = rates.sine(100, 50, period="8 s")
    assert rate.due(4) > 400
    assert rate.due(8) == pytest.approx(800)
    assert rate.due(16) == pytest.approx(1600)


def test_a_record_that_falls_on_the_start_of_a_pause_is_due_before_it():
    rate = rates.step([("0 s", 10), ("1 s", 0), ("5 s", 10)])
    assert rate.when(np.array([10, 11])).tolist() == pytest.approx([1.0, 5.1])


def test_a_rate_that_ends_at_zero_leaves_the_rest_due_never():
    assert rates.step([("0 s", 10), ("1 s", 0)]).when(np.array([10, 11])).tolist() == [1.0, float("inf")]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: rates.constant(-1), "0 or more"),
        (lambda: rates.constant(float("nan")), "0 or more"),
        (lambda: rates.step([]), "got none"),
        (lambda: rates.step([("1 s", 5)]), "start at 0 s"),
        (lambda: rates.step([("0 s", 5), ("0 s", 6)]), "rise"),
        (lambda: rates.burst(1, 2, every="1 s", length="2 s"), "rise"),
        (lambda: rates.burst(0, 0, every="2 s", length="1 s"), "above 0"),
        (lambda: rates.sine(10, 11, period="1 s"), "amplitude"),
    ],
)
def test_an_impossible_rate_is_refused(make, says):
    with pytest.raises(FlowError, match=says):
        make()
