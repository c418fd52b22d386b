"""Random search: uniform assignments, the best valid one (the simple baseline of Ghosh and Simmhan)."""

from __future__ import annotations

import numpy as np

from headwater.data.jit import kernel
from headwater.net.arrays import Floats, Ints
from headwater.place.candidates import candidates
from headwater.place.dense import Dense, dense
from headwater.place.draws import Draws, draw, draws
from headwater.place.fast_score import OUT, evaluate, scratch
from headwater.place.placement import Budget, Clock, Placement, failure, judge, slices
from headwater.place.problem import Problem
from headwater.place.score import MEASURES

TRIALS = 15_000


def solve(problem: Problem, budget: Budget | None = None, *, trials: int = TRIALS) -> Placement:
    """Draw `trials` assignments; 750,000 of them are as many evaluations as the genetic algorithm makes."""
    budget = budget or Budget()
    clock, devices = Clock(budget), candidates(problem)
    field = dense(problem, devices, budget.goal(problem))
    weights = np.array([budget.goal(problem).weights()[m] for m in MEASURES])
    sums, until = scratch(field)
    random, tried = draws(budget.seed), 0
    best, value = field.fixed.copy(), np.inf
    for count in slices(clock, trials):
        value = _draw(field, weights, count, random, best, value, sums, until)
        tried += count
    if not np.isfinite(value):
        reason = f"none of {tried:,} random assignments of '{problem.name}' is valid"
        return failure(problem, "random", budget, clock.spent_s, reason)
    return judge(problem, "random", devices[best], budget, clock.spent_s, notes={"tried": float(tried)})


@kernel
def _draw(
    field: Dense,
    weights: Floats,
    trials: int,
    random: Draws,
    best: Ints,
    best_value: float,
    sums: Floats,
    until: Floats,
) -> float:
    """Draw assignments; the best goes to `best`, its value is returned."""
    columns = field.service.shape[1]
    place, out = field.fixed.copy(), np.zeros(OUT)
    for _ in range(trials):
        for step in field.free:
            place[step] = int(draw(random) * columns)
        evaluate(field, place, sums, until, out)
        value = 0.0
        for measure in range(6):
            value += weights[measure] * out[measure]
        if out[6] == 0 and value < best_value:
            best[:] = place
            best_value = value
    return best_value
