"""A window is kept or broken by its own records, and a broken one says why."""

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import Contract
from headwater.rate.counts import CAME, KEPT_S, LATE, Counts
from headwater.rate.windows import ABOVE, BLOCKED, DEARER, DIED, SLOW, WITHOUT_PROCESSOR, Reading, Windows

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


def test_a_window_that_was_kept_by_a_hair_is_counted_as_close():
    seen = windows()
    seen.came(stamps(0.1, 1.1, 2.1))
    for created, took in ((0.1, 0.039), (1.1, 0.041), (2.1, 0.051)):  # of 50 ms
        seen.left(stamps(created), round((created + took) * S))
    for second in range(3):
        seen.read(second, FINE)
    verdict = seen.verdict()
    assert (verdict.kept, verdict.close, verdict.windows) == (2, 1, 3)


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
        (1000, Reading(0.6, 0.5, 0.9, 0), WITHOUT_PROCESSOR),
        (1000, Reading(0.6, 0.5, 0.0, 0, rivals=("jackd (7)",)), f"{WITHOUT_PROCESSOR} in real time: jackd (7)"),
        (1000, Reading(0.9, 0.5, 0.0, 0), DEARER),  # it had far more than the half of a core that is reserved
        (1000, Reading(0.6, 0.0, 0.0, 0), DEARER),
        (1000, Reading(0.6, 0.0, 0.9, 0), BLOCKED),
        (1000, Reading(0.2, 0.0, 0.9, 0), BLOCKED),
        (1000, Reading(0.2, 0.0, 0.0, 0, blocked=0.9, sink="out"), f"{BLOCKED}: out"),
        (1000, Reading(0.2, 0.0, 0.0, 0), SLOW),
    ],
)
def test_a_broken_window_says_why(records, reading, cause):
    seen = windows()
    seen.came(stamps(*[0.5] * records))
    seen.left(stamps(0.5), 2 * S)
    seen.read(0, reading)
    assert seen.judged()[0].cause == cause


def test_a_window_that_has_to_catch_up_breaks_of_what_the_one_before_broke_of():
    seen = windows()
    for second in range(4):
        seen.came(stamps(*[second + 0.5] * 1000))
        seen.left(stamps(second + 0.5), (second + 2) * S)
    seen.read(0, Reading(0.1, 0.8, 0.0, 900, done=100))  # it had no processor
    seen.read(1, Reading(0.7, 0.0, 0.0, 500, done=1400))  # more work than in any other second
    seen.read(2, Reading(0.7, 0.0, 0.0, 100, done=1400))
    seen.read(3, Reading(0.7, 0.0, 0.0, 0, done=1000))  # as much as in any other second
    assert [each.cause for each in seen.judged()] == [WITHOUT_PROCESSOR, WITHOUT_PROCESSOR, WITHOUT_PROCESSOR, DEARER]


@given(st.lists(st.tuples(st.floats(0, 9.9), st.floats(0, 0.2)), max_size=50))
def test_late_records_are_counted_once_each_whatever_the_batches(records):
    seen = windows()
    for created_s, took_s in records:
        seen.left(stamps(created_s), round((created_s + took_s) * S))
    for second in range(10):
        seen.read(second, FINE)
    late = sum(round((c + t) * S) - round(c * S) > 0.05 * S for c, t in records)
    assert sum(window.late for window in seen.judged()) == late


def test_windows_of_long_ago_are_counted_and_no_longer_kept():
    seen = windows()
    seen.left(stamps(0.5), 3 * S)
    for second in range(200):
        seen.read(second, FINE)
    assert len(seen.judged()) == 60
    verdict = seen.verdict()
    assert (verdict.windows, verdict.kept) == (200, 199)
    assert [each.second for each in verdict.broken] == [0]


def test_a_lane_in_another_ones_place_goes_on_counting_and_says_what_its_death_has_broken():
    seen = windows()
    seen.resume(7, {ABOVE: 2}, silent_s=3.2)
    seen.begin(10 * S)
    seen.left(stamps(9.5), round(10.3 * S))  # what came while nobody was there
    seen.left(stamps(10.1), round(10.4 * S))  # and what had to wait for that
    for second in range(3):
        seen.read(second, FINE)
    verdict = seen.verdict()
    assert verdict.causes == {ABOVE: 2, DIED: 4}
    assert (verdict.kept, verdict.windows) == (9, 15)
    assert [each.second for each in verdict.broken] == [9, 10, 11, 12]  # behind the nine of the lane before
    assert [each.second for each in seen.judged()] == [12, 13, 14]


def test_windows_in_which_a_lane_was_down_are_broken_by_that_whatever_was_seen():
    seen = windows()
    seen.died(round(1.5 * S))
    assert seen.second(2 * S) == 2
    for second in range(5):
        seen.read(second, FINE)
        if second == 2:
            seen.back(round(3.2 * S))
    assert [(each.second, each.cause) for each in seen.judged() if each.cause] == [(1, DIED), (2, DIED), (3, DIED)]


def test_windows_of_a_start_that_took_its_time_are_forgotten_once_the_first_records_leave():
    seen = windows()
    assert list(seen.due(round(3.5 * S))) == [0, 1, 2]
    for second in seen.due(round(3.5 * S)):
        seen.read(second, FINE)
    assert list(seen.due(round(3.9 * S))) == []
    assert seen.verdict().windows == 3
    seen.begin(4 * S)
    assert seen.verdict().windows == 0
    assert list(seen.due(round(6.5 * S))) == [0, 1]
    seen.left(stamps(5.5), round(5.6 * S))
    for second in seen.due(round(6.5 * S)):
        seen.read(second, FINE)
    assert [(each.second, each.late) for each in seen.judged()] == [(0, 0), (1, 1)]


def test_lanes_count_together_in_memory_that_they_share():
    counts = Counts(lanes=2)
    pid = os.fork()
    if not pid:
        counts.be(1)
        counts.add(LATE, 3, 5)
        os._exit(0)
    os.waitpid(pid, 0)
    counts.add(LATE, 3, 2)
    assert counts.total(LATE, 3) == 7
    assert counts.total(CAME, 3) == 0


def test_what_is_too_old_is_not_counted_as_something_else():
    counts = Counts()
    counts.add(LATE, KEPT_S + 4, 1)
    counts.add(LATE, 4, 8)
    assert (counts.total(LATE, 4), counts.total(LATE, KEPT_S + 4)) == (0, 1)
