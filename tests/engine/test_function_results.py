"""What functions over arrays return is what was declared, or a dead letter: never another number."""

from typing import ClassVar

import numpy as np
import pytest

from headwater import Cell, Flow, engine, io
from headwater.errors import RunError


def over(verb, function, **out):
    """Run a function over x = 1, 2, 3; return the records that came out and the errors of dead letters."""
    flow, kept, letters = Flow("results"), io.Collect(), io.Collect()
    rows = [{"key": "a", "x": x} for x in (1, 2, 3)]
    stream = flow.read("rows", io.Items(rows, {"key": str, "x": int}))
    getattr(stream.key_by("key") if verb in ("scan", "process") else stream, verb)("step", function, **out).write(
        "out", kept
    )
    flow.dead_letters.write("letters", letters)
    engine.run(flow)
    return kept.records, [letter["error"] for letter in letters.records]


@pytest.mark.parametrize("factor", [1.5, np.nan, 1e300])
def test_floats_for_whole_numbers_are_dead_letters_as_those_of_map_are(factor):
    by_record = over("map", lambda record: {"x": record["x"] * factor}, out={"x": int})
    assert over("map_batches", lambda batch: {"x": batch["x"] * factor}, out={"x": int}) == by_record
    records, errors = by_record
    assert (records, len(errors)) == ([], 3)
    assert "column 'x': expected int, got float" in errors[0]


def test_only_the_rows_beyond_64_bits_are_dead_letters():
    def huge(batch):
        return {"x": np.where(batch["x"] == 2, np.uint64(2**64 - 1), batch["x"].astype(np.uint64))}

    records, errors = over("map_batches", huge, out={"x": int})
    assert [record["x"] for record in records] == [1, 3]
    assert len(errors) == 1
    assert "a number of 64 bits is too large for int" in errors[0]


def test_a_batch_that_a_function_changed_is_held_against_the_columns_too():
    records, errors = over("map_batches", lambda batch: batch.with_columns({"x": batch["x"] / 2}))
    assert (records, len(errors)) == ([], 3)
    assert "column 'x': expected int, got float 0.5" in errors[0]


class Halves:
    state: ClassVar = {"last": Cell("f8", initial=0.0)}
    makes = ("x",)
    reads = ("x",)

    def run(self, batch, slots, state):
        return {"x": batch["x"] / 2}


def test_floats_that_a_scan_makes_of_whole_numbers_are_dead_letters():
    records, errors = over("scan", Halves())
    assert (records, len(errors)) == ([], 3)
    assert "column 'x': expected int, got float 0.5" in errors[0]


def test_a_generator_of_floats_for_whole_numbers_is_told():
    flow, kept = Flow("made"), io.Collect()
    flow.read("numbers", io.Generate(lambda n: {"x": n * 1.5}, {"x": int}, rate=1000, count=4)).write("out", kept)
    with pytest.raises(RunError, match="column 'x': expected int, got float"):
        engine.run(flow)
    assert kept.records == []


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda batch: {"y": batch["x"] * 10}, "the result lacks 'x'; expected columns ['x'], got ['y']"),
        (lambda batch: {}, "the function returned no columns; expected 'x'"),
        (lambda batch: None, "the function returned no columns; expected 'x', or those of them it changes; is a"),
    ],
)
def test_a_column_under_another_name_or_none_at_all_is_told(made, said):
    records, errors = over("map_batches", made, out={"x": int})
    assert (records, len(errors)) == ([], 3)
    assert said in errors[0]


@pytest.mark.parametrize(
    ("verb", "function"),
    [
        ("map", lambda record: {**record, "ratio": 5}),
        ("flat_map", lambda record: [{**record, "ratio": 5}]),
        ("process", lambda state, record: (state, {**record, "ratio": 5})),
    ],
)
def test_a_column_that_nobody_declared_is_told_and_not_left_out(verb, function):
    records, errors = over(verb, function)
    assert (records, len(errors)) == ([], 3)
    assert "'ratio']; declare what a function returns with out=" in errors[0]


def test_columns_that_a_function_leaves_out_are_those_it_was_given():
    records, errors = over("map_batches", lambda batch: {"y": batch["x"] * 0.5}, out={"x": int, "y": float})
    assert (records[2], errors) == ({"x": 3, "y": 1.5}, [])


def test_a_column_that_was_given_is_not_taken_for_one_of_another_type():
    records, errors = over("map_batches", lambda batch: {"y": batch["x"] * 0.5}, out={"key": int, "y": float})
    assert (records, len(errors)) == ([], 3)
    assert "column 'key': expected int, got str 'a'" in errors[0]
