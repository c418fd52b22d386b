"""Simulated annealing over any objective and model: the heuristic of choice on a handful of devices.

A move sends a step to a neighbour's device, to a cloud, to another device or into a swap with another step.
"""

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

STEPS, STARTS = 300_000, 3


def solve(
    problem: Problem,
    budget: Budget | None = None,
    *,
    steps: int = STEPS,
    starts: int = STARTS,
    begin: Ints | None = None,
) -> Placement:
    """Anneal `starts` times and keep the best valid placement; the first may `begin` from one."""
    budget = budget or Budget()
    clock, devices = Clock(budget), candidates(problem)
    if begin is not None:
        devices = np.union1d(devices, begin)
    goal = budget.goal(problem)
    field = dense(problem, devices, goal)
    best, best_values = None, np.full(len(goal.levels), np.inf)
    levels = [np.array([goal.weights(level)[m] for m in MEASURES]) for level in range(len(goal.levels))]
    clouds = np.flatnonzero(problem.net.is_cloud[problem.net.class_of[devices]])
    home = np.full(len(problem.steps), -1) if begin is None else np.searchsorted(devices, begin)
    trace: list[tuple[float, float]] = []
    for start in range(starts):
        capped = field
        values: list[float] = []
        place = home if start == 0 else np.full(len(problem.steps), -1)
        for weights in levels:
            place, value = _cool(capped, weights, clouds, place, steps, budget.seed + start, clock)
            values.append(value)
            if not np.isfinite(value):
                break
            cap = np.append(weights, value)[None, :]  # what the next level may not give up
            capped = capped._replace(caps=np.concatenate([capped.caps, cap]))
        if len(values) == len(levels) and np.isfinite(values[-1]) and tuple(values) < tuple(best_values):
            best, best_values = place, np.array(values)
            trace.append((clock.spent_s, values[0]))
        if clock.left_s == 0:
            break
    if best is None:
        reason = f"annealing found no valid placement of '{problem.name}'"
        return failure(problem, "anneal", budget, clock.spent_s, reason)
    return judge(problem, "anneal", devices[best], budget, clock.spent_s, trace=tuple(trace))


@kernel
def _cost(field: Dense, weights: Floats, place: Ints, scale: float, sums: Floats, until: Floats, out: Floats) -> float:
    evaluate(field, place, sums, until, out)
    value = 0.0
    for measure in range(6):
        value += weights[measure] * out[measure]
    return float(value + scale * (out[6] + min(out[7], 1e6)))


def _cool(
    field: Dense, weights: Floats, clouds: Ints, begin: Ints, steps: int, seed: int, clock: Clock
) -> tuple[Ints, float]:
    """The best that one slow cooling comes by, and its cost; infinite if nothing valid."""
    random, free, (sums, until) = draws(seed), field.free, scratch(field)
    place, out = field.fixed.copy(), np.zeros(OUT)
    random_places = np.random.default_rng(seed).integers(0, field.service.shape[1], len(free))
    place[free] = np.where(begin[free] >= 0, begin[free], random_places)
    scale = max(_cost(field, weights, place, 0.0, sums, until, out), 1e-9)
    if begin[0] < 0 and len(clouds):  # a random start may be absurdly slow; a cloud start gives the scale of good ones
        place[free] = clouds[0]
        scale = min(scale, max(_cost(field, weights, place, 0.0, sums, until, out), 1e-9))
    now = _cost(field, weights, place, scale, sums, until, out)
    best, best_cost, turn = place.copy(), now if out[6] == 0 else np.inf, 0
    for count in slices(clock, steps if len(free) else 0):
        now, best_cost = _anneal(
            field, weights, clouds, place, best, now, best_cost, scale, turn, count, steps, random, sums, until
        )
        turn += count
    return best, best_cost


@kernel
def _anneal(
    field: Dense,
    weights: Floats,
    clouds: Ints,
    place: Ints,
    best: Ints,
    now: float,
    best_cost: float,
    scale: float,
    begin: int,
    count: int,
    steps: int,
    random: Draws,
    sums: Floats,
    until: Floats,
) -> tuple[float, float]:
    """Make so many of all moves, from one on; return what the placement and the best one cost."""
    columns, free, out = field.service.shape[1], field.free, np.zeros(OUT)
    hot, cold = 0.05 * scale, 2e-7 * scale
    neighbours = len(field.tail)
    for turn in range(begin, begin + count):
        heat = hot * (cold / hot) ** (turn / steps)
        step = free[int(draw(random) * len(free))]
        old, partner, partner_old = place[step], -1, -1
        kind = draw(random)
        if kind < 0.45 and neighbours:
            place[step] = _neighbour_column(field, place, step, random)
        elif kind < 0.6 and len(clouds):
            place[step] = clouds[int(draw(random) * len(clouds))]
        elif kind < 0.75:
            partner = free[int(draw(random) * len(free))]
            partner_old = place[partner]
            place[step], place[partner] = partner_old, old
        else:
            place[step] = int(draw(random) * columns)
        if place[step] == old:
            continue
        cost = _cost(field, weights, place, scale, sums, until, out)
        if cost <= now or draw(random) < np.exp((now - cost) / heat):
            now = cost
            if out[6] == 0 and cost < best_cost:
                best_cost = cost
                best[:] = place
        else:
            place[step] = old
            if partner >= 0:
                place[partner] = partner_old
                place[step] = old
    return now, best_cost


@kernel
def _neighbour_column(field: Dense, place: Ints, step: int, random: Draws) -> int:
    """The column of a random neighbour of a step in the graph; its own if it has none."""
    column, seen = place[step], 0
    for e in range(len(field.tail)):
        other = -1
        if field.tail[e] == step:
            other = field.head[e]
        elif field.head[e] == step:
            other = field.tail[e]
        if other >= 0:
            seen += 1
            if int(draw(random) * seen) == 0:
                column = place[other]
    return int(column)
