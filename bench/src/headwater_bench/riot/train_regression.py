"""Least squares with the attribute selection of the benchmark's trainer, Weka's LinearRegression."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwater.errors import ModelError
from headwater.models.model import LinearModel

_RIDGE = 1e-8
_COLLINEAR = 1.5  # a standardised coefficient above this betrays attributes that cancel each other


def train_regression(features: NDArray[np.float64], target: NDArray[np.float64], columns: list[str]) -> LinearModel:
    """Fit the last of `columns` by the others; `features[a, i]` is column a of record i.

    Attributes that do not vary have no coefficient, nor do collinear ones, nor those without which the Akaike
    criterion is better (the weakest goes first, as in M5 trees).
    """
    count = len(target)
    if features.shape != (len(columns) - 1, count) or count < 1:
        raise ModelError(f"training over {columns} needs as many rows of features; got {features.shape}, {count}")
    spread, target_spread = features.std(axis=1), float(target.std())
    chosen = [a for a in range(len(spread)) if spread[a] > 0]
    weights, error = _fit(features, target, chosen)
    while chosen and target_spread > 0:
        strength = [abs(weights[a]) * spread[a] / target_spread for a in chosen]
        if max(strength) <= _COLLINEAR:
            break
        chosen.remove(chosen[int(np.argmax(strength))])
        weights, error = _fit(features, target, chosen)
    chosen, weights = _drop_useless(features, target, chosen, weights, error, spread)
    intercept = float(target.mean() - weights @ features.mean(axis=1))
    return LinearModel(tuple(columns[:-1]), columns[-1], tuple(map(float, weights)), intercept)


def _drop_useless(
    features: NDArray[np.float64],
    target: NDArray[np.float64],
    chosen: list[int],
    weights: NDArray[np.float64],
    error: float,
    spread: NDArray[np.float64],
) -> tuple[list[int], NDArray[np.float64]]:
    full_error, free = error, len(target) - len(chosen) - 1
    best = len(target) + len(chosen) + 1.0
    while chosen:
        weakest = min(chosen, key=lambda a: abs(weights[a]) * spread[a])
        fewer = [a for a in chosen if a != weakest]
        tried, error = _fit(features, target, fewer)
        ratio = error / full_error if full_error > 0 else 1.0
        akaike = ratio * free + 2 * (len(fewer) + 1)
        if akaike >= best:
            break
        best, chosen, weights = akaike, fewer, tried
    return chosen, weights


def _fit(
    features: NDArray[np.float64], target: NDArray[np.float64], chosen: list[int]
) -> tuple[NDArray[np.float64], float]:
    # Centred, and scaled to a spread of 1, so that the ridge weighs on all alike and the sums stay exact.
    weights = np.zeros(len(features))
    centred = target - target.mean()
    if chosen:
        part = features[chosen]
        spread = part.std(axis=1)
        scaled = (part - part.mean(axis=1, keepdims=True)) / spread[:, None]
        square = scaled @ scaled.T
        square[np.diag_indices_from(square)] += _RIDGE
        weights[chosen] = np.linalg.solve(square, scaled @ centred) / spread
    left = centred - weights @ (features - features.mean(axis=1, keepdims=True))
    return weights, float(left @ left)
