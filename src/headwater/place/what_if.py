"""What-if: the least that meets a target, and how far a placement could be stretched."""

from __future__ import annotations

import dataclasses

from headwater.net.arrays import Ints
from headwater.place import exact
from headwater.place.explain import slower
from headwater.place.objective import Objective
from headwater.place.placement import Budget, Placement
from headwater.place.problem import Problem
from headwater.place.verify import violations


def least(
    problem: Problem, of: str, *, latency_s: float, rate_factor: float = 1.0, budget: Budget | None = None
) -> Placement:
    """The fewest `devices`, or the least `money`, with which the slowest path stays below `latency_s`.

    `rate_factor` asks the same for more, or fewer, records per second.
    """
    asked = slower(problem, rate_factor) if rate_factor != 1.0 else problem
    asked = dataclasses.replace(asked, at_most=(*asked.at_most, ((("critical", 1.0),), latency_s)))
    budget = dataclasses.replace(budget or Budget(), objective=Objective.parse(f"{of} then critical"))
    return exact.solve(asked, budget)


def headroom(problem: Problem, device: Ints, *, most: float = 1000.0) -> float:
    """The factor by which all rates may grow before the placement breaks a constraint."""
    if violations(problem, device.tolist()):
        return 0.0
    low, high = 1.0, most
    while high - low > 1e-4 * low:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if violations(slower(problem, middle), device.tolist()) else (middle, high)
    return low
