"""Trained models as plain data: a decision tree, a linear regression, and their portable JSON form."""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from headwater.errors import ModelError

VERSION = 1  #: of the JSON form


class Leaf(msgspec.Struct, frozen=True, tag="leaf", forbid_unknown_fields=True):
    """Where a tree ends: the number of a class."""

    klass: int


class Fork(msgspec.Struct, frozen=True, tag="fork", forbid_unknown_fields=True):
    """A question of a tree: is the column's value at most `threshold`? Then to node `low`, else to `high`."""

    column: int
    threshold: float
    low: int
    high: int


class TreeModel:
    """A decision tree over `columns`, telling one of `classes`; a node comes before its children."""

    def __init__(self, columns: tuple[str, ...], classes: tuple[str, ...], nodes: tuple[Fork | Leaf, ...]) -> None:
        self.columns, self.classes, self.nodes = columns, classes, nodes
        if not nodes:
            raise ModelError("a tree needs at least one node; got none")
        for number, node in enumerate(nodes):
            self._check(number, node)
        forks = [node if isinstance(node, Fork) else Fork(-1, 0.0, node.klass, -1) for node in nodes]
        self._attribute = np.array([fork.column for fork in forks])
        self._threshold = np.array([fork.threshold for fork in forks])
        self._low = np.array([fork.low for fork in forks])
        self._high = np.array([fork.high for fork in forks])

    def _check(self, number: int, node: Fork | Leaf) -> None:
        if isinstance(node, Leaf):
            if not 0 <= node.klass < len(self.classes):
                raise ModelError(f"tree node {number} tells class {node.klass}; there are {len(self.classes)} classes")
            return
        if not 0 <= node.column < len(self.columns) or not math.isfinite(node.threshold):
            raise ModelError(
                f"tree node {number} compares column {node.column} with {node.threshold}; "
                f"expected a finite number and one of the {len(self.columns)} columns"
            )
        if not (number < node.low < len(self.nodes) and number < node.high < len(self.nodes)):
            raise ModelError(
                f"tree node {number} leads to {node.low} and {node.high}; "
                f"expected later ones of its {len(self.nodes)} nodes"
            )

    def predict(self, features: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the class number of each record; `features[a, i]` is column a of record i."""
        from headwater.kernels.tree import classify

        out = np.empty(features.shape[1], np.int64)
        classify(features, self._attribute, self._threshold, self._low, self._high, out)
        return out

    def to_json(self) -> bytes:
        """Return the portable form."""
        return _encode("tree", self.columns, {"classes": self.classes, "nodes": self.nodes})


class LinearModel:
    """`target` = intercept + the sum of each column times its coefficient."""

    def __init__(
        self, columns: tuple[str, ...], target: str, coefficients: tuple[float, ...], intercept: float
    ) -> None:
        if len(columns) != len(coefficients):
            raise ModelError(f"a regression over {list(columns)} has {len(coefficients)} coefficients")
        if not all(map(math.isfinite, (*coefficients, intercept))):
            raise ModelError(f"a regression needs finite coefficients; got {coefficients}, {intercept}")
        self.columns, self.target = columns, target
        self.coefficients, self.intercept = coefficients, intercept
        self._weights = np.array(coefficients, np.float64)

    def predict(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the prediction for each record; `features[a, i]` is column a of record i."""
        out: NDArray[np.float64] = self._weights @ features + self.intercept
        return out

    def to_json(self) -> bytes:
        """Return the portable form."""
        parts = {"target": self.target, "coefficients": self.coefficients, "intercept": self.intercept}
        return _encode("regression", self.columns, parts)


Model = TreeModel | LinearModel


def _encode(kind: str, columns: tuple[str, ...], parts: dict[str, Any]) -> bytes:
    head = {"format": "headwater-model", "version": VERSION, "kind": kind, "columns": columns}
    return msgspec.json.encode({**head, **parts})


class _TreeForm(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    version: int
    kind: str
    columns: tuple[str, ...]
    classes: tuple[str, ...]
    nodes: tuple[Fork | Leaf, ...]


class _RegressionForm(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    version: int
    kind: str
    columns: tuple[str, ...]
    target: str
    coefficients: tuple[float, ...]
    intercept: float


class _Head(msgspec.Struct):
    format: str
    version: int
    kind: str


def from_json(raw: bytes, name: str = "model") -> Model:
    """Read a model's portable form; `name` says in an error which one it was."""
    try:
        head = msgspec.json.decode(raw, type=_Head)
        if head.format != "headwater-model" or head.version != VERSION:
            found = f"{head.format} {head.version}"
            raise ModelError(f"{name}: expected headwater-model {VERSION}, got {found}")
        if head.kind == "tree":
            tree = msgspec.json.decode(raw, type=_TreeForm)
            return TreeModel(tree.columns, tree.classes, tree.nodes)
        if head.kind == "regression":
            form = msgspec.json.decode(raw, type=_RegressionForm)
            return LinearModel(form.columns, form.target, form.coefficients, form.intercept)
    except msgspec.DecodeError as error:
        raise ModelError(f"{name} is not a model file, or is cut short: {error}") from error
    except ModelError as error:
        raise error if str(error).startswith(name) else ModelError(f"{name}: {error}") from error
    raise ModelError(f"{name}: expected a model of kind 'tree' or 'regression', got {head.kind!r}")


def load(path: Path) -> Model:
    """Read a model file."""
    try:
        return from_json(path.read_bytes(), path.name)
    except OSError as error:
        raise ModelError(f"cannot read model file {path}: {error.strerror}") from error


def save(model: Model, path: Path) -> None:
    """Write a model file; whoever reads at the same time sees the old one or the new one, whole."""
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".draft-", delete=False) as draft:
            draft.write(model.to_json())
        os.replace(draft.name, path)
    except OSError as error:
        raise ModelError(f"cannot write model file {path}: {error.strerror}") from error


def from_weka(entry: dict[str, Any], name: str) -> Model:
    """Make a model of one entry of the benchmark's `weka_models.json`."""
    columns = tuple(entry["attributes"][:-1])
    if entry["kind"] == "weka.LinearRegression":
        weights = tuple(float(entry["coefficients"].get(column, 0.0)) for column in columns)
        return LinearModel(columns, entry["target"], weights, float(entry["intercept"]))
    if entry["kind"] != "weka.J48":
        raise ModelError(f"{name}: expected weka.J48 or weka.LinearRegression, got {entry['kind']!r}")
    nodes: list[Fork | Leaf] = []
    _add_weka_node(entry["tree"], nodes)
    return TreeModel(columns, tuple(entry["classes"]), tuple(nodes))


def _add_weka_node(node: dict[str, Any], nodes: list[Fork | Leaf]) -> int:
    number = len(nodes)
    if "class_index" in node:
        nodes.append(Leaf(int(node["class_index"])))
        return number
    nodes.append(Leaf(0))  # keeps the parent's place ahead of its children
    low = _add_weka_node(node["le"], nodes)
    high = _add_weka_node(node["gt"], nodes)
    nodes[number] = Fork(int(node["attr_index"]), float(node["threshold"]), low, high)
    return number
