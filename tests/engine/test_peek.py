"""A look at records as they pass a step."""

import pytest

from headwater import Flow, col, engine, io
from headwater.engine.peek import peek
from headwater.errors import RunError


@pytest.fixture
def running():
    flow = Flow("levels")
    levels = flow.read(
        "levels", io.Generate(lambda n: {"n": n, "text": ["x" * 1000] * len(n)}, {"n": int, "text": str}, rate=2000)
    )
    even = levels.filter("even", col.n % 2 == 0)
    even.write("out", io.Discard())
    run = engine.start(flow)
    yield run
    run.stop()
    run.wait()


def test_it_shows_what_a_step_takes_in_and_gives_out(running):
    found = peek(running, "even", 10, 30.0)
    assert found["step"] == "even"
    assert len(found["in"]) == 10
    assert all(row["n"] % 2 == 0 for row in found["out"])
    assert {row["n"] for row in found["in"] if row["n"] % 2 == 0} <= {row["n"] for row in found["out"]}


def test_it_shows_what_a_source_gives_out_and_a_sink_takes_in(running):
    assert len(peek(running, "levels", 5, 30.0)["out"]) == 5
    assert len(peek(running, "out", 5, 30.0)["in"]) == 5


def test_long_text_is_cut(running):
    assert len(peek(running, "even", 1, 30.0)["in"][0]["text"]) == 501


def test_the_step_is_as_it_was_afterwards(running):
    before = [task.operate for task in running.tasks]
    peek(running, "even", 3, 30.0)
    assert [task.operate for task in running.tasks] == before


def test_a_step_that_is_not_there_is_told(running):
    with pytest.raises(RunError, match=r"no step 'evne'.*did you mean 'even'"):
        peek(running, "evne", 3, 0.1)


def test_nothing_that_passes_is_an_empty_answer():
    flow = Flow("none")
    flow.read("levels", io.Items([{"n": 1}])).write("out", io.Discard())
    run = engine.start(flow)
    run.wait()
    assert peek(run, "out", 3, 0.01) == {"step": "out", "in": [], "out": []}


def test_another_runner_says_that_it_cannot():
    with pytest.raises(RunError, match="one process of the engine"):
        peek(object(), "a", 3, 0.1)
