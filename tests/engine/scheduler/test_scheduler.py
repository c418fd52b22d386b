"""Decisions one by one: who is served, how much is taken, what runs inline, who is held, how many are at it."""

import pytest

from headwater.engine.policy import LongestQueue, MinLatency, MinMemory, OldestFirst
from headwater.engine.scheduler import Scheduler
from headwater.engine.scheduler.batch_size import UNCOMPILED
from headwater.engine.scheduler.scheduler import PATIENCE_NS, STUCK_NS

CHAIN = [[1], [2], []]
MS = 1_000_000


def apart(n, policy=None, **options):
    """Instances that feed nobody."""
    return Scheduler([[] for _ in range(n)], policy or LongestQueue(), workers=n, **options)


def long(scheduler):
    """Let every record cost so much that activations run beside each other."""
    scheduler.cost_ns = [10.0 * MS] * len(scheduler.waiting)
    return scheduler


def served(scheduler):
    order = []
    while (activation := scheduler.next()) is not None:
        order.append(activation.instance)
    return order


# -- who is served -----------------------------------------------------------------------------------------------------


def test_the_longest_queue_is_served_first():
    scheduler = long(apart(3))
    for instance, count in ((0, 5), (1, 9), (2, 7)):
        scheduler.arrived(instance, count)
    assert served(scheduler) == [1, 2, 0]


def test_least_latency_serves_what_is_near_a_sink():
    scheduler = long(Scheduler(CHAIN, MinLatency(), workers=3))
    for instance in range(3):
        scheduler.arrived(instance, 10)
    assert served(scheduler) == [2, 1, 0]


def test_least_memory_serves_the_step_that_shrinks_its_queue_fastest():
    scheduler = apart(3, MinMemory())
    scheduler.downstream = [[2], [2], []]
    scheduler.cost_ns, scheduler.out_ratio = [1000.0, 1000.0, 5000.0], [1.0, 0.1, 1.0]
    for instance in range(3):
        scheduler.arrived(instance, 10)
    assert scheduler.next().instance == 1


def test_oldest_first_serves_the_record_that_was_created_first():
    scheduler = apart(2, OldestFirst())
    scheduler.arrived(0, 50, created_ns=200)
    scheduler.arrived(1, 1, created_ns=100)
    assert scheduler.next().instance == 1


def test_oldest_first_gives_a_bottleneck_a_head_start():
    scheduler = Scheduler(CHAIN, OldestFirst())
    scheduler.cost_ns = [1_000.0, 1_000_000.0, 1_000.0]
    scheduler.arrived(1, 1, created_ns=3_000_000)
    scheduler.arrived(2, 1, created_ns=0)
    assert scheduler.next().instance == 1


def test_an_instance_whose_receiver_is_full_is_held_up():
    scheduler = long(Scheduler([[1], []], LongestQueue(), take=10, workers=2, limits=[100, 10]))
    scheduler.arrived(0, 30)
    scheduler.arrived(1, 10)
    assert scheduler.next()[:2] == (1, 10)  # 0 has the longer queue, but nowhere to put its records
    assert scheduler.next()[:2] == (0, 10)  # the receiver has room again as soon as its records are taken


@pytest.mark.parametrize(("take", "counts"), [("all", [75]), ("half", [38, 19, 9, 5, 2, 1, 1]), (50, [50, 25])])
def test_an_activation_takes_what_was_chosen(take, counts):
    scheduler = apart(1, take=take)
    scheduler.arrived(0, 75)
    taken = []
    while (activation := scheduler.next()) is not None:
        taken.append(activation.records)
        scheduler.finished(activation, elapsed_ns=MS)
    assert taken == counts


# -- how many are at it ------------------------------------------------------------------------------------------------


def test_short_activations_run_one_at_a_time():
    scheduler = apart(2)
    scheduler.arrived(0, 10)
    scheduler.arrived(1, 10)
    first = scheduler.next()
    assert not first.long
    assert scheduler.next() is None
    scheduler.finished(first, elapsed_ns=1_000)
    assert scheduler.next() is not None


def test_a_long_activation_has_others_beside_it():
    scheduler = apart(3)
    scheduler.learn(0, 1, 10 * MS)
    scheduler.arrived(0, 10)
    for instance in (1, 2):
        scheduler.arrived(instance, 5)
    assert scheduler.next().long
    assert scheduler.wants_worker()
    assert not scheduler.next().long  # one that is short, beside it
    assert scheduler.next() is None  # but not two


