"""How far rates can grow, with every step free to move, before no placement is found any more."""

from __future__ import annotations

import dataclasses

from headwater.place import best
from headwater.place.explain import slower
from headwater.place.placement import Budget, Clock, Placement
from headwater.place.problem import Problem


def reach(problem: Problem, budget: Budget | None = None, *, most: float = 1000.0) -> tuple[float, Placement | None]:
    """The largest factor for all rates at which a placement was found, within 1 %, and that placement.

    It is a factor that surely works, not a proof that none above does: a search that ends without an answer counts as no.
    """
    budget = budget or Budget()
    clock = Clock(budget)
    probe = dataclasses.replace(budget, time_s=budget.time_s / 12)

    def at(factor: float) -> Placement | None:
        answer = best.solve(slower(problem, factor), probe)
        return answer if answer.device is not None else None

    low, high, largest = 1.0, most, at(1.0)
    if largest is None:
        return 0.0, None
    while high / low > 1.01 and clock.left_s > 0:
        middle = (low * high) ** 0.5
        answer = at(middle)
        low, high, largest = (middle, high, answer) if answer is not None else (low, middle, largest)
    return low, largest
