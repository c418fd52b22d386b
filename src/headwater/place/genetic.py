"""The genetic algorithm of Ghosh and Simmhan, with their parameters.

As printed, its roulette wheel favours high latency. `literal=True` keeps that for comparison; the default
turns the wheel round. The best chromosome is kept outside the population.
"""

from __future__ import annotations

import numpy as np

from headwater.data.jit import kernel
from headwater.net.arrays import Floats, Ints
from headwater.place.candidates import candidates
from headwater.place.dense import Dense, dense
from headwater.place.draws import Draws, draw, draws
from headwater.place.fast_score import OUT, evaluate_all, scratch
from headwater.place.placement import Budget, Clock, Placement, failure, judge, slices
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
    field = dense(problem, devices, budget.goal(problem))
    weights = np.array([budget.goal(problem).weights()[m] for m in MEASURES])
    evolution = _Evolution(field, weights, budget.seed, literal=literal)
    for generations in slices(clock, most):
        if evolution.on(generations, least):
            break
    generations, last_change, fitness = evolution.generation, evolution.last_change, evolution.fitness
    notes = {"generations": float(generations), "last_change": float(last_change), "fitness": float(fitness)}
    if not evolution.valid:
        reason = f"no chromosome of '{problem.name}' in {generations:,} generations is valid"
        return failure(problem, "genetic", budget, clock.spent_s, reason, notes=notes)
    return judge(problem, "genetic", devices[evolution.best], budget, clock.spent_s, notes=notes)


class _Evolution:
    """A population that can be left and taken up again."""

    def __init__(self, field: Dense, weights: Floats, seed: int, *, literal: bool) -> None:
        self._field, self._weights, self._literal = field, weights, literal
        self._random = draws(seed)
        columns = field.service.shape[1]
        self._now = np.random.default_rng(seed).integers(0, columns, (POPULATION, len(field.free)))
        self._scratch = scratch(field)
        self.best = field.fixed.copy()
        self.fitness, self.valid, self.last_change, self.generation = np.inf, False, 0, 0

    def on(self, generations: int, least: int) -> bool:
        """Live through so many generations more; say whether it is over before."""
        over, self.fitness, self.valid, self.generation, self.last_change = _evolve(
            self._field,
            self._weights,
            self._random,
            self._literal,
            least,
            self.generation + generations,
            self._now,
            self.best,
            self.fitness,
            self.valid,
            self.generation,
            self.last_change,
            *self._scratch,
        )
        return over


@kernel
def _evolve(
    field: Dense,
    weights: Floats,
    random: Draws,
    literal: bool,
    least: int,
    until_generation: int,
    population: Ints,
    best: Ints,
    best_fitness: float,
    valid: bool,
    generation: int,
    last_change: int,
    sums: Floats,
    until: Floats,
) -> tuple[bool, float, bool, int, int]:
    """Evolve a population, kept in place, up to a generation or until the best has stood long enough."""
    genes, columns = population.shape[1], field.service.shape[1]
    now, after = population.copy(), np.zeros((POPULATION, genes), np.int64)
    fitness, wheel, outs = np.zeros(POPULATION), np.zeros(POPULATION), np.zeros((POPULATION, OUT))
    mates = np.zeros(POPULATION, np.int64)
    places = np.zeros((POPULATION, len(field.fixed)), np.int64)
    over = False
    for j in range(POPULATION):
        places[j] = field.fixed
    while generation < until_generation:
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
                best_fitness, valid, last_change = fitness[j], outs[j, 6] == 0, generation
                best[:] = places[j]
        generation += 1
        if genes == 0 or (generation >= least and last_change <= generation // 2):
            over = True
            break
        total = 0.0
        for j in range(POPULATION):
            total += fitness[j] if literal else 1 / fitness[j]
            wheel[j] = total
        for j in range(POPULATION):
            parent = min(int(np.searchsorted(wheel, draw(random) * total)), POPULATION - 1)
            after[j] = now[parent]
        _cross(after, mates, random)
        _mutate(after, columns, random)
        now, after = after, now
    population[:] = now
    return over, best_fitness, valid, generation, last_change


@kernel
def _mutate(population: Ints, columns: int, random: Draws) -> None:
    """Redraw each gene with a fixed chance; the gaps between hits are drawn, not every gene."""
    genes = population.reshape(-1)
    gene = -1
    while True:
        gene += 1 + int(np.log(1 - draw(random)) / np.log(1 - MUTATION))
        if gene >= len(genes):
            return
        genes[np.uint64(gene)] = int(draw(random) * columns)


@kernel
def _cross(population: Ints, mates: Ints, random: Draws) -> None:
    """Pair those that join at random and exchange their first genes."""
    count = 0
    for j in range(len(population)):
        if draw(random) < CROSSOVER:
            mates[count] = j
            count += 1
    for last in range(count - 1, 0, -1):  # a shuffle
        other = int(draw(random) * (last + 1))
        mates[last], mates[other] = mates[other], mates[last]
    for pair in range(count // 2):
        a, b = mates[2 * pair], mates[2 * pair + 1]
        one, other = population[a], population[b]
        for gene in range(int(draw(random) * population.shape[1]) + 1):
            one[gene], other[gene] = other[gene], one[gene]
