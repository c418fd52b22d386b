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
        left = dataclasses.replace(budget, time_s=clock.left_s, objective=Objective((level,)))
        found = _bounded(_level(capped, left, hint if number == 0 else answer))
        if found.device is None:
            return answer or dataclasses.replace(found, problem=problem, objective=goal)
        answer = found if number == 0 else dataclasses.replace(found, bound=answer.bound if answer else found.bound)
        capped = dataclasses.replace(capped, at_most=(*capped.at_most, (level, found.value)))
        if found.status != "optimal":
            break
    assert answer is not None
    assert answer.device is not None
    done = judge(problem, "exact", answer.device, budget, clock.spent_s, bound=answer.bound, notes=answer.notes)
    all_levels = answer.status == "optimal" and len(capped.at_most) - len(problem.at_most) == len(goal.levels)
    if not all_levels:
        return done
    return dataclasses.replace(done, status="optimal", bound=done.value, proven=True)


def _bounded(found: Placement) -> Placement:
    """Give an answer without a proof at least the bound that needs no search."""
    if found.device is None or found.status == "optimal":
        return found
    return dataclasses.replace(
        found, bound=min(found.value, max(found.bound, lower_bound(found.problem, found.objective)))
    )


def _level(problem: Problem, budget: Budget, hint: Placement | None) -> Placement:
    """Solve for an objective of one level."""
    clock = Clock(budget)
    if exact_latency.solvable(problem, budget):
        start = hint.device if hint is not None else _annealed(problem, budget).device
        proof = exact_latency.solve(problem, dataclasses.replace(budget, time_s=clock.left_s), hint=start)
        if proof.device is not None or proof.proven or start is None:
            return proof
        return judge(problem, "exact", start, budget, proof.seconds)  # the proof's placement broke a limit it ignores
    if problem.model is not Model.QUEUE and _few(problem):
        return dataclasses.replace(brute.solve(problem, budget), strategy="exact")
    found = hint if hint is not None and hint.device is not None else _known(problem, budget)
    if not exact_aggregate.solvable(problem):
        return found
    return exact_aggregate.solve(problem, dataclasses.replace(budget, time_s=clock.left_s), hint=found)


def is_tiny(problem: Problem) -> bool:
    """Say whether a problem is solved sooner than a search is compiled."""
    return _few(problem, TINY)


def _few(problem: Problem, most: int = ENOUGH) -> bool:
    return len(problem.net) <= FEW and brute.count(dense(problem, candidates(problem)), most + 1) <= most


def _annealed(problem: Problem, budget: Budget) -> Placement:
    return anneal.solve(problem, dataclasses.replace(budget, time_s=budget.time_s / 4), steps=moves(budget), starts=2)


def _known(problem: Problem, budget: Budget) -> Placement:
    """The best that is found without a proof."""
    from headwater.place import best

    return best.solve(problem, dataclasses.replace(budget, time_s=budget.time_s / 4), prove=False)
