"""The genetic algorithm of Ghosh and Simmhan, with their parameters.

As printed, its roulette wheel favours high latency. `literal=True` keeps that for comparison; the default
turns the wheel round. The best chromosome is kept outside the population.
"""

from __future__ import annotations

import numpy as np

from headwater.kernels.jit import kernel
from headwater.net.arrays import Floats, Ints
from headwater.place.arena import Arena, arena
from headwater.place.candidates import candidates
from headwater.place.fast_score import OUT, evaluate_all, scratch
from headwater.place.placement import Budget, Clock, Placement, failed, judged
from headwater.place.problem import Problem
from headwater.place.score import MEASURES

POPULATION, CROSSOVER, MUTATION = 50, 0.5, 0.15
LEAST, MOST = 15_000, 1_000_000
"""Generations before it may stop, and after which it must."""
GAMMA = 1e6
"""Weighs a violated constraint: ln(1 + γ·L) seconds for each kind."""


def solve(
    problem: Problem,
    budget: Budget | None = None,
    *,
    literal: bool = False,
    least: int = LEAST,
    most: int = MOST,
) -> Placement:
    """Evolve assignments until the best has not changed in the last half of the generations."""
    budget = budget or Budget()
    clock, devices = Clock(budget), candidates(problem)
    field = arena(problem, devices, budget.goal(problem))
    weights = np.array([budget.goal(problem).weights()[m] for m in MEASURES])
    sums, until = scratch(field)
    best, fitness, valid, generations, changed = _evolve(field, weights, budget.seed, literal, least, most, sums, until)
    notes = {"generations": float(generations), "last_change": float(changed), "fitness": float(fitness)}
    if not valid:
        reason = f"no chromosome of '{problem.name}' in {generations:,} generations is valid"
        return failed(problem, "genetic", budget, clock.spent_s, reason, notes=notes)
    return judged(problem, "genetic", devices[best], budget, clock.spent_s, notes=notes)


@kernel
def _evolve(
    field: Arena,
    weights: Floats,
    seed: int,
    literal: bool,
    least: int,
    most: int,
    sums: Floats,
    until: Floats,
) -> tuple[Ints, float, bool, int, int]:
    np.random.seed(seed)
    genes, columns = len(field.free), field.service.shape[1]
    now, after = np.zeros((POPULATION, genes), np.int64), np.zeros((POPULATION, genes), np.int64)
    fitness, wheel, outs = np.zeros(POPULATION), np.zeros(POPULATION), np.zeros((POPULATION, OUT))
    joined = np.zeros(POPULATION, np.int64)
    places, best = np.zeros((POPULATION, len(field.fixed)), np.int64), field.fixed.copy()
    best_fitness, valid, changed = np.inf, False, 0
    for j in range(POPULATION):
        places[j] = field.fixed
        for gene in range(genes):
            now[j, gene] = np.random.randint(columns)
    generation = 0
    while True:
        for gene in range(genes):
            step = np.uint64(field.free[gene])
            for j in range(POPULATION):
                places[j, step] = now[j, gene]
        evaluate_all(field, places, sums, until, outs)
        for j in range(POPULATION):
            value = 0.0
            for measure in range(6):
                value += weights[measure] * outs[j, measure]
            fitness[j] = value
            if outs[j, 6] > 0:
                fitness[j] += outs[j, 6] * np.log(1 + GAMMA * value)
            if fitness[j] < best_fitness:
                best_fitness, valid, changed = fitness[j], outs[j, 6] == 0, generation
                best[:] = places[j]
        generation += 1
        if genes == 0 or generation >= most or (generation >= least and changed <= generation // 2):
            return best, best_fitness, valid, generation, changed
        total = 0.0
        for j in range(POPULATION):
            total += fitness[j] if literal else 1 / fitness[j]
            wheel[j] = total
        for j in range(POPULATION):
            drawn = min(int(np.searchsorted(wheel, np.random.random() * total)), POPULATION - 1)
            after[j] = now[drawn]
        _cross(after, joined)
        _mutate(after, columns)
        now, after = after, now


@kernel
def _mutate(population: Ints, columns: int) -> None:
    """Redraw each gene with a fixed chance; the gaps between hits are drawn, not every gene."""
    genes = population.reshape(-1)
    gene = -1
    while True:
        gene += 1 + int(np.log(1 - np.random.random()) / np.log(1 - MUTATION))
        if gene >= len(genes):
            return
        genes[np.uint64(gene)] = int(np.random.random() * columns)


@kernel
def _cross(population: Ints, joined: Ints) -> None:
    """Pair those that join at random and exchange their first genes."""
    count = 0
    for j in range(len(population)):
        if np.random.random() < CROSSOVER:
            joined[count] = j
            count += 1
    np.random.shuffle(joined[:count])
    for pair in range(count // 2):
        a, b = joined[2 * pair], joined[2 * pair + 1]
        one, other = population[a], population[b]
        for gene in range(np.random.randint(population.shape[1]) + 1):
            one[gene], other[gene] = other[gene], one[gene]
