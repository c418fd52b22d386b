"""What-if: the least that meets a target, and how far a placement could be stretched."""

from __future__ import annotations

import dataclasses
from math import isclose

from headwater.errors import PlacementError
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
    variant = slower(problem, rate_factor) if rate_factor != 1.0 else problem
    variant = dataclasses.replace(variant, at_most=(*variant.at_most, ((("critical", 1.0),), latency_s)))
    budget = dataclasses.replace(budget or Budget(), objective=Objective.parse(f"{of} then critical"))
    return exact.solve(variant, budget)


def front(problem: Problem, one: str, other: str, *, points: int = 5, budget: Budget | None = None) -> list[Placement]:
    """Placements from the best in one measure to the best in another, none worse than another in both.

    The ends are each measure's optimum; between them the second measure is limited, evenly, and the first one minimised.
    """
    if points < 2:
        raise PlacementError(f"a front needs at least 2 points; got {points}")
    budget = budget or Budget()
    share = dataclasses.replace(budget, time_s=budget.time_s / points)

    def best(variant: Problem, first: str, then: str) -> Placement:
        goal = Objective.parse(f"{first} then {then}")
        answer = exact.solve(variant, dataclasses.replace(share, objective=goal))
        return dataclasses.replace(answer, problem=problem)

    ends = best(problem, one, other), best(problem, other, one)
    if any(end.device is None for end in ends):
        return []
    dear, cheap = (end.score.measure(other) for end in ends)
    placements = [ends[0]]
    for at in range(1, points - 1):
        limit = dear + (cheap - dear) * at / (points - 1)
        capped = dataclasses.replace(problem, at_most=(*problem.at_most, (((other, 1.0),), limit)))
        placements.append(best(capped, one, other))
    placements.append(ends[1])
    sound = [f for f in placements if f.device is not None]
    return [
        f
        for at, f in enumerate(sound)
        if not any(_beats(g, f, one, other) for g in sound) and not any(_equal(g, f, one, other) for g in sound[:at])
    ]


def _beats(a: Placement, b: Placement, one: str, other: str) -> bool:
    """Whether a placement is better in one measure and no worse in the other."""
    gain = [b.score.measure(m) - a.score.measure(m) for m in (one, other)]
    slack = [1e-9 * abs(b.score.measure(m)) for m in (one, other)]
    return all(g >= -s for g, s in zip(gain, slack, strict=True)) and any(
        g > s for g, s in zip(gain, slack, strict=True)
    )


def _equal(a: Placement, b: Placement, one: str, other: str) -> bool:
    """Whether two placements are worth the same in both measures."""
    return all(isclose(a.score.measure(m), b.score.measure(m), rel_tol=1e-9) for m in (one, other))


def headroom(problem: Problem, device: Ints, *, most: float = 1000.0) -> float:
    """The factor by which all rates may grow before the placement breaks a constraint."""
    if violations(problem, device.tolist()):
        return 0.0
    low, high = 1.0, most
    while high - low > 1e-4 * low:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if violations(slower(problem, middle), device.tolist()) else (middle, high)
    return low
