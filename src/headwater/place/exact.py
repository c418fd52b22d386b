"""Exact: the proof that fits the problem, level by level of the objective, anytime under a time limit."""

from __future__ import annotations

import dataclasses

from headwater.place import anneal, brute, exact_aggregate, exact_latency
from headwater.place.arena import arena
from headwater.place.candidates import FEW, candidates
from headwater.place.objective import Objective
from headwater.place.placement import Budget, Clock, Placement, judged
from headwater.place.problem import Problem

ENOUGH = 3_000_000
"""Assignments up to which brute force is a reasonable proof."""


def solve(problem: Problem, budget: Budget | None = None, *, hint: Placement | None = None) -> Placement:
    """Find the optimum and prove it, or give the best found with a bound when time runs out.

    The objective's levels are solved in turn; each keeps what those before it reached.
    """
    budget = budget or Budget(time_s=60.0)
    goal, clock, capped = budget.goal(problem), Clock(budget), problem
    answer: Placement | None = None
    for number, level in enumerate(goal.levels):
        left = dataclasses.replace(budget, time_s=clock.left_s, objective=Objective((level,)))
        found = _level(capped, left, hint if number == 0 else answer)
        if found.device is None:
            return answer or dataclasses.replace(found, problem=problem, objective=goal)
        answer = found if number == 0 else dataclasses.replace(found, bound=answer.bound if answer else found.bound)
        capped = dataclasses.replace(capped, at_most=(*capped.at_most, (level, found.value)))
        if found.status != "optimal":
            break
    assert answer is not None
    assert answer.device is not None
    done = judged(problem, "exact", answer.device, budget, clock.spent_s, bound=answer.bound, notes=answer.notes)
    all_levels = answer.status == "optimal" and len(capped.at_most) - len(problem.at_most) == len(goal.levels)
    if not all_levels:
        return done
    return dataclasses.replace(done, status="optimal", bound=done.value, proven=True)


def _level(problem: Problem, budget: Budget, hint: Placement | None) -> Placement:
    """Solve for an objective of one level."""
    if exact_latency.solvable(problem, budget):
        start = hint.device if hint is not None else anneal.solve(problem, budget, steps=100_000, starts=2).device
        proof = exact_latency.solve(problem, budget, hint=start)
        if proof.device is not None or proof.proven or start is None:
            return proof
        return judged(problem, "exact", start, budget, proof.seconds)  # the proof's placement broke a limit it ignores
    if exact_aggregate.solvable(problem):
        start_from = hint if hint is not None and hint.device is not None else _quick(problem, budget)
        return exact_aggregate.solve(problem, budget, hint=start_from)
    if len(problem.net) <= FEW and brute.count(arena(problem, candidates(problem)), ENOUGH + 1) <= ENOUGH:
        return dataclasses.replace(brute.solve(problem, budget), strategy="exact")
    found = anneal.solve(problem, budget, begin=None if hint is None else hint.device)
    return dataclasses.replace(found, strategy="exact")


def _quick(problem: Problem, budget: Budget) -> Placement | None:
    from headwater.place.best import quick

    return quick(problem, budget)
