"""Stages with state as Spark calls them: with a group's rows and its state, in a worker that remembers or does not."""

from __future__ import annotations

import pytest

from headwater import Flow, io
from headwater.data.batch import Batch
from headwater.operators.operator import Operator, partitions
from headwater.spark import keyed
from headwater.spark.envelope import COUNTS, Envelope
from headwater.spark.executor import Executor
from headwater.spark.stages import cut

pytest.importorskip("pandas")


def numbered(state, record):
    seen = (state or 0) + 1
    return seen, {"key": record["key"], "seen": seen}


class Here:
    """A flow that need not be sent anywhere."""

    def __init__(self, name):
        flow = Flow(name)
        read = flow.read("r", io.Items([{"key": "a"}]))
        read.key_by("key").process("p", numbered, out={"key": str, "seen": int}).write("out", io.Collect())
        self.file, self._layout = name, cut(flow, 2)

    def layout(self):
        return self._layout


class State:
    """What Spark keeps of a group."""

    exists = False

    def update(self, value):
        self.exists, self.get = True, value


def rows(here, count, key="a"):
    batch = Batch.of({"key": [key] * count}, here.layout().flow.steps["r"].outputs["out"])
    rows = list(keyed.SourceStage(here, here.layout().stages[0])(0, iter([(0, batch)])))
    return [row for row in rows if row[1] != COUNTS]


def played(here, given, state, sent=lambda function: function):
    """Run the group of one bucket; return the numbers that came out."""
    (bucket,) = {row[0] for row in given}
    frame = keyed._frame(given).assign(bucket=bucket)
    (made,) = sent(keyed._on_bucket(here, 1))((bucket,), iter([frame]), state)
    frames = [frame for target, frame in zip(made["target"], made["frame"], strict=True) if target != COUNTS]
    return [n for frame in frames for n in Envelope.unpack(frame).batch["seen"].tolist()]


def test_a_worker_goes_on_with_what_it_has_or_with_the_saved_state():
    here, state = Here("a flow"), State()
    assert played(here, rows(here, 3), state) == [1, 2, 3]
    assert len(keyed._live) == 1
    assert played(here, rows(here, 2), state) == [4, 5]
    keyed._live.clear()  # as in another worker
    assert played(here, rows(here, 2), state) == [6, 7]


def test_a_worker_keeps_so_many_bytes_of_state_and_reads_again_what_it_dropped(monkeypatch):
    here, states, given = Here("a flow with much state"), {}, {}
    here._layout = cut(here.layout().flow, 4)
    for key in "abcdefgh":
        made = rows(here, 1, key)
        given.setdefault(made[0][0], key)
        states[made[0][0]] = State()
    one, two, three = list(given)[:3]

    def run(bucket, count):
        return played(here, rows(here, count, given[bucket]), states[bucket])

    def kept():
        return [bucket for _, bucket in keyed._live]

    monkeypatch.setattr(keyed, "_live", {})
    assert [run(bucket, 1) for bucket in (one, two, three)] == [[1], [1], [1]]
    assert kept() == [one, two, three]
    size = len(states[one].get[1])
    assert [each for _, _, each in keyed._live.values()] == [size] * 3
    monkeypatch.setattr(keyed, "_LIVE_BYTES", 2 * size)
    assert run(one, 1) == [2]
    assert kept() == [three, one]  # the second had not run for longest
    assert run(two, 1) == [2]  # as it was saved
    assert run(two, 1) == [3]
    assert kept() == [one, two]
    monkeypatch.setattr(keyed, "_LIVE_BYTES", 0)
    assert run(three, 1) == [2]
    assert kept() == [three]  # the last one is kept, however large
    assert [run(bucket, 1) for bucket in (one, two, three)] == [[3], [4], [3]]


