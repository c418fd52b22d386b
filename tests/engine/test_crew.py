"""The size of the crew follows how much of a turn its workers really compute."""

import pytest

from headwater.engine.crew import Crew

MS = 1_000_000


def lived(crew, share_of, until_ms, from_ms=0, done_in=None):
    """Let time pass with the whole crew at work; `share_of[n]` is the part of a turn that each of n workers computes.

    `done_in[n]` is what n workers get done in a millisecond where there is always more to do.
    """
    sizes, done = [], 0
    for ms in range(from_ms, until_ms):
        for _ in range(crew.size):
            crew.turned(crew.size, MS // 4, int(share_of[crew.size] * MS // 4))
        done += done_in[crew.size] if done_in else 0
        if ms * MS >= crew.due_ns:
            crew.look(ms * MS, done if done_in else None)
        sizes.append(crew.size)
    return sizes


def mostly(sizes):
    return max(set(sizes), key=sizes.count)


@pytest.mark.parametrize(
    ("share", "best"),
    [
        ({1: 1.0, 2: 1.0, 3: 0.98, 4: 0.95}, 4),  # long kernels: everyone computes
        ({1: 1.0, 2: 0.55, 3: 0.38, 4: 0.3}, 1),  # short calls: they only hand the lock around
        ({1: 1.0, 2: 0.95, 3: 0.7, 4: 0.55}, 2),
        ({1: 0.1, 2: 0.1, 3: 0.1, 4: 0.1}, 4),  # waiting for the network: more of them wait at once
        ({1: 0.6, 2: 0.6, 3: 0.6, 4: 0.6}, 4),  # other processes take their part, whatever the crew
    ],
)
def test_the_crew_settles_where_every_worker_is_of_use(share, best):
    assert mostly(lived(Crew(4), share, 20_000)[5_000:]) == best


def test_workers_that_are_never_at_work_at_once_are_left_alone():
    crew = Crew(2)
    for ms in range(2_000):
        crew.turned(1, MS // 4, MS // 4)
        crew.look(ms * MS)
    assert crew.size == 2


def test_a_crew_follows_a_flow_that_changes():
    crew = Crew(2)
    assert lived(crew, {1: 1.0, 2: 0.55}, 500)[-1] == 1
    assert mostly(lived(crew, {1: 1.0, 2: 0.95}, 5_000, from_ms=500)[2_000:]) == 2
    assert lived(crew, {1: 1.0, 2: 0.55}, 5_500, from_ms=5_000)[-1] == 1


def test_trials_become_rarer_when_they_fail():
    sizes = lived(Crew(2), {1: 1.0, 2: 0.55}, 40_000)
    assert sizes[30_000:].count(2) < sizes[:10_000].count(2) / 2


@pytest.mark.parametrize(
    ("done_in", "best"),
    [
        ({1: 100, 2: 190, 3: 270, 4: 340}, 4),
        ({1: 100, 2: 80, 3: 70, 4: 60}, 1),  # everyone computes, on batches that get smaller and caches that get colder
        ({1: 100, 2: 160, 3: 150, 4: 140}, 2),
        ({1: 100, 2: 102, 3: 103, 4: 104}, 1),  # not worth a processor
    ],
)
def test_where_there_is_always_more_to_do_what_gets_done_counts(done_in, best):
    share = {1: 1.0, 2: 0.88, 3: 0.8, 4: 0.7}
    assert mostly(lived(Crew(4), share, 20_000, done_in=done_in)[5_000:]) == best


def test_workers_that_compute_all_the_time_are_not_put_to_the_test():
    assert set(lived(Crew(2), {1: 1.0, 2: 0.97}, 5_000, done_in={1: 100, 2: 190})) == {2}


def test_a_crew_that_was_made_smaller_grows_with_the_work():
    crew = Crew(2)
    share = {1: 1.0, 2: 0.8}
    assert lived(crew, share, 1_000, done_in={1: 100, 2: 80})[-1] == 1
    assert mostly(lived(crew, share, 6_000, from_ms=1_000, done_in={1: 100, 2: 190})[3_000:]) == 2


def test_one_fewer_stands_if_it_is_enough():
    crew = Crew(2)
    share = {1: 1.0, 2: 0.8}
    lived(crew, share, 150, done_in={1: 100, 2: 190})
    assert crew.size == 1  # on trial
    assert mostly(lived(crew, share, 1_000, from_ms=150)) == 1  # and somebody had nothing to do


def test_a_single_worker_is_left_alone():
    assert set(lived(Crew(1), {1: 1.0}, 1_000)) == {1}
