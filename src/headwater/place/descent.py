"""Descent: move one step at a time to where it, its inputs and its outputs take least, until none moves.

Under queue time the aggregate latency is a sum over steps and streams, so the best device for a step with
the others fixed is exact, and found over the whole net from the capacity's few rows.
"""

from __future__ import annotations

from headwater.net.arrays import Ints
from headwater.place.capacity import Capacity
from headwater.place.greedy import grow
from headwater.place.placement import Budget, Clock, Placement, judge
from headwater.place.problem import Problem

ROUNDS = 50


def foresee(problem: Problem, budget: Budget | None = None) -> Placement:
    """Grow a placement like AELS, but with pinned steps on the capacity from the start and paths as weights."""
    return grow(problem, "foresee", budget or Budget(), cheapest_between, pins_first=True)


def cheapest_between(capacity: Capacity, step: int) -> int | None:
    """The row where a step, its inputs and its outputs take least, weighted by the paths through them."""
    weight = float(capacity.problem.step_paths[step])
    return capacity.best(capacity.cost(step, capacity.around(step), weight), capacity.feasible(step))


def descend(problem: Problem, device: Ints, budget: Budget | None = None) -> Placement:
    """Improve a valid placement until no single move helps."""
    budget = budget or Budget()
    clock, capacity = Clock(budget), Capacity(problem)
    for step in problem.order:
        capacity.put(step, capacity.row(int(device[step])))
    free = [step for step in problem.order if problem.pinned[step] < 0]
    for _ in range(ROUNDS):
        moves = sum(_try_move(capacity, step) for step in free if clock.left_s > 0)
        if not moves:
            break
    return judge(problem, "descent", capacity.devices(), budget, clock.spent_s)


def _try_move(capacity: Capacity, step: int) -> bool:
    """Move a step to its best row; say whether that is better than where it was."""
    before = int(capacity.at[step])
    capacity.lift(step)
    weight = float(capacity.problem.step_paths[step])
    cost, fits = capacity.cost(step, capacity.around(step), weight), capacity.feasible(step)
    row = capacity.best(cost, fits)
    better = row is not None and row != before and cost[row] < cost[before] * (1 - 1e-12)
    capacity.put(step, row if better and row is not None else before)
    return better
