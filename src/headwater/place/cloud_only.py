"""Cloud-only: every free step in the cloud that takes least, the baseline of both papers."""

from __future__ import annotations

from headwater.place.capacity import Capacity
from headwater.place.greedy import grow
from headwater.place.placement import Budget, Placement
from headwater.place.problem import Problem


def solve(problem: Problem, budget: Budget | None = None) -> Placement:
    """Place steps in deployment order on cloud devices only."""
    return grow(problem, "cloud-only", budget or Budget(), cheapest_cloud)


def cheapest_cloud(capacity: Capacity, step: int) -> int | None:
    """The cloud row where the step and its inputs take least."""
    clouds = capacity.problem.net.is_cloud[capacity.kind]
    return capacity.best(capacity.cost(step, capacity.upstream(step)), capacity.feasible(step) & clouds)
