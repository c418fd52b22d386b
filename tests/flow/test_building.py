"""What a wrong flow is told, and that a right one describes itself."""

import re
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given

from headwater import Count, Flow, Schema, Session, Sliding, Tumbling, agg, col, io
from headwater.errors import FlowError, RunError
from headwater.flow import draw
from headwater.flow.duration import microseconds
from headwater.flow.steps import Filter, Input, Step
from strategies import build, flows, records

SCHEMA = {"id": str, "height": float, "n": int, "at": "time"}


@pytest.fixture
def flow():
    return Flow("tanks")


@pytest.fixture
def levels(flow):
    return flow.read("levels", io.Items([], SCHEMA))


WRONG = {
    "unknown column": (
        lambda s: s.filter("low", col.hieght < 150),
        r"step 'low': col.hieght: there is no column 'hieght'.*did you mean 'height'\?",
    ),
    "wrong type": (
        lambda s: s.with_columns("w", x=col.id * 2),
        r"col.id is text, expected int or float.*col.id.cast\('float'\)",
    ),
    "mixed types": (
        lambda s: s.filter("f", col.id == 3),
        r"\(col.id == 3\): text and int do not go together",
    ),
    "not a condition": (
        lambda s: s.filter("f", col.height + 1),
        r"a condition is true or false; \(col.height \+ 1\) is float",
    ),
    "a function for an expression": (
        lambda s: s.filter("f", lambda r: True),
        "takes an expression such as.*got function",
    ),
    "an expression for a function": (
        lambda s: s.map("m", col.height),
        "step 'm' takes a function; got Column",
    ),
    "duplicate name": (
        lambda s: s.filter("levels", col.n > 1),
        "already has a step 'levels'.*names must be unique",
    ),
    "no name": (lambda s: s.filter("", col.n > 1), "a step needs a name; got ''"),
    "parallel below one": (
        lambda s: s.filter("f", col.n > 1, parallel=0),
        "parallel must be 1 or more; got 0",
    ),
    "unknown key": (lambda s: s.key_by("idd"), "there is no column 'idd'.*did you mean 'id'"),
    "window without event time": (
        lambda s: s.key_by("id").window("w", Tumbling("1 s"), n=agg.count()),
        "a window of time needs event time; put .event_time",
    ),
    "window without aggregates": (
        lambda s: s.key_by("id").window("w", Count(3)),
        "a window needs an aggregate",
    ),
    "not an aggregate": (
        lambda s: s.key_by("id").window("w", Count(3), n=3),
        r"n must be an aggregate such as mean",
    ),
    "mean of text": (
        lambda s: s.key_by("id").window("w", Count(3), m=agg.mean("id")),
        "cannot take the mean of text",
    ),
    "aggregate named like a key": (
        lambda s: s.key_by("id").window("w", Count(3), id=agg.count()),
        "the result has 'id' twice",
    ),
    "window behind a step that computes event time anew": (
        lambda s: (
            s.event_time("t", "at")
            .with_columns("later", at=(col.at.cast(int) + 3_600_000_000).cast("time"))
            .key_by("id")
            .window("w", Tumbling("1 s"), n=agg.count())
        ),
        "a window of time needs event time",
    ),
    "key named like a bound of the window": (
        lambda s: (
            s.with_columns("at", start=col.at)
            .event_time("t", "at")
            .key_by("start")
            .window("w", Tumbling("1 s"), n=agg.count())
        ),
        "the result has 'start' twice, as a key and of the window; give the key another name",
    ),
    "join whose renamed column is there already": (
        lambda s: (
            s.with_columns("more", right_n=col.n)
            .event_time("left", "at")
            .key_by("id")
            .join("j", s.event_time("right", "at").key_by("id"), within="1 s")
        ),
        "the result has 'right_n' twice, as columns of 'right' whose name is taken get 'right_' in front",
    ),
    "event time that is a number": (
        lambda s: s.event_time("t", "n"),
        r"must be a column of type time; 'n' is int; did you mean .*cast\('time'\)",
    ),
    "union of different columns": (
        lambda s: s.union("u", s.select("s", "id")),
        "joins streams of different columns",
    ),
    "union of two flows": (
        lambda s: s.union("u", Flow("other").read("r", io.Items([], SCHEMA))),
        "joins a stream of flow 'tanks' with one of flow 'other'",
    ),
    "join without event time": (
        lambda s: s.key_by("id").join("j", s.key_by("id"), within="1 s"),
        "has no event time",
    ),
    "unknown side output": (
        lambda s: s.filter("f", col.n > 1).late,
        "step 'f' has no output 'late'; outputs are 'out'",
    ),
    "truth of an expression": (lambda s: s.filter("f", (col.n > 1) and (col.n < 3)), "write & for 'and'"),
    "cast to nonsense": (lambda s: s.with_columns("w", x=col.n.cast("number")), "cannot cast to 'number'"),
    "unknown type": (
        lambda s: s.map("m", len, out={"x": "flot"}),
        "unknown type 'flot'.*did you mean 'float'",
    ),
    "empty flow name": (lambda s: Flow(""), "a flow needs a name"),
    "schema of an empty list": (lambda s: io.Items([]), "cannot guess the columns of an empty list"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_step_is_told_what_is_wrong(what, levels):
    make, said = WRONG[what]
    with pytest.raises(FlowError, match=said):
        make(levels)


def test_a_building_error_points_at_the_users_own_line(levels):
    with pytest.raises(FlowError) as caught:
        levels.filter("low", col.nothing < 1)
    assert re.match(r"test_building\.py:\d+: step 'low'", str(caught.value))


def test_an_output_that_goes_nowhere_is_told(flow, levels):
    levels.filter("low", col.height < 150)
    with pytest.raises(FlowError, match=r"the output of step 'low' goes nowhere; end it with \.write"):
        flow.check()


def test_a_flow_that_reads_nothing_is_told():
    flow = Flow("empty")
    flow.dead_letters.write("dead", io.Discard())
    with pytest.raises(FlowError, match="flow 'empty' reads nothing"):
        flow.check()


def test_a_cycle_is_told():
    schema = Schema.of(SCHEMA)
    around = [
        Step(name, Filter(col.n > 0), (Input(other, "out", schema),), {"out": schema})
        for name, other in (("a", "b"), ("b", "a"))
    ]
    with pytest.raises(FlowError, match="has a cycle through steps 'a', 'b'"):
        Flow.of_steps("round", around).check()


def test_a_step_that_reads_an_unknown_step_is_told():
    step = Step("a", Filter(col.n > 0), (Input("gps", "out", Schema.of(SCHEMA)),), {"out": Schema.of(SCHEMA)})
    with pytest.raises(FlowError, match="step 'a' reads 'gps', which flow 'taxi' does not have; steps so far: 'a'"):
        Flow.of_steps("taxi", [step]).check()


def test_a_step_that_no_source_reaches_is_told():
    step = Step("alone", Filter(col.n > 0), (), {"out": Schema.of(SCHEMA)})
    with pytest.raises(FlowError, match="no source reaches step 'alone'"):
        Flow.of_steps("f", [step]).check()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Tumbling(10), "a duration is text with a unit"),
        (lambda: Tumbling("ten s"), "cannot read duration 'ten s'"),
        (lambda: Tumbling("10 parsecs"), "expected a number and a unit"),
        (lambda: Tumbling("0 s"), "window size must be above 0"),
        (lambda: Sliding("1 s", "2 s"), "would skip records"),
        (lambda: Session("0 s"), "session gap must be above 0"),
        (lambda: Count(0), "must be a whole number of records above 0; got 0"),
        (lambda: Count(2.5), "got 2.5"),
    ],
)
def test_a_wrong_window_is_told(make, said):
    with pytest.raises(FlowError, match=said):
        make()


