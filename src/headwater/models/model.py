"""Trained models as plain data: a decision tree, a linear regression, and their portable JSON form.

A model has a revision, so that whoever is given an older one than it has can tell; 0 stands for a model that
nobody numbered. Its facts say how it came about: rows it learned from, errors it was measured to make.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from headwater.errors import ModelError

VERSION = 1  #: of the JSON form

_LAST_REVISION = 2**53  # the largest whole number that every JSON reader takes


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

    kind = "tree"

    def __init__(
        self,
        columns: tuple[str, ...],
        classes: tuple[str, ...],
        nodes: tuple[Fork | Leaf, ...],
        *,
        revision: int = 0,
        facts: Mapping[str, float] | None = None,
    ) -> None:
        self.columns, self.classes, self.nodes = columns, classes, nodes
        self.revision, self.facts = _checked(revision, facts or {})
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
        from headwater.models.tree import classify

        out = np.empty(features.shape[1], np.int64)
        classify(features, self._attribute, self._threshold, self._low, self._high, out)
        return out

    def to_json(self) -> bytes:
        """Return the portable form."""
        return _encode(self, {"classes": self.classes, "nodes": self.nodes})


class LinearModel:
    """`target` = intercept + the sum of each column times its coefficient."""

    kind = "regression"

    def __init__(
        self,
        columns: tuple[str, ...],
        target: str,
        coefficients: tuple[float, ...],
        intercept: float,
        *,
        revision: int = 0,
        facts: Mapping[str, float] | None = None,
    ) -> None:
        if len(columns) != len(coefficients):
            raise ModelError(f"a regression over {list(columns)} has {len(coefficients)} coefficients")
        if not all(map(math.isfinite, (*coefficients, intercept))):
            raise ModelError(f"a regression needs finite coefficients; got {coefficients}, {intercept}")
        self.columns, self.target = columns, target
        self.revision, self.facts = _checked(revision, facts or {})
        self.coefficients, self.intercept = coefficients, intercept
        self._weights = np.array(coefficients, np.float64)

    def predict(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the prediction for each record; `features[a, i]` is column a of record i."""
        out: NDArray[np.float64] = self._weights @ features + self.intercept
        return out

    def to_json(self) -> bytes:
        """Return the portable form."""
        parts = {"target": self.target, "coefficients": self.coefficients, "intercept": self.intercept}
        return _encode(self, parts)


#: What a step predicts with: a decision tree, or a linear regression.
Model = TreeModel | LinearModel


def _checked(revision: int, facts: Mapping[str, float]) -> tuple[int, dict[str, float]]:
    if not 0 <= revision <= _LAST_REVISION:
        raise ModelError(f"a model's revision counts from 1, or is 0 for one without a number; got {revision}")
    for name, value in facts.items():
        if not math.isfinite(value):
            raise ModelError(f"the facts about a model are finite numbers; {name!r} is {value}")
    return revision, {name: float(value) for name, value in facts.items()}


def _encode(model: Model, parts: dict[str, Any]) -> bytes:
    head = {"format": "headwater-model", "version": VERSION, "kind": model.kind, "columns": model.columns}
    return msgspec.json.encode({**head, "revision": model.revision, "facts": model.facts, **parts})


class _TreeForm(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    version: int
    kind: str
    columns: tuple[str, ...]
    classes: tuple[str, ...]
    nodes: tuple[Fork | Leaf, ...]
    revision: int = 0
    facts: dict[str, float] = {}  # msgspec makes a new one for each


class _RegressionForm(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    version: int
    kind: str
    columns: tuple[str, ...]
    target: str
    coefficients: tuple[float, ...]
    intercept: float
    revision: int = 0
    facts: dict[str, float] = {}  # msgspec makes a new one for each


class _Head(msgspec.Struct):
    format: str
    version: int
    kind: str


def from_json(raw: bytes, name: str = "model") -> Model:
    """Read a model's portable form; `name` says in an error which one it was."""
    try:
        head = msgspec.json.decode(raw, type=_Head)
        if head.format != "headwater-model" or head.version != VERSION:
            actual = f"{head.format} {head.version}"
            raise ModelError(f"{name}: expected headwater-model {VERSION}, got {actual}")
        if head.kind == "tree":
            tree = msgspec.json.decode(raw, type=_TreeForm)
            return TreeModel(tree.columns, tree.classes, tree.nodes, revision=tree.revision, facts=tree.facts)
        if head.kind == "regression":
            form = msgspec.json.decode(raw, type=_RegressionForm)
            parts = form.columns, form.target, form.coefficients, form.intercept
            return LinearModel(*parts, revision=form.revision, facts=form.facts)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"{name} is not a model file, or is cut short: {error}") from error
    except ModelError as error:
        raise error if str(error).startswith(name) else ModelError(f"{name}: {error}") from error
    raise ModelError(f"{name}: expected a model of kind 'tree' or 'regression', got {head.kind!r}")


def load(path: Path) -> Model:
    """Read a model file."""
    try:
        return from_json(path.read_bytes(), path.name)
    except (OSError, ValueError) as error:  # a ValueError is a name that no file can have
        reason = error.strerror if isinstance(error, OSError) else error
        raise ModelError(f"cannot read model file {path}: {reason}") from error


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
