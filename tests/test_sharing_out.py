"""Tests of Spark are for one worker until nothing else is left, and who has a session runs nothing else any more."""

from types import SimpleNamespace

import pytest
from xdist.remote import Producer

from sharing_out import Sharing, is_on_spark

CORE = [f"tests/core/test_{name}.py::test_{number}" for name in "abcdef" for number in range(4)]
SPARK = [f"tests/spark/test_{name}.py::test_{number}" for name in "xyz" for number in range(4)]
BOTH = ["tests/test_both.py::test_run[on_engine]", "tests/test_both.py::test_run[on_spark]"]


class Worker:
    """Notes what it is told to run, and in which order."""

    def __init__(self):
        self.told, self.shutting_down, self.gateway = [], False, SimpleNamespace(id="gw")

    def send_runtest_some(self, indices):
        self.told += indices

    def shutdown(self):
        self.shutting_down = True


def shared_out(tests, turns):
    """Return what each of three workers runs, where they finish a test by turns, those that have one."""
    told = {"tx": ["popen"] * 3}
    config = SimpleNamespace(getvalue=told.get, option=SimpleNamespace(loadscopereorder=False))
    sharing = Sharing(config, Producer("sharing", enabled=False))
    workers = [Worker() for _ in range(3)]
    for worker in workers:
        sharing.add_node(worker)
        sharing.add_node_collection(worker, tests)
    sharing.schedule()
    done = dict.fromkeys(workers, 0)
    while any(done[worker] < len(worker.told) for worker in workers):
        for worker in (workers[turn] for turn in turns):
            if done[worker] < len(worker.told):
                sharing.mark_test_complete(worker, worker.told[done[worker]])
                done[worker] += 1
    assert not sharing.has_pending
    return [[tests[index] for index in worker.told] for worker in workers]


@pytest.mark.parametrize("turns", [(0, 1, 2), (0, 0, 0, 0, 1, 2), (1, 1, 1, 2, 2, 2, 0)], ids=str)
@pytest.mark.parametrize("tests", [CORE + SPARK + BOTH, BOTH + SPARK, CORE, SPARK], ids=["all", "few", "core", "spark"])
def test_each_test_is_run_once_and_none_but_those_of_spark_where_spark_was_started(tests, turns):
    ran = shared_out(tests, turns)
    assert sorted(name for names in ran for name in names) == sorted(tests)
    for names in ran:
        on_spark = [is_on_spark(name) for name in names]
        assert on_spark == sorted(on_spark)


def test_one_worker_has_spark_from_the_beginning_and_others_come_to_it_when_nothing_else_is_left():
    first, *others = shared_out(CORE + SPARK + BOTH, (1, 1, 1, 2, 2, 2, 0))
    assert all(map(is_on_spark, first))
    assert not any(is_on_spark(names[0]) for names in others)
    assert any(is_on_spark(names[-1]) for names in others)
