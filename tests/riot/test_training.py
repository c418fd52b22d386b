from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import ModelError
from headwater.models.model import Leaf
from headwater_bench.riot import samples
from headwater_bench.riot.kernels.split import best_split
from headwater_bench.riot.labels import CLASSES, percentile, quartile_classes
from headwater_bench.riot.train_regression import train_regression
from headwater_bench.riot.train_tree import train_tree
from properties import examples


def entropy(labels: list[int]) -> float:
    return -sum(labels.count(k) / len(labels) * math.log2(labels.count(k) / len(labels)) for k in set(labels))


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 2)), min_size=4, max_size=30))
def test_the_best_cut_gains_the_most_information(rows):
    rows.sort(key=lambda row: row[0])
    values, labels = [float(v) for v, _ in rows], [k for _, k in rows]
    cuts = [i for i in range(2, len(rows) - 1) if values[i - 1] < values[i]]
    gains = {
        i: entropy(labels) - (i * entropy(labels[:i]) + (len(rows) - i) * entropy(labels[i:])) / len(rows) for i in cuts
    }
    count, gain, ratio = best_split(np.array(values), np.array(labels), 3, 2.0)
    expected = max(gains.values(), default=0) - math.log2(max(len(cuts), 1)) / len(rows)
    if count:
        assert gain == pytest.approx(expected, abs=2e-6)
        assert gains[count] == pytest.approx(max(gains.values()), abs=2e-6)
        assert ratio == pytest.approx(gain / entropy([0] * count + [1] * (len(rows) - count)))
    else:
        assert expected < 1e-5


@examples(50)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=60), st.integers(0, 9))
def test_a_tree_tells_the_quartile_classes_of_its_own_training_rows(air, seed):
    values = np.array(air, np.float64)
    labels = quartile_classes(values)
    noise = np.random.default_rng(seed).random((2, len(air)))
    tree = train_tree(np.stack([noise[0], values, noise[1]]), labels, ["a", "air", "b"], list(CLASSES))
    told = tree.predict(np.stack([noise[0], values, noise[1]]))
    commonest = np.bincount(labels).max()
    assert (told == labels).sum() >= commonest


def test_a_clean_border_is_found_at_a_value_that_occurs():
    tree = train_tree(np.array([[1.0, 2, 3, 10, 11, 12]]), np.array([0, 0, 0, 1, 1, 1]), ["x"], ["a", "b"])
    assert [type(node).__name__ for node in tree.nodes] == ["Fork", "Leaf", "Leaf"]
    assert tree.nodes[0].threshold == 3.0


def test_noise_is_pruned_to_one_leaf():
    rng = np.random.default_rng(5)
    tree = train_tree(rng.random((3, 400)), (rng.random(400) < 0.1).astype(np.int64), list("abc"), ["no", "yes"])
    assert tree.nodes == (Leaf(0),)


def test_a_weak_signal_in_noise_survives_pruning():
    rng = np.random.default_rng(6)
    x = rng.random((3, 600))
    labels = ((x[1] > 0.5) ^ (rng.random(600) < 0.1)).astype(np.int64)
    tree = train_tree(x, labels, list("abc"), ["no", "yes"])
    assert tree.nodes[0].column == 1
    assert tree.nodes[0].threshold == pytest.approx(0.5, abs=0.02)
    assert len(tree.nodes) < 40
    assert (tree.predict(x) == labels).mean() >= 0.89


def test_one_row_makes_one_leaf_and_no_rows_make_an_error():
    assert train_tree(np.ones((1, 1)), np.array([1]), ["a"], ["x", "y"]).nodes == (Leaf(1),)
    with pytest.raises(ModelError, match=r"got \(1, 0\), 0"):
        train_tree(np.ones((1, 0)), np.zeros(0, np.int64), ["a"], ["x"])


