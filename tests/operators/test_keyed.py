import json
from types import MappingProxyType

import numpy as np
import pytest
from driving import Outputs, drive
from hypothesis import given
from hypothesis import strategies as st

from headwater import Batch, Cell, Flow, Schema, io
from headwater.errors import SnapshotError
from headwater.operators import build
from headwater.operators.operator import Select

SCHEMA = Schema.of({"key": str, "x": float})
records = st.lists(
    st.fixed_dictionaries({"key": st.sampled_from(list("abcdef")), "x": st.integers(-9, 9).map(float)}),
    max_size=50,
)


class RunningSum:
    """Adds up the values of each key."""

    state = MappingProxyType({"total": Cell("f8")})

    def run(self, batch, slots, state):
        out = np.empty(batch.length)
        for i, (slot, x) in enumerate(zip(slots, batch["x"], strict=True)):
            state["total"][slot] += x
            out[i] = state["total"][slot]
        return {"x": out}


class EveryThird(RunningSum):
    """Gives a result for every third record of a batch only."""

    def run(self, batch, slots, state):
        rows = np.arange(0, batch.length, 3)
        return rows, {"x": super().run(batch, slots, state)["x"][rows]}


def running_sum(state, record):
    total = (state or 0.0) + record["x"]
    return total, {"key": record["key"], "x": total}


def step_of(how):
    flow = Flow("k")
    keyed = flow.read("r", io.Items([], SCHEMA)).key_by("key")
    if how == "process":
        keyed.process("s", running_sum)
    else:
        keyed.scan("s", how())
    return flow.steps["s"]


def reference(rows):
    totals, out = {}, []
    for row in rows:
        totals[row["key"]] = totals.get(row["key"], 0.0) + row["x"]
        out.append({"key": row["key"], "x": totals[row["key"]]})
    return out


@pytest.mark.parametrize("how", ["process", RunningSum])
@given(rows=records, cut=st.integers(0, 50))
def test_keyed_state_goes_on_after_a_snapshot(how, rows, cut):
    before, after = build(step_of(how)), build(step_of(how))
    out = drive(before, [Batch.of_rows(rows[:cut], SCHEMA)], end=False)
    after.restore(before.snapshot())
    drive(after, [Batch.of_rows(rows[cut:], SCHEMA)], into=out)
    assert out.main == reference(rows)


@pytest.mark.parametrize("how", ["process", RunningSum])
@given(rows=records, cut=st.integers(0, 50))
def test_keyed_state_moves_by_key(how, rows, cut):
    parts = [build(step_of(how)) for _ in range(3)]
    out = drive(parts[0], [Batch.of_rows(rows[:cut], SCHEMA)], end=False)
    for part in (1, 2):
        parts[part].restore(parts[0].snapshot(Select(part, 3)))
        parts[0].forget(Select(part, 3))
    rest = Batch.of_rows(rows[cut:], SCHEMA)
    for part, operator in enumerate(parts):
        drive(operator, [rest.filter(Select(part, 3).rows([rest["key"]]))], into=out)
    assert sorted(map(str, out.main)) == sorted(map(str, reference(rows)))


def test_a_scan_may_give_fewer_results_than_records():
    rows = [{"key": "a", "x": 1.0}] * 7
    out = drive(build(step_of(EveryThird)), [Batch.of_rows(rows, SCHEMA)])
    assert out.main == [{"key": "a", "x": x} for x in (1.0, 4.0, 7.0)]


class Fussy(RunningSum):
    """Adds up, and breaks at what is infinite when it has added that."""

    def run(self, batch, slots, state):
        made = super().run(batch, slots, state)
        if np.isinf(batch["x"]).any():
            raise ValueError("too much")
        return made


