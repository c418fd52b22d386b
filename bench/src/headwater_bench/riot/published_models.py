"""The models that PRED starts with: those the benchmark's authors published."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from headwater.errors import ModelError
from headwater.models.model import Fork, Leaf, LinearModel, TreeModel
from headwater_bench.riot.datasets import Dataset
from headwater_bench.riot.generate import stream
from headwater_bench.riot.labels import CLASSES
from headwater_bench.riot.train_regression import train_regression

T = TypeVar("T")

#: The last feature at most the first number is BAD, at most the second GOOD, above VERYGOOD.
_BORDERS = {"CITY": (22.0, 29.0), "TAXI": (10.0, 18.5), "FIT": (-0.054422, 0.016745)}

_COEFFICIENTS = {
    "CITY": ((-0.5106896760749683, 0.1550345386077423, 0.0, -0.0043941074441107295), 37.442739000196276),
    "TAXI": ((0.002167781090458324, 2.347246557323501), 3.574164844831282),
}


def tree(dataset: Dataset) -> TreeModel:
    """Return the decision tree of a data set."""
    last, (low, high) = len(dataset.features) - 1, _entry(dataset, _BORDERS)
    nodes = (Fork(last, low, 1, 2), Leaf(0), Fork(last, high, 3, 4), Leaf(1), Leaf(2))
    return TreeModel(dataset.features, CLASSES, nodes)


def regression(dataset: Dataset) -> LinearModel:
    """Return the regression of a data set; FIT's was not published, so it is fitted to generated records."""
    columns, target = dataset.features[:-1], dataset.features[-1]
    if dataset.name == "FIT":
        drawn = stream("FIT").columns(0, 2000)
        rows = np.array([drawn[name] for name in dataset.features])
        return train_regression(rows[:-1].copy(), rows[-1], list(dataset.features))
    weights, intercept = _entry(dataset, _COEFFICIENTS)
    return LinearModel(columns, target, weights, intercept)


def _entry(dataset: Dataset, table: dict[str, T]) -> T:
    if dataset.name not in table:
        raise ModelError(f"no model of {dataset.name} was published; those of {sorted(table)} were")
    return table[dataset.name]
