"""A window is kept or broken by its own records, and a broken one says why."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import Contract
from headwater.rate.windows import ABOVE, BLOCKED, DEARER, WITHOUT_PROCESSOR, Reading, Windows

S = 1_000_000_000
FINE = Reading(used=0.2, waited=0.0, held=0.0, backlog=0.0)


CONTRACT = Contract(1000.0, 0.05)


def windows(contract=CONTRACT) -> Windows:
    return Windows(contract, reserved=0.5, started_ns=0)


def stamps(*seconds):
    return np.array([round(each * S) for each in seconds], np.int64)


def test_records_count_where_they_were_created_not_where_they_leave():
    seen = windows()
    seen.came(stamps(0.1, 0.999, 1.5))
    seen.left(stamps(0.1), round(0.12 * S))
    seen.left(stamps(0.999), round(1.04 * S))  # in time, in the next second
    seen.left(stamps(1.5), round(1.56 * S))  # 10 ms too late
    for second in (0, 1):
        seen.read(second, FINE)
    assert [(each.records, each.late, each.kept) for each in seen.judged()] == [(2, 0, True), (1, 1, False)]


def test_a_window_breaks_afterwards_when_its_records_are_found_late():
    seen = windows()
    seen.read(0, FINE)
    assert seen.judged()[0].kept
    seen.left(stamps(0.5), 3 * S)
    assert not seen.judged()[0].kept


def test_what_may_be_on_its_way_and_a_burst_are_no_shortfall():
    seen = windows()
    on_its_way, burst = 50, 100
    seen.read(0, Reading(0.2, 0.0, 0.0, on_its_way + burst))
    seen.read(1, Reading(0.2, 0.0, 0.0, on_its_way + burst + 1))
    assert [window.kept for window in seen.judged()] == [True, False]
    assert seen.judged()[1].shortfall == 101


def test_without_a_latency_no_record_is_late():
    seen = windows(Contract(1000.0))
    seen.left(stamps(0.0), 60 * S)
    seen.read(0, FINE)
    assert seen.judged()[0].kept


@pytest.mark.parametrize(
    ("records", "reading", "cause"),
    [
        (1101, Reading(0.9, 0.9, 0.9, 0), ABOVE),
        (1000, Reading(0.9, 0.5, 0.9, 0), WITHOUT_PROCESSOR),
        (1000, Reading(0.9, 0.5, 0.0, 0, ("jackd (7)",)), f"{WITHOUT_PROCESSOR} in real time: jackd (7)"),
        (1000, Reading(0.9, 0.0, 0.9, 0), DEARER),
        (1000, Reading(0.2, 0.0, 0.9, 0), BLOCKED),
        (1000, Reading(0.2, 0.0, 0.0, 0), "not known"),
    ],
)
def test_a_broken_window_says_why(records, reading, cause):
    seen = windows()
    seen.came(stamps(*[0.5] * records))
    seen.left(stamps(0.5), 2 * S)
    seen.read(0, reading)
    assert seen.judged()[0].cause == cause


@given(st.lists(st.tuples(st.floats(0, 9.9), st.floats(0, 0.2)), max_size=50))
def test_late_records_are_counted_once_each_whatever_the_batches(records):
    seen = windows()
    for created_s, took_s in records:
        seen.left(stamps(created_s), round((created_s + took_s) * S))
    for second in range(10):
        seen.read(second, FINE)
    late = sum(round((c + t) * S) - round(c * S) > 0.05 * S for c, t in records)
    assert sum(window.late for window in seen.judged()) == late
