"""Portable models and MLlib: a trained tree taken out of the JVM, and a model as a Column to evaluate it with."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from headwater.models.model import Fork, Leaf, LinearModel, Model, TreeModel

if TYPE_CHECKING:
    from pyspark.ml.classification import DecisionTreeClassificationModel
    from pyspark.sql import Column


def nodes_of(model: DecisionTreeClassificationModel) -> tuple[Fork | Leaf, ...]:
    """Return the nodes of a tree that MLlib trained on numbers, each before its children."""
    nodes: list[Fork | Leaf] = []
    _add_node(model._call_java("rootNode"), nodes)
    return tuple(nodes)


def _add_node(node: Any, nodes: list[Fork | Leaf]) -> int:
    number = len(nodes)
    nodes.append(Leaf(int(node.prediction())))
    if node.subtreeDepth() > 0:
        split = node.split()
        low, high = _add_node(node.leftChild(), nodes), _add_node(node.rightChild(), nodes)
        nodes[number] = Fork(split.featureIndex(), split.threshold(), low, high)
    return number


def prediction(model: Model) -> Column:
    """Return what a portable model says of each row: a number, or the number of a class."""
    if isinstance(model, LinearModel):
        weighted = zip(model.columns, model.coefficients, strict=True)
        return reduce(add, (F.col(name) * weight for name, weight in weighted), F.lit(model.intercept))
    return _branch(model, 0)


def _branch(tree: TreeModel, number: int) -> Column:
    node = tree.nodes[number]
    if isinstance(node, Leaf):
        return F.lit(float(node.klass))
    goes_low = F.col(tree.columns[node.column]) <= node.threshold
    return F.when(goes_low, _branch(tree, node.low)).otherwise(_branch(tree, node.high))
