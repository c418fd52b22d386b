"""AELS+RP+LA: AELS+RP over a short list of devices near the step's neighbours (Veith et al., 4.3)."""

from __future__ import annotations

import numpy as np

from headwater.net.arrays import Flags, Floats
from headwater.place.aels_rp import Regions, choose
from headwater.place.capacity import Capacity
from headwater.place.greedy import grow
from headwater.place.placement import Budget, Placement
from headwater.place.problem import Problem


def solve(problem: Problem, budget: Budget | None = None) -> Placement:
    """Place steps in deployment order on listed devices; on all of them where no listed one fits."""
    regions = Regions(problem)

    def rule(capacity: Capacity, step: int) -> int | None:
        fits = capacity.feasible(step)
        row = choose(capacity, step, regions, fits & near(capacity, step, regions, fits))
        return row if row is not None else choose(capacity, step, regions, fits)

    return grow(problem, "aels-rp-la", budget or Budget(), rule)


def near(capacity: Capacity, step: int, regions: Regions, fits: Flags) -> Flags:
    """The rows worth a look: hosts upstream and their nearest fellows, the next site and cloud, the sinks."""
    shortlist = np.zeros(capacity.rows, bool)
    edge = ~capacity.problem.net.is_cloud[capacity.kind]
    for _, row, _ in capacity.upstream(step):
        home = capacity.zone == capacity.zone[row]
        shortlist[row] = True
        if edge[row]:
            _list_least(capacity, shortlist, capacity.lan_s, fits & home & edge & (np.arange(capacity.rows) != row))
        far = capacity.wan_row(int(capacity.zone[row]))[capacity.zone] + capacity.lan_s
        _list_least(capacity, shortlist, far, fits & edge & ~home)
        _list_least(capacity, shortlist, far, fits & ~edge)
    for sink in sorted(regions.feeds[step]):
        if capacity.problem.pinned[sink] >= 0:
            _list_sink(capacity, shortlist, int(capacity.problem.pinned[sink]), fits)
    return shortlist


def _list_sink(capacity: Capacity, shortlist: Flags, host: int, fits: Flags) -> None:
    """List a sink's host, or else the fitting row nearest to it."""
    at_host = capacity.device == host
    if (at_host & fits).any():
        shortlist |= at_host
        return
    zone = int(capacity.problem.net.zone_of(host))
    _list_least(capacity, shortlist, capacity.wan_row(zone)[capacity.zone] + capacity.lan_s, fits)


def _list_least(capacity: Capacity, shortlist: Flags, cost: Floats, among: Flags) -> None:
    """List the cheapest row, among equals that of the lowest device number, as everywhere."""
    row = capacity.best(cost, among)
    if row is not None:
        shortlist[row] = True
