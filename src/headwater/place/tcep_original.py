"""TCEP as Taneja and Davy wrote it: each step on the smallest device that is large enough.

Veith et al. describe it as the middle of the ranking, which is where the original's binary search begins (see `tcep`); the
original goes on to the least free processor that satisfies the step, and so fills the edge before the cloud.
"""

from __future__ import annotations

import numpy as np

from headwater.place.capacity import Capacity
from headwater.place.greedy import grow
from headwater.place.placement import Budget, Placement
from headwater.place.problem import Problem


def solve(problem: Problem, budget: Budget | None = None) -> Placement:
    """Place steps by falling demand, pinned ones first."""
    demand = np.where(np.isfinite(problem.load), problem.load, 0).max(axis=1)
    order = sorted(range(len(problem.steps)), key=lambda step: (problem.pinned[step] < 0, -demand[step]))
    return grow(problem, "tcep-original", budget or Budget(), smallest, order=order)


def smallest(capacity: Capacity, step: int) -> int | None:
    """The fitting row with the least free instructions per second."""
    speed = np.array([c.cpu_ips for c in capacity.problem.net.classes])
    return capacity.best(speed[capacity.kind] * (1 - capacity.busy), capacity.feasible(step))
