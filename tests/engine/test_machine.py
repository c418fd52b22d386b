from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.engine.machine import Machine
from headwater.engine.policy import POLICIES, LongestQueue, MinLatency, MinMemory, OldestFirst

policies = st.sampled_from(sorted(POLICIES)).map(lambda name: POLICIES[name]())
takes = st.sampled_from(["all", "half", 1, 7, 50])
arrivals = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 60)), max_size=30)


def apart(n):
    """Five instances that feed nobody."""
    return [[] for _ in range(n)]


@given(arrivals, policies, takes)
def test_each_record_is_run_once(events, policy, take):
    machine, expected, ran = Machine(apart(5), policy, take), Counter(), Counter()
    for instance, count in events:
        machine.arrived(instance, count)
        expected[instance] += count
    while (command := machine.next()) is not None:
        ran[command[0]] += command[1]
        machine.finished(*command, elapsed_ns=1_000_000)
    assert ran == expected
    assert machine.idle()


@given(arrivals, policies)
def test_no_instance_is_given_to_two_workers(events, policy):
    machine = Machine(apart(5), policy, take=1)
    for instance, count in events:
        machine.arrived(instance, count)
    given_out = []
    while (command := machine.next()) is not None:
        given_out.append(command[0])
    assert len(given_out) == len(set(given_out)) == len({instance for instance, _ in events})


@given(st.integers(2, 8), st.integers(1, 20), st.integers(1, 5), policies, takes, st.integers(1, 3))
def test_a_chain_with_any_queue_limit_never_stands_still(length, limit, records, policy, take, workers):
    chain = [[i + 1] for i in range(length - 1)] + [[]]
    machine = Machine(chain, policy, take, limits=[limit] * length)
    machine.arrived(0, records)
    done, running = 0, []
    for _ in range(10_000):
        while len(running) < workers and (command := machine.next()) is not None:
            running.append(command)
        if not running:
            break
        instance, count = running.pop(0)
        if instance + 1 < length:
            machine.arrived(instance + 1, count)
        else:
            done += count
        machine.finished(instance, count, elapsed_ns=1_000_000, out=count)
    assert done == records


def test_an_instance_whose_receiver_is_full_is_held_up():
    machine = Machine([[1], []], LongestQueue(), take=10, limits=[100, 10])
    machine.arrived(0, 30)
    machine.arrived(1, 10)
    assert machine.next() == (1, 10)  # 0 has the longer queue, but nowhere to put its records
    assert machine.next() == (0, 10)  # the receiver has room again as soon as its records are taken


def test_the_longest_queue_is_served_first():
    machine = Machine(apart(3), LongestQueue(), take=50)
    for instance, count in ((0, 5), (1, 9), (2, 7)):
        machine.arrived(instance, count)
    assert [machine.next()[0] for _ in range(3)] == [1, 2, 0]


def test_least_latency_serves_what_is_near_a_sink():
    machine = Machine([[1], [2], []], MinLatency(), take=50)
    for instance in range(3):
        machine.arrived(instance, 10)
    assert [machine.next()[0] for _ in range(3)] == [2, 1, 0]


def test_least_memory_serves_the_step_that_shrinks_its_queue_fastest():
    machine = Machine(apart(3), MinMemory(), take=50)
    machine.downstream = [[2], [2], []]
    machine.cost_ns, machine.out_ratio = [1000.0, 1000.0, 5000.0], [1.0, 0.1, 1.0]
    for instance in range(3):
        machine.arrived(instance, 10)
    assert machine.next()[0] == 1


def test_oldest_first_serves_the_record_that_was_created_first():
    machine = Machine(apart(2), OldestFirst(), take=50)
    machine.arrived(0, 50, born_ns=200)
    machine.arrived(1, 1, born_ns=100)
    assert machine.next()[0] == 1


def test_oldest_first_gives_a_bottleneck_a_head_start():
    machine = Machine([[1], [2], []], OldestFirst(), take=50)
    machine.cost_ns = [1_000.0, 1_000_000.0, 1_000.0]
    machine.arrived(1, 1, born_ns=3_000_000)
    machine.arrived(2, 1, born_ns=0)
    assert machine.next()[0] == 1


@pytest.mark.parametrize(
    ("waiting", "cost_us", "count"),
    [
        (150, 5, 79),  # a turn's worth
        (1_000, 5, 250),  # a long queue: a quarter of it
        (10_000, 5, 316),  # but no more than four turns' worth
        (10_000, 1_000, 10),  # a heavy step never gets more than `take`
    ],
)
def test_a_congested_step_gets_longer_turns(waiting, cost_us, count):
    machine = Machine([[]], LongestQueue(), take=10)
    machine.learn(0, 1, cost_us * 1_000)
    machine.arrived(0, waiting)
    assert machine.next() == (0, count)


def test_a_cheap_step_gets_several_turns_at_once_and_lets_records_ride():
    machine = Machine([[1], []], LongestQueue(), take=10)
    machine.arrived(0, 1000)
    instance, count = machine.next()
    assert (instance, count) == (0, 10)
    machine.finished(0, 10, elapsed_ns=1_000)
    assert machine.next() == (0, 320)
    assert not machine.may_ride(1)  # nothing is known of it yet
    machine.learn(1, 10, 1_000)
    assert machine.may_ride(1)
    machine.arrived(1, 1)
    assert not machine.may_ride(1)  # what rides must not overtake what waits
