"""Tasks that save themselves, and words about checkpoints that come late."""

import numpy as np
import pytest

from headwater import Batch, Flow, Schema, io, retry
from headwater.data.batch import END, NO_WATERMARK
from headwater.operators import Operator
from headwater.operators.execution_graph import ExecutionGraph
from headwater.operators.queue import FROM_CLOCK, Control, Delivery, QueueEntry
from headwater.operators.task import Task

SCHEMA = Schema.of({"x": int})


class Kept(Operator):
    """Keeps all that comes."""

    stateless = False

    def __init__(self):
        self.seen, self.committed, self.ended = [], [], []

    def process(self, batch, port):
        self.seen += batch["x"].tolist()

    def advance(self, watermark):
        self.ended += [watermark] if watermark == END else []

    def commit(self, number):
        self.committed.append(number)


def union_of(sources):
    flow = Flow("union")
    first, *others = [flow.read(f"s{number}", io.Items([], {"x": int})) for number in range(sources)]
    (first.union("all", *others) if others else first).write("write", io.Collect())
    instances = ExecutionGraph.of(flow).instances
    return Task(next(i for i in instances if len(i.channel_ports) == sources and not i.step.is_source), Kept())


def results_of(task):
    results = {}
    task.saver.on_saved = results.__setitem__
    return results


def records(*values, channel=0, watermark=NO_WATERMARK):
    batch = Batch({"x": np.array(values)}, len(values), np.zeros((len(values), 2), np.int64)) if values else None
    return QueueEntry(channel, batch, watermark, 0, max(1, len(values)), 0)


def word(kind, number, channel=0):
    return QueueEntry(channel, None, NO_WATERMARK, 0, 1, 0, Control(kind, number))


def kept(result):
    return [batch["x"].tolist() for _, batch, _ in result["queue"] if batch is not None]


def test_a_late_word_of_a_checkpoint_that_came_to_nothing_keeps_nothing_for_the_next():
    task = union_of(1)
    results = results_of(task)
    waiting = [word("snapshot", 0), records(1), word("barrier", 0), records(2), word("barrier", 1)]
    task.run([word("snapshot", 1)])
    task.run(waiting)
    assert kept(results[1]) == [[1], [2]]


def test_a_channel_that_had_ended_may_send_more_in_a_later_run_and_it_is_kept():
    before = union_of(2)
    before.run([records(1), records(channel=0, watermark=END)])
    task = union_of(2)
    results = results_of(task)
    task.load(before.save())
    task.run([word("barrier", 0, channel=1), records(7, channel=0), word("barrier", 0, channel=0)])
    assert kept(results[0]) == [[7]]


def test_a_task_that_is_saved_for_the_last_checkpoint_says_nothing_more_when_the_clock_moves_on():
    """What it would say, it will say again in the next run; steps after it may not be saved yet, and would have it twice."""

    class Clocked(Kept):
        ticks = 0

        def tick(self):
            self.ticks += 1

    task = union_of(2)
    task.operator = Clocked()
    tick = word("tick", FROM_CLOCK)
    task.run([tick, word("last", 0, channel=0), tick])
    assert task.operator.ticks == 2
    task.run([word("last", 0, channel=1), tick])
    task.run([tick])
    assert task.operator.ticks == 2


def test_a_sink_that_has_ended_leaves_commits_to_who_makes_checkpoints():
    task = union_of(1)
    task.run([word("commit", 0), records(watermark=END), word("commit", 1)])
    assert task.ended
    assert task.operator.committed == [0]


def test_a_task_that_ended_in_a_run_before_has_ended_in_the_next_checkpoint_too():
    before = union_of(1)
    before.run([records(watermark=END)])
    task = union_of(1)
    results = results_of(task)
    task.load(before.save())
    task.run([word("barrier", 0)])
    assert not task.ended
    assert results[0]["ended"], "else its operator would say twice what it says at the end"


@pytest.mark.parametrize("inline", [False, True])
def test_a_task_that_ended_in_a_run_before_says_anew_what_it_says_at_the_end_if_something_has_come(inline):
    the_end = [records(watermark=END, channel=0), records(watermark=END, channel=1)]
    before = union_of(2)
    before.run([records(1), *the_end])
    for more, said in (((), []), ((2,), [END])):
        task = union_of(2)
        task.load(before.save())
        if more and inline:
            task.run_inline(Delivery.of(0, 0, records(*more).batch, NO_WATERMARK), [])
        elif more:
            task.run([records(*more)])
        task.run(the_end)
        assert task.operator.ended == said


class Total(Operator):
    """A user's sum, which can be saved, and fails at the first batch that any of its kind is given."""

    stateless = False
    failed = False

    def __init__(self):
        self.total = 0

    def process(self, batch, port):
        self.total += int(batch["x"].sum())
        if not Total.failed:
            Total.failed = True
            raise OSError("away for a moment")

    def snapshot(self, select=None):
        return str(self.total).encode()

    def restore(self, data):
        self.total = int(data)


def test_what_is_saved_of_an_operator_that_was_taken_back_and_tried_again_is_what_it_has_now():
    Total.failed = False
    flow = Flow("total")
    flow.read("s", io.Items([], {"x": int})).apply("total", Total, on_error=retry(times=2, backoff="1 ms")).write(
        "write", io.Collect()
    )
    step = next(each for each in ExecutionGraph.of(flow).instances if each.step.name == "total")
    task = Task(step, Total())
    task.run([records(1, 2)])
    assert task.put_back() == 2
    task.resting_ns = 0
    task.run([*task.queue.take(2), records(4)])
    assert task.save()["state"] == b"7"


def test_what_is_to_be_tried_again_does_not_come_before_a_word_to_save_the_task_now():
    """A sink that waited for room on a disk had kept all checkpoints waiting, where the word came amid an attempt."""
    task = union_of(1)
    results = results_of(task)
    task.postponed = [records(1), records(2)]
    task.put(records(3))
    task.put(word("barrier", 0))
    task.put(word("snapshot", 0), first=True)  # while the first two are in hand
    assert task.put_back() == 2
    task.run(task.queue.take(5))
    assert kept(results[0]) == [[1], [2], [3]]
    assert task.operator.seen == [1, 2, 3]