def test_a_long_activation_does_not_wait_for_a_short_one():
    scheduler = apart(2)
    scheduler.learn(1, 1, 10 * MS)
    scheduler.arrived(0, 10)
    assert not scheduler.next().long
    scheduler.arrived(1, 1)
    assert scheduler.wants_worker()
    assert scheduler.next().instance == 1


def test_large_batches_make_an_activation_long():
    scheduler = apart(1)
    scheduler.learn(0, 1, 1_000)
    scheduler.arrived(0, 100)
    few = scheduler.next()
    scheduler.finished(few, elapsed_ns=100_000)
    scheduler.arrived(0, 10_000)
    assert (few.long, scheduler.next().long) == (False, True)


def test_one_that_should_be_short_and_does_not_come_back_is_not_waited_for():
    scheduler = apart(2)
    scheduler.arrived(0, 1)
    scheduler.arrived(1, 1)
    scheduler.next(now_ns=0)
    assert scheduler.next(now_ns=PATIENCE_NS) is None
    assert scheduler.rest_ns() == PATIENCE_NS  # so a worker at rest has to look again
    assert scheduler.next(now_ns=PATIENCE_NS + 1).instance == 1


def test_one_that_does_not_come_back_does_not_slow_down_the_others_either():
    scheduler = apart(3)
    for instance in range(3):
        scheduler.arrived(instance, 1)
    scheduler.next(now_ns=0)  # and never comes back
    other = scheduler.next(now_ns=PATIENCE_NS + 1)
    scheduler.finished(other, elapsed_ns=1_000)
    assert scheduler.next(now_ns=PATIENCE_NS + 2_000) is not None  # at once


def test_where_no_worker_comes_back_there_is_one_more():
    scheduler = long(Scheduler([[], [], []], LongestQueue(), workers=1))
    for instance in range(3):
        scheduler.arrived(instance, 1)
    first = scheduler.next(now_ns=0)
    assert not scheduler.add_worker(now_ns=0)
    assert not scheduler.add_worker(now_ns=STUCK_NS - 1)
    assert scheduler.next(now_ns=STUCK_NS - 1) is None
    assert scheduler.add_worker(now_ns=STUCK_NS)
    second = scheduler.next(now_ns=STUCK_NS)
    assert {first.instance, second.instance} < {0, 1, 2}
    assert scheduler.next(now_ns=STUCK_NS) is None
    assert not scheduler.add_worker(now_ns=STUCK_NS + 1)  # somebody was served since
    assert scheduler.add_worker(now_ns=2 * STUCK_NS + 1)


def test_there_is_no_worker_more_while_workers_come_back_or_nothing_waits():
    scheduler = long(Scheduler([[], []], LongestQueue(), workers=1))
    scheduler.arrived(0, 1)
    scheduler.add_worker(now_ns=0)
    scheduler.next(now_ns=0)
    assert not scheduler.add_worker(now_ns=10 * STUCK_NS)
    assert not scheduler.add_worker(now_ns=20 * STUCK_NS)  # nothing else is ready
    assert scheduler.workers == 1


def test_one_that_rests_is_served_when_its_time_has_come_and_others_meanwhile():
    scheduler = apart(2)
    scheduler.arrived(0, 1)
    scheduler.rest(0, until_ns=5 * MS)
    scheduler.arrived(0, 1)
    assert scheduler.next(now_ns=0) is None
    assert scheduler.rest_ns(now_ns=2 * MS) == 3 * MS  # so a worker looks again by then
    scheduler.arrived(1, 1)
    other = scheduler.next(now_ns=0)
    assert other.instance == 1
    scheduler.finished(other)
    assert scheduler.next(now_ns=5 * MS)[:2] == (0, 2)


def test_one_that_rests_can_be_woken():
    scheduler = apart(1)
    scheduler.arrived(0, 1)
    scheduler.rest(0, until_ns=5 * MS)
    scheduler.wake(0)
    assert scheduler.next(now_ns=0).instance == 0


def test_no_more_than_the_given_workers_are_at_it():
    scheduler = long(Scheduler([[], [], []], LongestQueue(), workers=2))
    for instance in range(3):
        scheduler.arrived(instance, 1)
    assert len(served(scheduler)) == 2


# -- what runs inline --------------------------------------------------------------------------------------------------


def cheap_chain(**options):
    scheduler = Scheduler(CHAIN, LongestQueue(), **options)
    for instance in range(3):
        scheduler.learn(instance, 1, 100)
    return scheduler


def test_cheap_steps_behind_run_inline():
    scheduler = cheap_chain()
    scheduler.arrived(0, 10)
    assert scheduler.next().inline == (1, 2)


