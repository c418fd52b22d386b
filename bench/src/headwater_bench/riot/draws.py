"""Drawing records: distributions by their quantiles, correlations by a copula, a seed for each block."""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater.errors import FlowError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BLOCK = 4096  # records drawn from one seed

# The levels of the quantile tables below, as places on the normal distribution's axis.
_LEVELS = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.3,
    0.4,
    0.5,
    0.6,
    0.7,
    0.8,
    0.9,
    0.95,
    0.98,
    0.99,
    0.995,
)
_AXIS = np.array([*(NormalDist().inv_cdf(level) for level in _LEVELS), 4.0])


class Marginal:
    """A distribution given by its quantiles, drawn by bending normal numbers; so many decimal places."""

    def __init__(self, *quantiles: float, places: int) -> None:
        self.quantiles = np.array(quantiles)
        self.places = places

    def bend(self, normal: Floats) -> Floats:
        """Turn standard normal numbers into numbers of this distribution."""
        scale = 10.0**self.places
        out: Floats = np.rint(np.interp(normal, _AXIS, self.quantiles) * scale) / scale
        return out


class Blocks:
    """Draws blocks of records, each from a seed of its own, and joins what was asked for."""

    def __init__(self, seed: int, draw: Callable[[np.random.Generator, Ints], dict[str, Any]]) -> None:
        self._seed, self._draw = seed, draw

    def take(self, start: int, count: int) -> dict[str, Any]:
        """Return the drawn arrays for records `start` to `start + count - 1`."""
        if start < 0 or count < 0:
            raise FlowError(f"records are numbered from 0; got start {start}, count {count}")
        first, last = start // _BLOCK, (start + max(count, 1) - 1) // _BLOCK
        drawn = [
            self._draw(np.random.default_rng([self._seed, block]), np.arange(_BLOCK) + block * _BLOCK)
            for block in range(first, last + 1)
        ]
        skip = start - first * _BLOCK
        return {name: np.concatenate([block[name] for block in drawn])[skip : skip + count] for name in drawn[0]}


def correlated(pairs: dict[tuple[int, int], float], size: int) -> Floats:
    """Return the matrix that gives independent normal numbers these correlations."""
    matrix = np.eye(size)
    for (i, j), r in pairs.items():
        matrix[i, j] = matrix[j, i] = r
    root: Floats = np.linalg.cholesky(matrix).astype(np.float64)
    return root


def typical(rng: np.random.Generator, count: int, root: Floats) -> Floats:
    """Draw what is typical of each of a few sites: as normal, and as correlated, as so few can be."""
    size = len(root)
    drawn = rng.standard_normal((count, size))
    if count > 2 * size:
        drawn = np.linalg.qr(drawn - drawn.mean(axis=0))[0]
    ranks = np.argsort(np.argsort(drawn @ root.T, axis=0), axis=0)
    scores = np.array([NormalDist().inv_cdf((i + 0.5) / count) for i in range(count)])
    return scores[ranks]


def names(rng: np.random.Generator, count: int, length: int, letters: bytes) -> list[bytes]:
    """Make up names of so many letters."""
    drawn = np.frombuffer(letters, np.uint8)[rng.integers(0, len(letters), (count, length))]
    return [row.tobytes() for row in drawn]
