"""AELS+RP: steps that feed an edge sink stay on the edge, others join their sink's cloud (Veith, 4.2)."""

from __future__ import annotations

import numpy as np

from headwater.net.arrays import Flags, Floats
from headwater.place.capacity import Capacity
from headwater.place.greedy import grow
from headwater.place.placement import Budget, Placement
from headwater.place.problem import Problem


def solve(problem: Problem, budget: Budget | None = None) -> Placement:
    """Place steps in deployment order, each in its region."""
    regions = Regions(problem)

    def rule(capacity: Capacity, step: int) -> int | None:
        return choose(capacity, step, regions, capacity.feasible(step))

    return grow(problem, "aels-rp", budget or Budget(), rule)


class Regions:
    """Which sinks each step feeds, and so where it belongs.

    The edge wins: a step is in the edge region if it can reach any sink that is not pinned to a cloud.
    """

    def __init__(self, problem: Problem) -> None:
        net = problem.net
        cloud = {
            sink
            for sink in problem.sinks
            if problem.pinned[sink] >= 0 and net.is_cloud[net.class_of[problem.pinned[sink]]]
        }
        self.feeds: list[frozenset[int]] = [frozenset()] * len(problem.steps)
        for step in reversed(problem.order):
            after = [self.feeds[int(problem.stream_to[e])] for e in problem.outputs[step]]
            self.feeds[step] = frozenset().union(*after) if after else frozenset({step})
        self.edge = [bool(sinks - cloud) for sinks in self.feeds]


def choose(capacity: Capacity, step: int, regions: Regions, fits: Flags) -> int | None:
    """The best of the fitting rows for a step in its region."""
    clouds = capacity.problem.net.is_cloud[capacity.kind]
    if not regions.edge[step]:
        return capacity.best(_to_sinks(capacity, regions.feeds[step]), fits & clouds)
    cost = capacity.cost(step, capacity.upstream(step))
    row = capacity.best(cost, fits & ~clouds)
    return row if row is not None else capacity.best(cost, fits & clouds)


def _to_sinks(capacity: Capacity, sinks: frozenset[int]) -> Floats:
    """Latency from each row to the cloud sinks that a step feeds; 0 on the sink's own host."""
    problem, total = capacity.problem, np.zeros(capacity.rows)
    for sink in sorted(sinks):
        host = int(problem.pinned[sink])
        far = capacity.wan_row(int(problem.net.zone_of(host)))[capacity.zone] + problem.net.lan_s[host] + capacity.lan_s
        total += np.where(capacity.device == host, 0.0, far)
    return total