@given(st.integers(0, 2**32), st.integers(12, 60))
def test_a_strong_regression_is_ordinary_least_squares(seed, count):
    rng = np.random.default_rng(seed)
    x = rng.normal(5, 2, (3, count))
    target = 3 + np.array([2.0, -1.5, 4.0]) @ x + rng.normal(0, 0.1, count)
    model = train_regression(x, target, ["a", "b", "c", "y"])
    exact = np.linalg.lstsq(np.vstack([x, np.ones(count)]).T, target, rcond=None)[0]
    np.testing.assert_allclose([*model.coefficients, model.intercept], exact, rtol=1e-6)


def test_useless_constant_and_collinear_attributes_get_no_coefficient():
    rng = np.random.default_rng(2)
    a, useless, noise = (column - column.mean() for column in rng.normal(0, 1, (3, 500)))
    target = 2 * a + noise
    for used in (a, noise - noise @ a / (a @ a) * a):  # leave nothing that could help by chance
        useless = useless - useless @ used / (used @ used) * used
    model = train_regression(np.stack([a, np.full(500, 7.0), useless]), target, ["a", "k", "u", "y"])
    assert model.coefficients[1:] == (0.0, 0.0)
    twins = train_regression(np.stack([a, a + rng.normal(0, 1e-4, 500)]), target, ["a", "b", "y"])
    assert twins.coefficients.count(0.0) == 1


def test_a_regression_of_a_constant_is_that_constant():
    model = train_regression(np.arange(5.0)[None], np.full(5, 26.0), ["a", "y"])
    assert (model.coefficients, model.intercept) == ((0.0,), 26.0)


@given(st.lists(st.integers(0, 30).map(float), min_size=1, max_size=40))
def test_percentiles_follow_the_rule_of_n_plus_1(values):
    ordered = sorted(values)
    for percent in (25, 50, 75, 100):
        place = percent * (len(values) + 1) / 100
        low = ordered[min(max(math.floor(place), 1), len(values)) - 1]
        high = ordered[min(max(math.floor(place) + 1, 1), len(values)) - 1]
        expected = low + (place - math.floor(place)) * (high - low)
        assert percentile(np.array(values), percent) == pytest.approx(expected)


@given(st.lists(st.integers(0, 12).map(float), min_size=1, max_size=40))
def test_a_value_has_the_class_of_the_highest_percentile_it_reaches(values):
    marks = [percentile(np.array(values), percent) for percent in (25, 50, 75, 100)]
    for value, found in zip(values, quartile_classes(np.array(values)), strict=True):
        reached = [k for k, mark in enumerate(marks) if mark <= value]
        assert found == (reached[-1] if reached else 0)


@pytest.mark.skipif(samples.folder() is None, reason="the benchmark's files are not here")
def test_the_coefficients_are_those_that_weka_found_on_the_same_rows():
    lines = (samples.folder() / "raw" / "linearregression.arff").read_text().split("@DATA")[1].split()
    rows = np.array([[float(x) for x in line.split(",")] for line in lines])
    theirs = samples.weka_model("LR-SYS-DecisionTreeNumeric.model")
    mine = train_regression(rows[:, :-1].T.copy(), rows[:, -1], [*theirs.columns, theirs.target])
    np.testing.assert_allclose(mine.coefficients, theirs.coefficients, rtol=1e-6)
    assert mine.intercept == pytest.approx(theirs.intercept, rel=1e-6)


@pytest.mark.skipif(samples.folder() is None, reason="the benchmark's files are not here")
def test_a_tree_over_the_benchmark_rows_errs_only_where_a_leaf_would_be_too_small():
    lines = (samples.folder() / "derived" / "train_input_data_1000.csv").read_text().split()
    rows = np.array([[float(x) for x in line.split(",")[4:9]] for line in lines]).T.copy()
    labels = quartile_classes(rows[4])
    tree = train_tree(rows, labels, ["t", "h", "l", "d", "a"], list(CLASSES))
    wrong = int((tree.predict(rows) != labels).sum())
    assert wrong <= (1 if (labels == 3).sum() < 2 else 0)
