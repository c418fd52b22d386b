"""What a step declares is what its operator does."""

import pytest
from driving import drive

from headwater import Batch, Cell, Count, Flow, Session, Sliding, Tumbling, agg, col, io
from headwater.errors import FlowError
from headwater.operators import Operator, build

SCHEMA = {"key": str, "x": float, "at": "time"}


class Doubled:
    state = {"n": Cell("int64")}  # noqa: RUF012  # what a scan has
    makes = ("x",)

    def run(self, batch, slots, state):
        return {"x": batch["x"] * 2}


class Waiting(Operator):
    """Looks at each record alone, but does something when time moves on."""

    def process(self, batch, port):
        return batch

    def advance(self, watermark):
        return None

    def snapshot(self, select=None):
        return b"x"


class Learning(Waiting):
    stateless = False
    replicable = True


def every_kind():
    flow = Flow("every kind")
    read = flow.read("read", io.Items([], SCHEMA))
    low, high = read.filter("filter", col.x > 0).select("select", "key", "x", "at").split("split", col.x < 5)
    low.union("union", high).map("map", dict).flat_map("flat map", list).map_batches("batches", lambda batch: batch)
    timed = read.event_time("time", "at")
    keyed = timed.key_by("key")
    keyed.process("process", lambda state, record: (state, record))
    keyed.scan("scan", Doubled())
    for window in (Count(2), Count(4, every=2), Tumbling("1 s"), Sliding("2 s", "1 s"), Session("1 s")):
        keyed.window(str(window), window, n=agg.count())
    keyed.join("join", keyed, within="1 s")
    read.apply("waiting", Waiting)
    read.apply("by a function", lambda: Waiting())
    read.key_by("key").apply("waiting by key", Waiting)
    read.to_all().apply("learning", Learning)
    assert flow.dead_letters
    return [step for step in flow.steps.values() if not (step.is_source or step.is_sink)]


@pytest.mark.parametrize("step", every_kind(), ids=lambda step: step.name)
def test_a_step_keeps_state_and_uses_time_exactly_if_its_operator_does(step):
    operator = build(step)
    assert step.kind.timed == operator.timed
    assert (step.state == "none") == (operator.stateless and not operator.timed)
    assert operator.saves == (step.state != "none")


def test_state_is_by_key_where_the_inputs_are():
    found = {step.name: step.state for step in every_kind()}
    assert {name for name, state in found.items() if state == "stream"} == {"time"}
    assert {name for name, state in found.items() if state == "all"} == {"waiting", "by a function"}
    assert found["waiting by key"] == found["process"] == found["join"] == "key"
    assert found["learning"] == "copied"


def test_a_scan_that_makes_other_columns_than_it_says_is_told():
    class Renaming(Doubled):
        def run(self, batch, slots, state):
            return {"key": batch["key"]}

    flow = Flow("f")
    flow.read("r", io.Items([], SCHEMA)).key_by("key").scan("s", Renaming())
    made = drive(
        build(flow.steps["s"]), [Batch.of_rows([{"key": "a", "x": 1.0, "at": 0}], flow.steps["s"].outputs["out"])]
    )
    [letter] = made.dead
    assert "Renaming says that it makes 'x', and made 'key'" in letter["error"]


def test_a_step_of_ones_own_that_makes_no_operator_is_told():
    flow = Flow("f")
    for name, make in (("object", object), ("function", lambda: 3)):
        flow.read(f"r {name}", io.Items([], SCHEMA)).apply(name, make)
        with pytest.raises(FlowError, match="must return an Operator"):
            _ = flow.steps[name].state