@pytest.mark.parametrize("large", [0, 2**17], ids=["large cells", "small cells"])
@pytest.mark.parametrize("keys", [3, 1000], ids=["each key often", "many more keys than records"])
def test_a_batch_that_breaks_a_scan_leaves_its_cells_as_they_were(keys, large, monkeypatch):
    monkeypatch.setattr("headwater.operators.keyed._LARGE", large)
    monkeypatch.setattr("headwater.operators.keyed._MANY", 16)
    operator = build(step_of(Fussy))
    names = [f"k{i}" for i in range(keys)]
    drive(operator, [Batch.of_rows([{"key": name, "x": 1.0} for name in names], SCHEMA)], end=False)
    rows = [{"key": names[i % 3], "x": float("inf") if i == 17 else 1.0} for i in range(30)]
    said = drive(operator, [Batch.of_rows(rows, SCHEMA)])
    assert [json.loads(letter["record"])["key"] for letter in said.dead] == ["k2"]
    assert [row["x"] for row in said.main if row["key"] == "k0"] == [2.0 + i for i in range(10)]
    assert [row["x"] for row in said.main if row["key"] == "k2"] == [2.0 + i for i in range(9)]


def test_a_record_that_breaks_a_process_function_leaves_the_state_as_it_was():
    def fussy(state, record):
        if record["x"] < 0:
            raise ValueError("below zero")
        return (state or 0) + 1, {"key": record["key"], "x": float((state or 0) + 1)}

    flow = Flow("k")
    flow.read("r", io.Items([], SCHEMA)).key_by("key").process("s", fussy)
    out = Outputs()
    rows = [{"key": "a", "x": x} for x in (1.0, -1.0, 1.0)]
    out.add(build(flow.steps["s"]).process(Batch.of_rows(rows, SCHEMA), 0))
    assert [r["x"] for r in out.main] == [1.0, 2.0]
    line = fussy.__code__.co_firstlineno + 2
    assert [(d["step"], d["error"]) for d in out.dead] == [
        ("s", f"ValueError: below zero (test_keyed.py:{line}, in fussy)")
    ]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (42, "a process function returns (state, result), got 42"),
        ((1, {"key": "a"}), "the result lacks 'x'"),
        ((1, {"key": "a", "x": "high"}), "column 'x': expected float, got str 'high'"),
        ((1, 7), "expected a record (a dict), got int 7"),
    ],
)
def test_a_wrong_answer_of_a_process_function_is_told(answer, said):
    flow = Flow("k")
    flow.read("r", io.Items([], SCHEMA)).key_by("key").process("s", lambda state, record: answer)
    out = Outputs()
    out.add(build(flow.steps["s"]).process(Batch.of_rows([{"key": "a", "x": 1.0}], SCHEMA), 0))
    assert said in out.dead[0]["error"]


def test_state_of_other_cells_is_refused():
    class Other(RunningSum):
        state = MappingProxyType({"count": Cell("i8")})

    Other.__name__ = "RunningSum"
    with pytest.raises(SnapshotError, match=r"step 's' keeps \['count'\], but the snapshot has \['total'\]"):
        build(step_of(Other)).restore(build(step_of(RunningSum)).snapshot())


def seen_so_far(state, record):
    """Keep a state of many kinds: a snapshot in between must not change one of them."""
    seen, last, product, notes = state or (set(), (), 1, {})
    seen, product = seen | {record["x"]}, product * 10**9
    assert all(
        type(part) is kind for part, kind in zip((seen, last, product, notes), (set, tuple, int, dict), strict=True)
    )
    notes = {**notes, "": "text", (record["x"], None): 2**70}
    return (seen, (record["x"], last), product, notes), {"k": record["k"], "x": float(len(seen) + len(notes))}


def test_a_snapshot_changes_nothing_of_a_users_state():
    schema = Schema.of({"k": str, "x": float})
    flow = Flow("state")
    flow.read("r", io.Items([], {"k": str, "x": float})).key_by("k").process("p", seen_so_far)
    batches = [Batch.of({"k": ["a"], "x": [float(n % 3)]}, schema) for n in range(6)]
    straight, moved = drive(build(flow.steps["p"]), batches), Outputs()
    saved = build(flow.steps["p"]).snapshot()
    for batch in batches:
        operator = build(flow.steps["p"])
        operator.restore(saved)
        drive(operator, [batch], into=moved, end=False)
        saved = operator.snapshot()
    assert moved.main == straight.main
    assert not moved.dead
