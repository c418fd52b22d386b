"""Brute force: every assignment, or every one that differs by more than a swap of equal devices."""

from __future__ import annotations

import numpy as np

from headwater.errors import PlacementError
from headwater.kernels.jit import kernel
from headwater.net.arrays import Floats, Ints
from headwater.place.arena import Arena, arena
from headwater.place.candidates import FEW, candidates
from headwater.place.fast_score import OUT, evaluate, scratch
from headwater.place.placement import Budget, Clock, Placement, failed, judged
from headwater.place.problem import Problem
from headwater.place.score import MEASURES

MOST = 300_000_000
"""Assignments that are still tried; beyond, brute force is refused."""


def solve(problem: Problem, budget: Budget | None = None, *, canonical: bool = True) -> Placement:
    """Try every assignment of the free steps and prove the best; `canonical` skips swaps of equal devices.

    The proof holds for the devices searched: the whole net if it is small, else the candidates.
    """
    budget = budget or Budget()
    clock, devices = Clock(budget), candidates(problem)
    field = arena(problem, devices, budget.goal(problem))
    size = count(field, MOST + 1, canonical)
    if size > MOST:
        raise PlacementError(
            f"brute force over '{problem.name}' would try more than {MOST:,} assignments; use 'exact' instead"
        )
    goal = budget.goal(problem)
    weights = np.array([[goal.weights(level)[m] for m in MEASURES] for level in range(len(goal.levels))])
    sums, until = scratch(field)
    best, value, tried = _enumerate(field, weights, canonical, MOST + 1, True, sums, until)
    notes = {"tried": float(tried)}
    whole = len(problem.net) <= FEW
    if not np.isfinite(value[0]):
        reason = f"none of {tried:,} assignments of '{problem.name}' is valid"
        return failed(problem, "brute-force", budget, clock.spent_s, reason, proven=whole, notes=notes)
    return judged(problem, "brute-force", devices[best], budget, clock.spent_s, optimal=whole, notes=notes)


def count(field: Arena, limit: int, canonical: bool = True) -> int:
    """How many assignments brute force would try, or `limit` if more."""
    sums, until = scratch(field)
    if not canonical:
        return int(min(limit, field.service.shape[1] ** len(field.free)))
    _, _, tried = _enumerate(field, np.zeros((1, 6)), canonical, limit, False, sums, until)
    return int(tried)


@kernel
def _enumerate(
    field: Arena, weights: Floats, canonical: bool, limit: int, score: bool, sums: Floats, until: Floats
) -> tuple[Ints, Floats, int]:
    """Walk all assignments depth first; a device opens only after the twin before it."""
    free, columns = field.free, field.service.shape[1]
    place = field.fixed.copy()
    used = np.zeros(columns, np.int64)
    best, best_value = place.copy(), np.full(weights.shape[0], np.inf)
    out, value = np.zeros(OUT), np.zeros(weights.shape[0])
    depth, tried = 0, 0
    while True:
        if depth == len(free):
            tried += 1
            if tried >= limit:
                return best, best_value, tried
            if score:
                evaluate(field, place, sums, until, out)
                if out[6] == 0 and _better(weights, out, best_value, value):
                    best[:] = place
                    best_value[:] = value
            depth -= 1
        if depth < 0:
            return best, best_value, tried
        step = free[depth]
        column = place[step]
        if column >= 0:
            used[column] -= 1
        column += 1
        while canonical and column < columns and field.twin[column] >= 0 and used[field.twin[column]] == 0:
            column += 1
        if column >= columns:
            place[step] = -1
            depth -= 1
        else:
            place[step] = column
            used[column] += 1
            depth += 1


@kernel
def _better(weights: Floats, out: Floats, best: Floats, value: Floats) -> bool:
    """Whether the measures in `out` beat `best`, level by level; their values go to `value`."""
    for level in range(weights.shape[0]):
        value[level] = 0.0
        for measure in range(6):
            value[level] += weights[level, measure] * out[measure]
    for level in range(weights.shape[0]):
        if best[level] == np.inf or value[level] < best[level] * (1 - 1e-12):
            return True
        if value[level] > best[level] * (1 + 1e-12):
            return False
    return False
