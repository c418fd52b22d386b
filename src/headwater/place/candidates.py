"""The devices worth a thorough search: hosts of pinned steps, their fellows, what lies between."""

from __future__ import annotations

import numpy as np

from headwater.net.arrays import Ints
from headwater.net.nearest import nearest
from headwater.place.problem import Problem

FEW = 64
"""Nets up to this size are searched whole."""


def candidates(problem: Problem, *, per_site: int = 2, clouds: int = 3, sites: int = 2) -> Ints:
    """The devices to search: all of a small net, else those near the pinned steps.

    Per zone of a pinned step its nearest `per_site` devices of each class; then the clouds and the other
    sites with the least latency, summed over those zones.
    """
    net = problem.net
    pins = np.unique(problem.pinned[problem.pinned >= 0])
    if len(net) <= FEW:
        return np.array([d for d in range(len(net)) if d not in problem.closed or d in pins])
    homes = np.unique(net.zone_of(pins)) if len(pins) else np.zeros(0, np.int64)
    central = np.zeros(len(net.zones))
    for zone in homes.tolist():
        central += net.wan.row(zone)
    if problem.zone_allowed is not None:
        useful = problem.zone_allowed[problem.pinned < 0].any(axis=0)
        central = np.where(useful, central, np.inf)
    index, devices = nearest(net), set(pins.tolist())
    for zone in (
        *homes.tolist(),
        *_least(central, net.cloud_zones, clouds),
        *_least(central, ~net.cloud_zones, sites),
    ):
        for group in np.flatnonzero(index.zone == zone).tolist():
            members = (int(d) for d in index.members(group))
            open_ones = [d for d in members if d not in problem.closed]
            devices.update(open_ones[:per_site])
    return np.array(sorted(devices - problem.closed | set(pins.tolist())), np.int64)


def _least(
    cost: np.ndarray[tuple[int], np.dtype[np.float64]],
    among: np.ndarray[tuple[int], np.dtype[np.bool_]],
    count: int,
) -> list[int]:
    zones = np.flatnonzero(among & np.isfinite(cost))
    return [int(z) for z in zones[np.argsort(cost[zones], kind="stable")][:count]]