def test_a_step_of_which_nothing_is_known_does_not_run_inline():
    scheduler = Scheduler(CHAIN, LongestQueue())
    scheduler.arrived(0, 10)
    assert scheduler.next().inline == ()


def test_steps_run_inline_as_long_as_all_of_it_stays_short():
    scheduler = cheap_chain()
    scheduler.arrived(0, 1_200)  # 120 µs of each step: three would be 360
    assert scheduler.next().inline == (1,)


def test_nothing_runs_inline_behind_what_is_long_itself():
    scheduler = cheap_chain()
    scheduler.arrived(0, 4_000)
    activation = scheduler.next()
    assert activation.long
    assert activation.inline == ()


def test_branches_share_the_time_that_is_left_for_running_inline():
    scheduler = Scheduler([[1, 2], [], []], LongestQueue())
    for instance in range(3):
        scheduler.learn(instance, 1, 100)
    scheduler.arrived(0, 1_200)
    assert scheduler.next().inline == (1,)


def test_what_runs_inline_must_not_overtake_what_waits():
    scheduler = cheap_chain()
    scheduler.arrived(1, 1)
    scheduler.running[1] = True  # so that it is not served first
    scheduler.arrived(0, 10)
    assert scheduler.next().inline == ()


def test_nobody_else_gets_an_instance_that_is_reserved():
    scheduler = cheap_chain(workers=2)
    scheduler.arrived(0, 10)
    first = scheduler.next()
    scheduler.arrived(1, 5)  # nobody does that in a run; it must wait all the same
    assert scheduler.next(now_ns=2 * PATIENCE_NS) is None
    scheduler.finished(first, elapsed_ns=1_000)
    assert scheduler.next().instance == 1


def test_an_instance_with_two_senders_never_runs_inline():
    scheduler = Scheduler([[2], [2], []], LongestQueue())
    scheduler.learn(2, 1, 100)
    scheduler.arrived(0, 10)
    assert scheduler.next().inline == ()


# -- which source is held ----------------------------------------------------------------------------------------------


def test_a_source_runs_cheap_steps_inline_while_nobody_is_at_work():
    scheduler = cheap_chain()
    assert scheduler.admit(0, 10).inline == (1, 2)
    other = cheap_chain()
    other.arrived(2, 1)
    other.next()
    assert other.admit(0, 10).inline == ()


def test_a_worker_waits_for_what_a_source_runs_inline():
    scheduler = cheap_chain()
    by_source = scheduler.admit(0, 10)
    scheduler.arrived(1, 10)
    assert scheduler.next() is None
    scheduler.finished(by_source)
    assert scheduler.next().instance == 1


def test_a_source_is_held_by_the_queues_that_it_feeds_and_by_no_others():
    scheduler = Scheduler([[2], [3], [], []], LongestQueue(), take=10, limits=[100] * 4)
    scheduler.arrived(2, 90)
    assert scheduler.throttle.held == {0}
    assert scheduler.admit(0, 1) is None
    assert scheduler.admit(1, 1) is not None


def test_a_source_is_let_go_when_the_queue_has_room_again():
    scheduler = Scheduler([[1], []], LongestQueue(), take=10, limits=[100, 100])
    scheduler.arrived(1, 95)
    held = []
    while (activation := scheduler.next()) is not None:
        held.append(bool(scheduler.throttle.held))
        scheduler.finished(activation, elapsed_ns=MS)
    assert held == [True] * 5 + [False] * 5  # at 35 of 100, not at 85: else it would be held again at once


# -- what is not compiled yet ----------------------------------------------------------------------------------------------


def test_an_instance_whose_kernels_answered_uncompiled_takes_few_until_they_are_compiled():
    scheduler = apart(1)
    scheduler.arrived(0, 100)
    scheduler.finished(scheduler.next(), elapsed_ns=100 * MS, uncompiled=True)
    scheduler.arrived(0, 15_090)
    few = scheduler.next()
    assert few.records == UNCOMPILED
    scheduler.finished(few, elapsed_ns=UNCOMPILED * 1000)
    assert scheduler.cost_ns[0] == 1000  # what it cost uncompiled is forgotten at once
    assert scheduler.next().records == 15_090 - UNCOMPILED


def test_an_uncompiled_instance_takes_no_more_than_it_would_otherwise():
    scheduler = apart(1, take=50)
    scheduler.uncompiled[0] = True
    scheduler.arrived(0, 1000)
    assert scheduler.next().records == 50
