"""R-Storm: each step on the device whose free processor and memory fit it most closely, near the first one.

After Peng et al., Middleware 2015: memory is a hard limit, and the distance between what a step needs and what a device has
left decides, with the network as one more dimension. All other limits of the problem are hard here as well.
"""

from __future__ import annotations

import numpy as np

from headwater.place.capacity import Capacity
from headwater.place.greedy import grow
from headwater.place.placement import Budget, Placement
from headwater.place.problem import Problem

SAME_ZONE, OTHER_ZONE = 0.5, 1.0
"""How far a device is from the first one, which is at distance 0."""


def solve(problem: Problem, budget: Budget | None = None) -> Placement:
    """Place steps in deployment order, each by distance in the space of its needs."""
    return grow(problem, "r-storm", budget or Budget(), nearest_in_needs)


def nearest_in_needs(capacity: Capacity, step: int) -> int | None:
    """The fitting row with the least distance to the step's needs and to the device of the first step."""
    problem, kind = capacity.problem, capacity.kind
    classes = problem.net.classes
    load = np.where(np.isfinite(problem.load[step]), problem.load[step], 0.0)[kind]
    speed = np.array([c.cpu_ips for c in classes])
    processor = speed[kind] * (1 - capacity.busy - load) / speed.max()
    memory = np.array([c.memory_bytes for c in classes])
    bounded = np.where(np.isfinite(memory), memory, 0.0)
    free = bounded[kind] - np.where(np.isfinite(memory)[kind], capacity.memory + problem.memory_bytes[step], 0.0)
    placed = np.flatnonzero(capacity.at >= 0)
    away = np.full(capacity.rows, OTHER_ZONE)
    if len(placed):
        first = int(capacity.at[next(s for s in problem.order if capacity.at[s] >= 0)])
        away[capacity.zone == capacity.zone[first]] = SAME_ZONE
        away[first] = 0.0
    distance = np.sqrt(processor**2 + (free / max(bounded.max(), 1.0)) ** 2 + away**2)
    return capacity.best(distance, capacity.feasible(step))
