from __future__ import annotations

import json
import math

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import ModelError
from headwater.models.model import Fork, Leaf, LinearModel, TreeModel, from_json, from_weka, load, save

TREE = TreeModel(("air", "dust"), ("BAD", "GOOD"), (Fork(0, 22.0, 1, 2), Leaf(0), Fork(1, 0.5, 3, 4), Leaf(1), Leaf(0)))
LINE = LinearModel(("air", "dust"), "light", (2.0, -0.5), 10.0)


@st.composite
def weka_trees(draw, depth=3):
    if depth == 0 or draw(st.booleans()):
        return {"class_index": draw(st.integers(0, 2)), "class": "any", "n": 1.0}
    low, high = draw(weka_trees(depth=depth - 1)), draw(weka_trees(depth=depth - 1))
    threshold = draw(st.floats(-5, 5))
    return {"attr": "a", "attr_index": draw(st.integers(0, 1)), "threshold": threshold, "le": low, "gt": high}


@given(weka_trees(), st.lists(st.tuples(st.floats(-6, 6), st.floats(-6, 6)), min_size=1, max_size=20))
def test_a_tree_in_arrays_tells_what_the_nested_one_tells(tree, rows):
    entry = {"kind": "weka.J48", "attributes": ["a", "b", "result"], "classes": ["x", "y", "z"], "tree": tree}
    model = from_weka(entry, "drawn")
    expected = [reference.classify(tree, list(row)) for row in rows]
    assert model.predict(np.array(rows).T.copy()).tolist() == expected
    again = from_json(model.to_json())
    assert again.predict(np.array(rows).T.copy()).tolist() == expected
    assert again.nodes == model.nodes


def test_a_regression_adds_up():
    assert LINE.predict(np.array([[1.0, 2], [4, 8]])).tolist() == [10.0, 10.0]
    again = from_json(LINE.to_json())
    assert (again.columns, again.target) == (("air", "dust"), "light")
    assert (again.coefficients, again.intercept) == ((2.0, -0.5), 10.0)


def test_a_saved_model_is_loaded_again(tmp_path):
    save(TREE, tmp_path / "tree.json")
    assert load(tmp_path / "tree.json").nodes == TREE.nodes
    assert [path.name for path in tmp_path.iterdir()] == ["tree.json"]


def test_a_missing_model_file_is_named(tmp_path):
    with pytest.raises(ModelError, match=r"cannot read model file .*gone\.json: No such file"):
        load(tmp_path / "gone.json")


def leaf(klass: int) -> dict[str, object]:
    return {"type": "leaf", "klass": klass}


def fork(column: int, low: int, high: int) -> dict[str, object]:
    return {"type": "fork", "column": column, "threshold": 1.0, "low": low, "high": high}


def changed(model: TreeModel | LinearModel, **parts: object) -> bytes:
    return json.dumps({**json.loads(model.to_json()), **parts}).encode()


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "m is not a model file, or is cut short"),
        (TREE.to_json()[:-1], "m is not a model file, or is cut short"),
        (b"[1]", "m is not a model file"),
        (changed(TREE, version=2), "m: expected headwater-model 1, got headwater-model 2"),
        (changed(TREE, format="pmml"), "m: expected headwater-model 1, got pmml 1"),
        (changed(TREE, kind="forest"), "expected a model of kind 'tree' or 'regression', got 'forest'"),
        (changed(TREE, extra=1), "unknown field `extra`"),
        (changed(TREE, nodes=[]), "m: a tree needs at least one node"),
        (changed(TREE, nodes=[leaf(2)]), "m: tree node 0 tells class 2; there are 2 classes"),
        (changed(TREE, nodes=[fork(2, 1, 1), leaf(0)]), "tree node 0 compares column 2"),
        (changed(TREE, nodes=[fork(0, 0, 1), leaf(0)]), "tree node 0 leads to 0 and 1"),
        (changed(TREE, nodes=[fork(0, 1, 2), leaf(0)]), "tree node 0 leads to 1 and 2"),
        (changed(LINE, coefficients=[1.0]), "has 1 coefficients"),
        (changed(LINE, coefficients=[1.0, "a"]), "Expected `float`"),
        (changed(LINE, revision=-1), "m: a model's revision counts from 1"),
        (changed(LINE, revision=2**60), "m: a model's revision counts from 1"),
        (changed(LINE, revision="new"), "Expected `int`"),
        (changed(LINE, facts={"rmse": "good"}), "Expected `float"),
        (TREE.to_json().replace(b'"facts":{}', b'"facts":{"rmse":1e999}'), "m is not a model file"),
        (b'{"format":' + b"[" * 100_000, "m is not a model file"),
    ],
)
def test_a_corrupt_model_says_what_is_wrong(raw, words):
    with pytest.raises(ModelError) as caught:
        from_json(raw, "m")
    assert words in str(caught.value)


@given(st.data())
def test_a_damaged_model_is_refused_or_still_whole(data):
    raw = bytearray(data.draw(st.sampled_from([TREE.to_json(), LINE.to_json()])))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        model = from_json(bytes(raw))
    except ModelError:
        return
    assert from_json(model.to_json()).to_json() == model.to_json()
    model.predict(np.zeros((len(model.columns), 3)))


def test_a_model_carries_its_revision_and_the_facts_about_it():
    told = LinearModel(("a",), "b", (1.0,), 0.0, revision=7, facts={"rows": 100, "rmse": 0.5})
    again = from_json(told.to_json())
    assert (again.revision, again.facts) == (7, {"rows": 100.0, "rmse": 0.5})
    older_form = {key: value for key, value in json.loads(told.to_json()).items() if key not in ("revision", "facts")}
    unnumbered = from_json(json.dumps(older_form).encode())
    assert (unnumbered.revision, unnumbered.facts) == (0, {})


def test_a_regression_with_a_coefficient_that_is_no_number_is_refused():
    with pytest.raises(ModelError, match="finite"):
        LinearModel(("a",), "b", (math.nan,), 0.0)


def test_an_unknown_weka_model_is_refused():
    with pytest.raises(ModelError, match=r"x: expected weka\.J48 or weka\.LinearRegression, got 'weka\.ZeroR'"):
        from_weka({"kind": "weka.ZeroR", "attributes": ["a", "b"]}, "x")