def test_durations_are_read_as_people_write_them():
    assert microseconds("100 ms") == microseconds("0.1s") == microseconds(timedelta(milliseconds=100)) == 100_000
    assert microseconds("2 hours") == 7_200_000_000


@given(flows(), records)
def test_any_flow_sorts_describes_and_draws_itself(plan, rows):
    made = build(plan, rows)
    made.flow.check()
    seen = set()
    for step in made.flow.in_order():
        assert all(given.step in seen for given in step.inputs)
        seen.add(step.name)
    described = made.flow.to_json()
    assert [s["name"] for s in described["steps"]] == list(made.flow.steps)
    for picture in (draw.tree(made.flow), draw.mermaid(made.flow), draw.svg(made.flow)):
        assert all(name in picture for name in made.flow.steps)


@given(flows(), records)
def test_a_flow_of_the_same_steps_is_the_same_flow(plan, rows):
    flow = build(plan, rows).flow
    assert Flow.of_steps(flow.name, flow.steps.values()).to_json() == flow.to_json()


def test_a_picture_names_functions_by_name_and_lambdas_by_their_line(flow, levels):
    levels.map("half", lambda r: r).map_batches("as it is", _kept).apply("own", partial(_Own, 3)).apply(
        "made", lambda: _Own(3)
    ).key_by("id").process("seen", lambda state, record: (state, record)).write("out", io.Discard())
    drawn = draw.tree(flow)
    assert "<lambda>" not in drawn
    assert re.search(r"half: map lambda of test_building.py:\d+ over each record", drawn)
    assert "as it is: map _kept over each batch" in drawn
    assert "own: _Own" in drawn
    assert re.search(r"made: lambda of test_building.py:\d+", drawn)
    assert re.search(r"seen: process lambda of test_building.py:\d+ by id", drawn)


