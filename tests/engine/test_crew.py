"""The size of the crew follows the processor time that it uses."""

import pytest

from headwater.engine.crew import Crew

MS = 1_000_000


def lived(crew, cores_of, until_ms, saturated=True):
    """Let time pass; `cores_of(size)` is the processor time that a crew of that size uses per time."""
    sizes, cpu_ns = [], 0
    for ms in range(until_ms):
        cpu_ns += int(cores_of[crew.size] * MS)
        if ms * MS >= crew.due_ns:
            crew.look(ms * MS, cpu_ns, saturated)
        sizes.append(crew.size)
    return sizes


def mostly(sizes):
    return max(set(sizes), key=sizes.count)


@pytest.mark.parametrize(
    ("cores", "best"),
    [
        ({1: 1.0, 2: 2.0, 3: 2.9, 4: 3.8}, 4),  # long kernels: everyone computes
        ({1: 1.0, 2: 1.1, 3: 1.15, 4: 1.2}, 1),  # short calls: they only hand the lock around
        ({1: 1.0, 2: 1.9, 3: 2.1, 4: 2.2}, 2),
        ({1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4}, 4),  # waiting for the network: more of them wait at once
    ],
)
def test_the_crew_settles_where_every_worker_is_of_use(cores, best):
    assert mostly(lived(Crew(4), cores, 10_000)[3_000:]) == best


def test_a_crew_is_not_changed_while_there_is_little_to_do():
    assert set(lived(Crew(2), {1: 1.0, 2: 1.1}, 2_000, saturated=False)) == {2}


def test_a_crew_follows_a_flow_that_changes():
    crew = Crew(2)
    lived(crew, {1: 1.0, 2: 1.1}, 500)
    assert crew.size == 1
    crew.due_ns = 0
    assert mostly(lived(crew, {1: 1.0, 2: 1.9}, 3_000)[1_000:]) == 2


def test_trials_become_rarer_when_they_fail():
    sizes = lived(Crew(2), {1: 1.0, 2: 1.1}, 40_000)
    assert sizes[30_000:].count(2) < sizes[:10_000].count(2) / 2


def test_a_single_worker_is_left_alone():
    assert set(lived(Crew(1), {1: 1.0}, 1_000)) == {1}
