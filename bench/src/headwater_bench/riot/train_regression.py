"""Least squares with the attribute selection of the benchmark's trainer, Weka's LinearRegression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headwater.errors import ModelError
from headwater.models.model import LinearModel

_RIDGE = 1e-8
_COLLINEAR = 1.5  # a standardised coefficient above this betrays attributes that cancel each other

Numbers = NDArray[np.float64]
#: fits the target by some attributes: returns a weight for each attribute, 0 for the others, and the sum of squared errors
Fit = Callable[[list[int]], tuple[Numbers, float]]


def train_regression(features: Numbers, target: Numbers, columns: list[str]) -> LinearModel:
    """Fit the last of `columns` by the others; `features[a, i]` is column a of record i.

    Attributes that do not vary have no coefficient, nor do collinear ones, nor those without which the Akaike
    criterion is better (the weakest goes first, as in M5 trees).
    """
    count = len(target)
    if features.shape != (len(columns) - 1, count) or count < 1:
        raise ModelError(f"training over {columns} needs as many rows of features; got {features.shape}, {count}")
    spread, mean = features.std(axis=1), features.mean(axis=1)
    weights = _selected(count, spread, float(target.std()), lambda attributes: _fit(features, target, attributes))
    return _model(columns, weights, mean, float(target.mean()))


@dataclass(frozen=True)
class Moments:
    """How many rows there are, their mean, and the sums of products of what they differ from it: all that a fit needs.

    Those of parts of the rows add up. Sums are kept in more digits than the rows have, where the machine has such numbers:
    what is left of the target behind a good fit is a small difference of large sums.
    """

    count: int
    mean: NDArray[np.longdouble]  #: by column, the target last
    products: NDArray[np.longdouble]

    @classmethod
    def of(cls, rows: Numbers) -> Moments:
        """Sum up rows, `rows[a, i]` of column a and record i."""
        wide = rows.astype(np.longdouble)
        mean = wide.mean(axis=1)
        centred = wide - mean[:, None]
        return cls(rows.shape[1], mean, centred @ centred.T)

    def __add__(self, other: Moments) -> Moments:
        count, apart = self.count + other.count, other.mean - self.mean
        mean = self.mean + apart * (other.count / np.longdouble(count))
        between = np.outer(apart, apart) * (self.count * np.longdouble(other.count) / count)
        return Moments(count, mean, self.products + other.products + between)

    def to_floats(self) -> list[float]:
        """Return all that it holds as plain numbers, each number with the digits that it has beyond a double's."""
        numbers = np.concatenate([self.mean, self.products.ravel()])
        near = numbers.astype(np.float64)
        return [float(self.count), *near.tolist(), *(numbers - near).astype(np.float64).tolist()]

    @classmethod
    def from_floats(cls, floats: Sequence[float], columns: int) -> Moments:
        """Read what `to_floats` returned."""
        near, rest = np.array(floats[1:], np.longdouble).reshape(2, -1)
        numbers = near + rest
        return cls(int(floats[0]), numbers[:columns], numbers[columns:].reshape(columns, columns))


def regression_of(moments: Moments, columns: list[str]) -> LinearModel:
    """Fit the last of `columns` by the others, as `train_regression` does, without the rows."""
    spread = np.sqrt(np.diag(moments.products).astype(np.float64) / moments.count)
    weights = _selected(moments.count, spread[:-1], float(spread[-1]), lambda attributes: _fit_of(moments, attributes))
    mean = moments.mean.astype(np.float64)
    return _model(columns, weights, mean[:-1], float(mean[-1]))


def _model(columns: list[str], weights: Numbers, mean: Numbers, target_mean: float) -> LinearModel:
    intercept = float(target_mean - weights @ mean)
    return LinearModel(tuple(columns[:-1]), columns[-1], tuple(map(float, weights)), intercept)


def _selected(count: int, spread: Numbers, target_spread: float, fit: Fit) -> Numbers:
    """Fit by the attributes that are worth it; return the weights of all."""
    attributes = [a for a in range(len(spread)) if spread[a] > 0]
    weights, error = fit(attributes)
    while attributes and target_spread > 0:
        strength = [abs(weights[a]) * spread[a] / target_spread for a in attributes]
        if max(strength) <= _COLLINEAR:
            break
        attributes.remove(attributes[int(np.argmax(strength))])
        weights, error = fit(attributes)
    return _without_useless(count, attributes, weights, error, spread, fit)


def _without_useless(
    count: int, attributes: list[int], weights: Numbers, error: float, spread: Numbers, fit: Fit
) -> Numbers:
    full_error, free = error, count - len(attributes) - 1
    best = count + len(attributes) + 1.0
    while attributes:
        weakest = min(attributes, key=lambda a: abs(weights[a]) * spread[a])
        fewer = [a for a in attributes if a != weakest]
        tried, error = fit(fewer)
        ratio = error / full_error if full_error > 0 else 1.0
        akaike = ratio * free + 2 * (len(fewer) + 1)
        if akaike >= best:
            break
        best, attributes, weights = akaike, fewer, tried
    return weights


def _fit(features: Numbers, target: Numbers, attributes: list[int]) -> tuple[Numbers, float]:
    # Centred, and scaled to a spread of 1, so that the ridge weighs on all alike and the sums stay exact.
    weights = np.zeros(len(features))
    centred = target - target.mean()
    if attributes:
        part = features[attributes]
        spread = part.std(axis=1)
        scaled = (part - part.mean(axis=1, keepdims=True)) / spread[:, None]
        weights[attributes] = _solved(scaled @ scaled.T, scaled @ centred) / spread
    residual = centred - weights @ (features - features.mean(axis=1, keepdims=True))
    return weights, float(residual @ residual)


def _fit_of(moments: Moments, attributes: list[int]) -> tuple[Numbers, float]:
    products = moments.products
    weights = np.zeros(len(products) - 1)
    if attributes:
        spread = np.sqrt(np.diag(products)[attributes] / moments.count)
        square = products[np.ix_(attributes, attributes)] / np.outer(spread, spread)
        across = products[attributes, -1] / spread
        weights[attributes] = _solved(square.astype(np.float64), across.astype(np.float64)) / spread.astype(np.float64)
    wide = np.append(-weights, 1.0).astype(np.longdouble)
    return weights, max(0.0, float(wide @ products @ wide))


def _solved(square: Numbers, across: Numbers) -> Numbers:
    square[np.diag_indices_from(square)] += _RIDGE
    return np.linalg.solve(square, across).astype(np.float64, copy=False)