def _kept(batch):
    return batch


class _Own:
    def __init__(self, size):
        self.size = size


@pytest.mark.parametrize("given", ["300000000 days", f"{'9' * 400} s", timedelta.max])
def test_a_duration_that_is_too_long_is_told_as_that(given):
    with pytest.raises(FlowError, match=r"a duration is shorter than 53,375,995 d; got '"):
        microseconds(given)


@pytest.mark.parametrize("given", [timedelta(seconds=-1), "-1 s", f"{'9' * 400} s", "300000000 days"])
def test_a_time_that_cannot_be_is_no_duration(given):
    for use in (
        microseconds,
        lambda given: io.Mqtt("host", "t", patience=given),
        lambda given: io.Mqtt("host", "t", retry=given),
        lambda given: io.Generate(dict, {"n": int}, 1, duration=given),
        lambda given: io.Generate(dict, {"n": int}, 1, tick=given),
        lambda given: io.rates.burst(1, 2, every="1 s", length=given),
        lambda given: Flow("f").read("in", io.Items([{"t": 1}], {"t": "time"})).event_time("at", "t", lateness=given),
    ):
        with pytest.raises(FlowError, match=r"duration"):
            use(given)


@pytest.mark.parametrize("given", [-1, 0, float("nan"), float("inf"), "1 s", True])
@pytest.mark.parametrize("name", ["seconds", "sample_s"])
def test_a_run_lasts_longer_than_nothing(name, given):
    from headwater import engine
    from headwater.spark.options import SparkOptions

    for options in (engine.Options, SparkOptions):
        with pytest.raises(RunError, match=f"{name} must be a number of seconds above 0"):
            options(**{name: given})


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda: Flow("f").read("in", [{"x": 1}]), r"step 'in' takes a source, such as io.Items\(records\); got list"),
        (lambda: Flow("f").read("in", io.Items([{"x": 1}])).write("out", []), r"takes a sink, such as .*; got list"),
        (lambda: io.Items([{"x": 1}], ["x"]), r"columns are given as names and types, such as .*; got list \['x'\]"),
        (lambda: io.Items([1, 2]), r"expected records \(dicts\), such as .*; got int 1"),
        (
            lambda: Flow("f").read("in", io.Items([{"x": 1}])).key_by(5),
            "expected the name of a column, a text; got int 5",
        ),
        (lambda: Flow("f").read("in", io.Items([{"x": 1}])).key_by(col.x), "expected the name of a column.*col.x"),
    ],
)
def test_what_is_given_in_place_of_another_thing_is_told(use, said):
    with pytest.raises(FlowError, match=said):
        use()


def test_what_is_no_flow_is_not_run():
    from headwater import engine

    with pytest.raises(RunError, match="a Flow is run; got int 5"):
        engine.run(5)


def test_a_path_is_neither_source_nor_sink():
    with pytest.raises(
        FlowError, match=r"step 'in' takes a source, such as io.JsonLines\('in.jsonl'\); got 'in.jsonl'"
    ):
        Flow("f").read("in", "in.jsonl")
    with pytest.raises(
        FlowError, match=r"test_building.py:\d+: step 'out' takes a sink, such as io.JsonLines\('o.jsonl'\)"
    ):
        Flow("f").read("in", io.Items([{"t": 1}])).write("out", Path("o.jsonl"))
