"""MinCost: every step on the cheapest device that admits it, then the next cheapest (Nguyen and Chien).

Cheapest first is not optimal once capacities bind; `exact` with the objective `money` is.
"""

from __future__ import annotations

import numpy as np

from headwater.place.capacity import Capacity
from headwater.place.greedy import grow
from headwater.place.placement import Budget, Placement
from headwater.place.problem import Problem


def solve(problem: Problem, budget: Budget | None = None) -> Placement:
    """Place steps in deployment order by price; equally cheap devices are told apart by latency."""
    return grow(problem, "min-cost", budget or Budget(), cheapest_to_rent, pins_first=True)


def cheapest_to_rent(capacity: Capacity, step: int) -> int | None:
    """The fitting row with the lowest price per hour, among these the one that is nearest to its neighbours."""
    fits = capacity.feasible(step)
    if not fits.any():
        return None
    price = np.array([c.price_per_hour for c in capacity.problem.net.classes])[capacity.kind]
    cheapest = fits & (price == price[fits].min())
    return capacity.best(capacity.cost(step, capacity.around(step)), cheapest)
