"""Decision trees grown and pruned as C4.5 does it, with the defaults of the benchmark's trainer, J48."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from headwater.errors import ModelError
from headwater.models.model import Fork, Leaf, TreeModel
from headwater_bench.riot.kernels.split import best_split

_LEAST_RECORDS = 2  # in each leaf
_CONFIDENCE = 0.25  # of the estimated error; the smaller, the more is pruned
_Z = NormalDist().inv_cdf(1 - _CONFIDENCE)
_AS_GOOD = 0.1  # errors by which a smaller tree may be worse and still be taken

Rows = NDArray[np.int64]


@dataclass(slots=True)
class _Node:
    rows: Rows
    counts: NDArray[np.int64]  # training records of each class that come by
    column: int = -1
    threshold: float = 0.0
    low: _Node | None = None
    high: _Node | None = None

    @property
    def wrong(self) -> int:
        """Training errors, were this node a leaf."""
        return int(self.counts.sum() - self.counts.max())

    def make_leaf(self) -> None:
        self.column, self.low, self.high = -1, None, None


def train_tree(
    features: NDArray[np.float64], labels: NDArray[np.int64], columns: list[str], classes: list[str]
) -> TreeModel:
    """Grow a tree that tells class number `labels[i]` from `features[:, i]`, then prune it.

    >>> air = np.array([[10.0, 11, 12, 30, 31, 32]])
    >>> tree = train_tree(air, np.array([0, 0, 0, 1, 1, 1]), ["air"], ["BAD", "GOOD"])
    >>> tree.nodes[0]
    Fork(column=0, threshold=12.0, low=1, high=2)
    """
    if features.shape != (len(columns), len(labels)) or len(labels) < 1:
        raise ModelError(f"training over {columns} needs rows of them; got {features.shape}, {len(labels)}")
    grower = _Grower(np.ascontiguousarray(features, np.float64), labels, len(classes))
    root = grower.grow(np.arange(len(labels)))
    _collapse(root)
    grower.prune(root)
    nodes: list[Fork | Leaf] = []
    _flatten(root, nodes)
    return TreeModel(tuple(columns), tuple(classes), tuple(nodes))


class _Grower:
    def __init__(self, features: NDArray[np.float64], labels: NDArray[np.int64], class_count: int) -> None:
        self.features, self.labels, self.class_count = features, labels, class_count

    def node(self, rows: Rows) -> _Node:
        return _Node(rows, np.bincount(self.labels[rows], minlength=self.class_count))

    def grow(self, rows: Rows) -> _Node:
        node = self.node(rows)
        if len(rows) < 2 * _LEAST_RECORDS or node.wrong == 0:
            return node
        cut = self._best_cut(rows)
        if cut is not None:
            node.column, node.threshold = cut
            goes_low = self.features[node.column, rows] <= node.threshold
            node.low, node.high = self.grow(rows[goes_low]), self.grow(rows[~goes_low])
        return node

    def _best_cut(self, rows: Rows) -> tuple[int, float] | None:
        # The best gain ratio among the attributes whose gain is not below the average: the ratio alone would
        # favour cuts that split off next to nothing.
        least = min(max(_LEAST_RECORDS, 0.1 * len(rows) / self.class_count), 25.0)
        cuts: list[tuple[int, float, float, float]] = []
        for column in range(len(self.features)):
            values = self.features[column, rows]
            order = np.argsort(values, kind="stable")
            values = values[order]
            count, gain, ratio = best_split(values, self.labels[rows][order], self.class_count, least)
            if gain > 0:
                cuts.append((column, (values[count - 1] + values[count]) / 2, gain, ratio))
        if not cuts:
            return None
        average = sum(gain for _, _, gain, _ in cuts) / len(cuts)
        worthy = [cut for cut in cuts if cut[2] >= average - 1e-3]
        column, middle, _, _ = max(worthy, key=lambda cut: cut[3])
        every = self.features[column]
        return column, float(every[every <= middle].max())  # a value that occurs, not one between two

    def prune(self, node: _Node) -> None:
        """Replace a node by a leaf, or by its larger branch, where the estimated error says so."""
        if node.low is None or node.high is None:
            return
        self.prune(node.low)
        self.prune(node.high)
        larger = node.low if len(node.low.rows) >= len(node.high.rows) else node.high
        as_tree = _estimate(node)
        as_leaf = _estimate_leaf(node.counts)
        as_branch = self._estimate_with(larger, node.rows)
        if as_leaf <= as_tree + _AS_GOOD and as_leaf <= as_branch + _AS_GOOD:
            node.make_leaf()
        elif as_branch <= as_tree + _AS_GOOD:
            node.column, node.threshold = larger.column, larger.threshold
            node.low, node.high = larger.low, larger.high
            self._spread(node, node.rows)
            self.prune(node)

    def _estimate_with(self, node: _Node, rows: Rows) -> float:
        if node.low is None or node.high is None:
            return _estimate_leaf(np.bincount(self.labels[rows], minlength=self.class_count))
        goes_low = self.features[node.column, rows] <= node.threshold
        return self._estimate_with(node.low, rows[goes_low]) + self._estimate_with(node.high, rows[~goes_low])

    def _spread(self, node: _Node, rows: Rows) -> None:
        node.rows = rows
        node.counts = np.bincount(self.labels[rows], minlength=self.class_count)
        if node.low is not None and node.high is not None:
            goes_low = self.features[node.column, rows] <= node.threshold
            self._spread(node.low, rows[goes_low])
            self._spread(node.high, rows[~goes_low])


def _collapse(node: _Node) -> int:
    """Undo forks that save no training error; return the errors that remain."""
    if node.low is None or node.high is None:
        return node.wrong
    if _errors(node) >= node.wrong:
        node.make_leaf()
        return node.wrong
    return _collapse(node.low) + _collapse(node.high)


def _errors(node: _Node) -> int:
    if node.low is None or node.high is None:
        return node.wrong
    return _errors(node.low) + _errors(node.high)


def _estimate(node: _Node) -> float:
    if node.low is None or node.high is None:
        return _estimate_leaf(node.counts)
    return _estimate(node.low) + _estimate(node.high)


def _estimate_leaf(counts: NDArray[np.int64]) -> float:
    # Training errors, and how many more a binomial law must be feared to bring on new records.
    total = float(counts.sum())
    if total == 0:
        return 0.0
    wrong = total - float(counts.max())
    return wrong + _more_errors(total, wrong)


def _more_errors(total: float, wrong: float) -> float:
    if wrong < 1:
        none: float = total * (1 - _CONFIDENCE ** (1 / total))
        return none if wrong == 0 else none + wrong * (_more_errors(total, 1.0) - none)
    if wrong + 0.5 >= total:
        return max(total - wrong, 0.0)
    share = (wrong + 0.5) / total
    deviation = (share / total - share**2 / total + _Z**2 / (4 * total**2)) ** 0.5
    upper: float = (share + _Z**2 / (2 * total) + _Z * deviation) / (1 + _Z**2 / total)
    return upper * total - wrong


def _flatten(node: _Node, nodes: list[Fork | Leaf]) -> int:
    number = len(nodes)
    nodes.append(Leaf(int(np.argmax(node.counts))))
    if node.low is not None and node.high is not None:
        low, high = _flatten(node.low, nodes), _flatten(node.high, nodes)
        nodes[number] = Fork(node.column, node.threshold, low, high)
    return number
