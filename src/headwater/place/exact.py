"""Exact: the proof that fits the problem, level by level of the objective, anytime under a time limit."""

from __future__ import annotations

import dataclasses

from headwater.data.jit import answering_at_once
from headwater.place import anneal, brute, exact_aggregate, exact_latency
from headwater.place.candidates import FEW, candidates
from headwater.place.dense import dense
from headwater.place.lower_bound import lower_bound
from headwater.place.objective import Objective
from headwater.place.placement import Budget, Clock, Placement, judge, moves
from headwater.place.problem import Model, Problem

ENOUGH = 3_000_000
"""Assignments up to which brute force is a reasonable proof."""
TINY = 2_000
"""Assignments that are tried before a compiler has begun: nobody waits for one to place five steps on three devices."""


def solve(problem: Problem, budget: Budget | None = None, *, hint: Placement | None = None) -> Placement:
    """Find the optimum and prove it, or give the best found with a bound when time runs out.

    The objective's levels are solved in turn; each keeps what those before it reached.
    """
    budget = budget or Budget(time_s=60.0)
    if is_tiny(problem):
        with answering_at_once():
            return dataclasses.replace(brute.solve(problem, budget), strategy="exact")
    goal, clock, capped = budget.goal(problem), Clock(budget), problem
    answer: Placement | None = None
    for number, level in enumerate(goal.levels):
        rest = dataclasses.replace(budget, time_s=clock.left_s, objective=Objective((level,)))
        placement = _with_lower_bound(_level(capped, rest, hint if number == 0 else answer))
        if placement.device is None:
            return answer or dataclasses.replace(placement, problem=problem, objective=goal)
        answer = (
            placement
            if number == 0
            else dataclasses.replace(placement, bound=answer.bound if answer else placement.bound)
        )
        capped = dataclasses.replace(capped, at_most=(*capped.at_most, (level, placement.value)))
        if placement.status != "optimal":
            break
    assert answer is not None
    assert answer.device is not None
    result = judge(problem, "exact", answer.device, budget, clock.spent_s, bound=answer.bound, notes=answer.notes)
    all_levels = answer.status == "optimal" and len(capped.at_most) - len(problem.at_most) == len(goal.levels)
    if not all_levels:
        return result
    return dataclasses.replace(result, status="optimal", bound=result.value, proven=True)


def _with_lower_bound(answer: Placement) -> Placement:
    """Give an answer without a proof at least the bound that needs no search."""
    if answer.device is None or answer.status == "optimal":
        return answer
    return dataclasses.replace(
        answer, bound=min(answer.value, max(answer.bound, lower_bound(answer.problem, answer.objective)))
    )


def _level(problem: Problem, budget: Budget, hint: Placement | None) -> Placement:
    """Solve for an objective of one level."""
    clock = Clock(budget)
    if exact_latency.solvable(problem, budget):
        start = hint.device if hint is not None else _anneal(problem, budget).device
        proof = exact_latency.solve(problem, dataclasses.replace(budget, time_s=clock.left_s), hint=start)
        if proof.device is not None or proof.proven or start is None:
            return proof
        return judge(problem, "exact", start, budget, proof.seconds)  # the proof's placement broke a limit it ignores
    if problem.model is not Model.QUEUE and _few(problem):
        return dataclasses.replace(brute.solve(problem, budget), strategy="exact")
    answer = hint if hint is not None and hint.device is not None else _best_unproven(problem, budget)
    if not exact_aggregate.solvable(problem):
        return answer
    return exact_aggregate.solve(problem, dataclasses.replace(budget, time_s=clock.left_s), hint=answer)


def is_tiny(problem: Problem) -> bool:
    """Say whether a problem is solved sooner than a search is compiled."""
    return _few(problem, TINY)


def _few(problem: Problem, most: int = ENOUGH) -> bool:
    return len(problem.net) <= FEW and brute.count(dense(problem, candidates(problem)), most + 1) <= most


def _anneal(problem: Problem, budget: Budget) -> Placement:
    return anneal.solve(problem, dataclasses.replace(budget, time_s=budget.time_s / 4), steps=moves(budget), starts=2)


def _best_unproven(problem: Problem, budget: Budget) -> Placement:
    """The best that is found without a proof."""
    from headwater.place import best

    return best.solve(problem, dataclasses.replace(budget, time_s=budget.time_s / 4), prove=False)
