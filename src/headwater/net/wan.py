"""Latency between zones, held in the smallest form that is known: a matrix, gateways or coordinates.

A zone is a site or a cloud. Every form answers two questions, `between` and `row`, so that nothing needs a
table over all pairs of devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from headwater.errors import NetError
from headwater.net.arrays import Floats, Ints


class Wan(Protocol):
    """Latency between zones in seconds; 0 inside a zone, infinite where there is no way."""

    def __len__(self) -> int:
        """Return the number of zones."""

    def row(self, zone: int) -> Floats:
        """Return the latency from `zone` to every zone."""

    def between(self, a: Ints, b: Ints) -> Floats:
        """Return the latency of each pair (a, b)."""


@dataclass(frozen=True, eq=False)
class Matrix:
    """Measured latency for every pair of zones.

    >>> float(Matrix(np.array([[0.0, 0.07], [0.07, 0.0]])).row(0)[1])
    0.07
    """

    latency_s: Floats

    def __post_init__(self) -> None:
        latency = self.latency_s
        if latency.ndim != 2 or latency.shape[0] != latency.shape[1]:
            raise NetError(f"a WAN matrix must be square; got shape {latency.shape}")
        if np.isnan(latency).any() or (latency < 0).any():
            a, b = np.argwhere(np.isnan(latency) | (latency < 0))[0]
            raise NetError(f"WAN latency from zone {a} to {b} must be 0 s or more; got {latency[a, b]}")
        if np.diagonal(latency).any():
            zone = int(np.flatnonzero(np.diagonal(latency))[0])
            raise NetError(f"WAN latency from zone {zone} to itself must be 0 s; got {latency[zone, zone]}")
        if not np.array_equal(latency, latency.T):
            a, b = np.argwhere(latency != latency.T)[0]
            raise NetError(
                f"WAN latency must be the same both ways; zone {a} to {b} is {latency[a, b]} s, "
                f"back it is {latency[b, a]} s"
            )

    def __len__(self) -> int:
        return len(self.latency_s)

    def row(self, zone: int) -> Floats:
        """Return the latency from `zone` to every zone."""
        return np.asarray(self.latency_s[zone])

    def between(self, a: Ints, b: Ints) -> Floats:
        """Return the latency of each pair (a, b)."""
        return np.asarray(self.latency_s[a, b])


@dataclass(frozen=True, eq=False)
class Gateways:
    """Every zone reaches one backbone through its gateway: latency is the sum of the two halves."""

    up_s: Floats

    def __post_init__(self) -> None:
        _check_vector("gateway latency", self.up_s)

    def __len__(self) -> int:
        return len(self.up_s)

    def row(self, zone: int) -> Floats:
        """Return the latency from `zone` to every zone."""
        out: Floats = self.up_s + self.up_s[zone]
        out[zone] = 0.0
        return out

    def between(self, a: Ints, b: Ints) -> Floats:
        """Return the latency of each pair (a, b)."""
        return np.where(np.equal(a, b), 0.0, self.up_s[a] + self.up_s[b])


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Zones in a plane: latency is `base_s` plus `s_per_unit` times the distance."""

    x: Floats
    y: Floats
    base_s: float
    s_per_unit: float

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise NetError(f"coordinates need as many x as y; got {len(self.x)} and {len(self.y)}")
        if not (np.isfinite(self.x).all() and np.isfinite(self.y).all()):
            raise NetError("coordinates must be finite numbers; got NaN or infinity")
        _check_vector("coordinate latency", np.array([self.base_s, self.s_per_unit]))

    def __len__(self) -> int:
        return len(self.x)

    def row(self, zone: int) -> Floats:
        """Return the latency from `zone` to every zone."""
        out = self.base_s + self.s_per_unit * np.hypot(self.x - self.x[zone], self.y - self.y[zone])
        out[zone] = 0.0
        return np.asarray(out)

    def between(self, a: Ints, b: Ints) -> Floats:
        """Return the latency of each pair (a, b)."""
        far = self.base_s + self.s_per_unit * np.hypot(self.x[a] - self.x[b], self.y[a] - self.y[b])
        return np.where(np.equal(a, b), 0.0, far)


@dataclass(frozen=True, eq=False)
class Without:
    """A WAN with some links cut, each a pair of zones."""

    whole: Wan
    cut: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return len(self.whole)

    def row(self, zone: int) -> Floats:
        """Return the latency from `zone` to every zone."""
        out = self.whole.row(zone).copy()
        for a, b in self.cut:
            if zone in (a, b):
                out[b if zone == a else a] = np.inf
        return out

    def between(self, a: Ints, b: Ints) -> Floats:
        """Return the latency of each pair (a, b)."""
        out = np.array(self.whole.between(a, b))
        for x, y in self.cut:
            out[(np.equal(a, x) & np.equal(b, y)) | (np.equal(a, y) & np.equal(b, x))] = np.inf
        return out


@dataclass(frozen=True, eq=False)
class Held:
    """A WAN at whose borders records wait before they cross, as they do at the bridges between sites.

    >>> Held(Matrix(np.array([[0.0, 0.07], [0.07, 0.0]])), 0.1).row(0).tolist()
    [0.0, 0.17]
    """

    whole: Wan
    wait_s: float

    def __post_init__(self) -> None:
        _check_vector("the wait before a crossing", np.array([self.wait_s]))

    def __len__(self) -> int:
        return len(self.whole)

    def row(self, zone: int) -> Floats:
        """Return the latency from `zone` to every zone."""
        out = self.whole.row(zone) + self.wait_s
        out[zone] = 0.0
        return np.asarray(out)

    def between(self, a: Ints, b: Ints) -> Floats:
        """Return the latency of each pair (a, b)."""
        return np.where(np.equal(a, b), 0.0, self.whole.between(a, b) + self.wait_s)


def _check_vector(what: str, values: Floats) -> None:
    bad = np.isnan(values) | (values < 0)
    if bad.any():
        raise NetError(f"{what} must be 0 s or more; got {values[bad][0]}")