def test_a_worker_has_what_it_left_though_each_task_brings_the_function_anew(monkeypatch):
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    here, state, built = Here("a flow that is sent"), State(), []
    monkeypatch.setattr(keyed, "Executor", lambda *given, **named: built.append(given) or Executor(*given, **named))
    first, second = rows(here, 3), rows(here, 2)
    built.clear()  # those of the source

    def sent(function):
        return cloudpickle.loads(cloudpickle.dumps(function))

    assert played(here, first, state, sent) == [1, 2, 3]
    assert played(here, second, state, sent) == [4, 5]
    assert len(built) == 1


def test_what_keeps_no_state_is_built_once_in_a_worker_whichever_bucket_comes():
    flow, made = Flow("a flow with a table"), []

    class Marked(Operator):
        def __init__(self):
            made.append(self)

        def process(self, batch, port):
            return batch

    keyed_stream = flow.read("r", io.Items([{"key": "a"}])).key_by("key")
    counted = keyed_stream.process("p", numbered, out={"key": str, "seen": int})
    counted.apply("marked", Marked, out={"key": str, "seen": int}).write("out", io.Collect())
    here = Here("a flow")
    here.file, here._layout = flow.name, cut(flow, 2)
    stage = here.layout().stages[1]
    assert "marked" in stage.steps
    one, other = (keyed._executor(here, bucket, State()) for bucket in stage.numbers)
    assert len(made) == 1
    assert one.operators["marked"] is other.operators["marked"]
    assert one.operators["p"] is not other.operators["p"]


def test_what_a_failed_attempt_left_in_a_worker_is_not_used():
    here, state, lost = Here("a flow that fails"), State(), State()
    assert played(here, rows(here, 3), state) == [1, 2, 3]
    lost.update(state.get)
    assert played(here, rows(here, 5), lost) == [4, 5, 6, 7, 8]  # its state never reached Spark's store
    assert played(here, rows(here, 2), state) == [4, 5]


def test_rows_on_their_way_to_a_later_level_pass_untouched():
    here, state = Here("a flow with a way through"), State()
    given = [(-1, 1_000_000, 7, b"envelope"), (-1, 1_000_000, 8, b"another")]
    frame = keyed._frame(given).assign(bucket=-1)
    (made,) = keyed._on_bucket(here, 1)((-1,), iter([frame]), state)
    assert list(made.itertuples(index=False, name=None)) == [(0, *row[1:]) for row in given]
    assert not state.exists


def test_rows_for_a_sink_travel_with_a_bucket_and_leave_its_state_alone():
    here, state = Here("a flow with passengers"), State()
    given = rows(here, 2)
    passing = [(given[0][0], COUNTS, 7, b"counts"), (given[0][0], 1_000_000, 8, b"envelope")]
    frame = keyed._frame(passing).assign(bucket=given[0][0])
    (made,) = keyed._on_bucket(here, 1)((given[0][0],), iter([frame]), state)
    assert [row[1:] for row in made.itertuples(index=False, name=None)] == [row[1:] for row in passing]
    assert set(made["bucket"]) <= {0, -1}  # which is -1 and -2, and later levels send on
    assert not state.exists
    frame = keyed._frame([*passing, *given]).assign(bucket=given[0][0])
    (made,) = keyed._on_bucket(here, 1)((given[0][0],), iter([frame]), state)
    assert list(made["frame"])[:2] == [b"counts", b"envelope"]
    assert len(made) == 2 + 2  # and what came of the records, and what was counted
    assert state.exists


def test_flows_that_ended_long_ago_are_forgotten():
    for number in range(10):
        here = Here(f"flow {number}")
        played(here, rows(here, 1), State())
    assert {file for file, _ in keyed._live} == {f"flow {number}" for number in range(6, 10)}


def test_keys_are_spread_the_same_way_in_every_process():
    batch = Batch.of({"key": ["a", "b", "c", "d"]}, Here("spread").layout().flow.steps["r"].outputs["out"])
    assert partitions([batch["key"]], 4).tolist() == [2, 2, 0, 3]
