"""Best: a portfolio that takes the strongest answer of all strategies within a time budget."""

from __future__ import annotations

import dataclasses
import math

from headwater.place import aels, aels_rp, aels_rp_la, cloud_only, tcep
from headwater.place.descent import descend, foresee
from headwater.place.lower_bound import lower_bound
from headwater.place.objective import AGGREGATE
from headwater.place.placement import Budget, Clock, Placement, failure, moves
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
    answer = quick(problem, budget)
    if _needs_search(problem, budget):
        answer = _better(answer, _search(problem, budget, clock.left_s, answer))
    if prove and clock.left_s > PROOF_S:
        rest = dataclasses.replace(budget, time_s=clock.left_s)
        proof = exact.solve(problem, rest, hint=answer)
        if proof.device is None and proof.proven and answer is None:
            return dataclasses.replace(proof, strategy="best", seconds=clock.spent_s)
        answer = _with_bound(_better(answer, proof if proof.device is not None else None), proof)
    if answer is None:
        reason = foresee(problem, budget).reason or f"no strategy found a valid placement of '{problem.name}'"
        return failure(problem, "best", budget, clock.spent_s, reason)
    if answer.status != "optimal":
        bound = min(answer.value, max(answer.bound, lower_bound(problem, answer.objective)))
        answer = dataclasses.replace(answer, bound=bound)
    return dataclasses.replace(answer, strategy="best", seconds=clock.spent_s)


def quick(problem: Problem, budget: Budget) -> Placement | None:
    """The best that greedy strategies and descent reach, or None; milliseconds on any net, longer with many steps.

    When time is up, what is there is enough.
    """
    clock, placements = Clock(budget), list[Placement]()
    for strategy in GREEDY:
        placement = strategy(problem, budget)
        if placement.device is not None:
            placements.append(placement)
        if placements and clock.left_s == 0:
            break
    placements.sort(key=lambda placement: placement.value)
    best = placements[0] if placements else None
    if problem.model is Model.QUEUE:
        starts = {
            placement.device.tobytes(): placement.device for placement in placements if placement.device is not None
        }
        for device in list(starts.values())[:DESCENTS]:
            if clock.left_s > 0:
                best = _better(best, descend(problem, device, dataclasses.replace(budget, time_s=clock.left_s)))
    return best


def _needs_search(problem: Problem, budget: Budget) -> bool:
    """Greedy strategies and descent aim at the sum of paths under queue time; all else wants a search."""
    return problem.model is not Model.QUEUE or budget.goal(problem) != AGGREGATE


def _search(problem: Problem, budget: Budget, left_s: float, begin: Placement | None) -> Placement | None:
    from headwater.place import anneal

    rest = dataclasses.replace(budget, time_s=left_s)
    answer = anneal.solve(problem, rest, steps=moves(budget), begin=None if begin is None else begin.device)
    return answer if answer.device is not None else None


def _better(a: Placement | None, b: Placement | None) -> Placement | None:
    if a is None or b is None or b.device is None:
        return b if a is None and b is not None and b.device is not None else a
    return b if b.objective.values(b.score) < a.objective.values(a.score) else a


def _with_bound(answer: Placement | None, proof: Placement) -> Placement | None:
    """Carry a proof's bound over to the best placement."""
    if answer is None or not math.isfinite(proof.bound):
        return answer
    if proof.status == "optimal" and answer.value <= proof.value * (1 + 1e-9):
        return dataclasses.replace(answer, status="optimal", bound=answer.value, proven=True)
    return dataclasses.replace(answer, bound=min(proof.bound, answer.value))
