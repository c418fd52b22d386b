"""Best: a portfolio that takes the strongest answer of all strategies within a time budget."""

from __future__ import annotations

import dataclasses
import math

from headwater.place import aels, aels_rp, aels_rp_la, cloud_only, tcep
from headwater.place.descent import descend, foresee
from headwater.place.lower_bound import lower_bound
from headwater.place.objective import AGGREGATE
from headwater.place.placement import Budget, Clock, Placement, failed, moves
from headwater.place.problem import Model, Problem

GREEDY = (aels.solve, aels_rp.solve, aels_rp_la.solve, cloud_only.solve, tcep.solve, foresee)
DESCENTS = 4
"""How many of the greedy answers, best first, are improved by descent."""
PROOF_S = 0.25
"""With less time left than this, no proof is tried."""


def solve(problem: Problem, budget: Budget | None = None, *, prove: bool = True) -> Placement:
    """Run every strategy that fits, improve the best, and prove it if time allows.

    The answer is at least as good as that of each strategy. `prove=False` stops after the heuristics.
    """
    budget = budget or Budget()
    from headwater.place import exact  # which asks this strategy for a start

    clock = Clock(budget)
    if prove and exact.is_tiny(problem):
        return dataclasses.replace(exact.solve(problem, budget), strategy="best", seconds=clock.spent_s)
    found = quick(problem, budget)
    if _needs_search(problem, budget):
        found = _better(found, _searched(problem, budget, clock.left_s, found))
    if prove and clock.left_s > PROOF_S:
        rest = dataclasses.replace(budget, time_s=clock.left_s)
        proof = exact.solve(problem, rest, hint=found)
        if proof.device is None and proof.proven and found is None:
            return dataclasses.replace(proof, strategy="best", seconds=clock.spent_s)
        found = _with_bound(_better(found, proof if proof.device is not None else None), proof)
    if found is None:
        reason = foresee(problem, budget).reason or f"no strategy found a valid placement of '{problem.name}'"
        return failed(problem, "best", budget, clock.spent_s, reason)
    if found.status != "optimal":
        bound = min(found.value, max(found.bound, lower_bound(problem, found.objective)))
        found = dataclasses.replace(found, bound=bound)
    return dataclasses.replace(found, strategy="best", seconds=clock.spent_s)


def quick(problem: Problem, budget: Budget) -> Placement | None:
    """The best that greedy strategies and descent reach, or None; milliseconds on any net, longer with many steps.

    When time is up, what is there is enough.
    """
    clock, grown = Clock(budget), list[Placement]()
    for strategy in GREEDY:
        found = strategy(problem, budget)
        if found.device is not None:
            grown.append(found)
        if grown and clock.left_s == 0:
            break
    grown.sort(key=lambda found: found.value)
    best = grown[0] if grown else None
    if problem.model is Model.QUEUE:
        starts = {found.device.tobytes(): found.device for found in grown if found.device is not None}
        for device in list(starts.values())[:DESCENTS]:
            if clock.left_s > 0:
                best = _better(best, descend(problem, device, dataclasses.replace(budget, time_s=clock.left_s)))
    return best


def _needs_search(problem: Problem, budget: Budget) -> bool:
    """Greedy strategies and descent aim at the sum of paths under queue time; all else wants a search."""
    return problem.model is not Model.QUEUE or budget.goal(problem) != AGGREGATE


def _searched(problem: Problem, budget: Budget, left_s: float, begin: Placement | None) -> Placement | None:
    from headwater.place import anneal

    left = dataclasses.replace(budget, time_s=left_s)
    found = anneal.solve(problem, left, steps=moves(budget), begin=None if begin is None else begin.device)
    return found if found.device is not None else None


def _better(a: Placement | None, b: Placement | None) -> Placement | None:
    if a is None or b is None or b.device is None:
        return b if a is None and b is not None and b.device is not None else a
    return b if b.objective.values(b.score) < a.objective.values(a.score) else a


def _with_bound(found: Placement | None, proof: Placement) -> Placement | None:
    """Carry a proof's bound over to the best placement."""
    if found is None or not math.isfinite(proof.bound):
        return found
    if proof.status == "optimal" and found.value <= proof.value * (1 + 1e-9):
        return dataclasses.replace(found, status="optimal", bound=found.value, proven=True)
    return dataclasses.replace(found, bound=min(proof.bound, found.value))
