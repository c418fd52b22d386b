"""AELS: each step where it and its input streams take least, among all devices (Veith et al., 4.1).

The paper scores every device for every step. The capacity has the same answers from one row per zone and class.
"""

from __future__ import annotations

from headwater.place.capacity import Capacity
from headwater.place.greedy import grow
from headwater.place.placement import Budget, Placement
from headwater.place.problem import Problem


def solve(problem: Problem, budget: Budget | None = None) -> Placement:
    """Place steps in deployment order; only what lies upstream is seen."""
    return grow(problem, "aels", budget or Budget(), cheapest)


def cheapest(capacity: Capacity, step: int) -> int | None:
    """The row where the step and its inputs take least."""
    return capacity.best(capacity.cost(step, capacity.upstream(step)), capacity.feasible(step))
