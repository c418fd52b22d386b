"""Brute force: every assignment, or every one that differs by more than a swap of equal devices."""

from __future__ import annotations

from math import comb

import numpy as np

from headwater.data.jit import kernel
from headwater.errors import PlacementError
from headwater.net.arrays import Floats, Ints
from headwater.place.candidates import FEW, candidates
from headwater.place.dense import Dense, dense
from headwater.place.fast_score import OUT, evaluate, scratch
from headwater.place.lower_bound import lower_bound
from headwater.place.placement import Budget, Clock, Placement, failure, judge, slices
from headwater.place.problem import Problem
from headwater.place.score import MEASURES

MOST = 300_000_000
"""Assignments that are still tried; beyond, brute force is refused."""


def solve(problem: Problem, budget: Budget | None = None, *, canonical: bool = True) -> Placement:
    """Try every assignment of the free steps and prove the best; `canonical` skips swaps of equal devices.

    The proof holds for the devices searched: the whole net if it is small, else the candidates. When time runs out, the best
    so far is the answer, without a proof.
    """
    budget = budget or Budget()
    clock, devices = Clock(budget), candidates(problem)
    field = dense(problem, devices, budget.goal(problem))
    size = count(field, MOST + 1, canonical)
    if size > MOST:
        raise PlacementError(
            f"brute force over '{problem.name}' would try more than {MOST:,} assignments; use 'exact' instead"
        )
    goal = budget.goal(problem)
    weights = np.array([[goal.weights(level)[m] for m in MEASURES] for level in range(len(goal.levels))])
    walk = _Walk(field, weights, canonical)
    for number in slices(clock, size):
        walk.on(number)
    notes = {"tried": float(walk.tried)}
    whole = len(problem.net) <= FEW and walk.tried == size
    if not np.isfinite(walk.value[0]):
        reason = f"none of {walk.tried:,} assignments of '{problem.name}' is valid"
        return failure(problem, "brute-force", budget, clock.spent_s, reason, proven=whole, notes=notes)
    bound = 0.0 if whole else lower_bound(problem, goal)
    return judge(
        problem, "brute-force", devices[walk.best], budget, clock.spent_s, optimal=whole, bound=bound, notes=notes
    )


def count(field: Dense, limit: int, canonical: bool = True) -> int:
    """How many assignments brute force would try, or `limit` if more; counted, not walked.

    Of n steps on m equal devices, those that differ by more than a swap are the ways to part n things into at most m heaps.
    """
    free = len(field.free)
    if not canonical:
        return int(min(limit, field.service.shape[1] ** free))
    if field.service.shape[1] > 1 and free > limit.bit_length():
        return limit  # two equal devices are enough for 2 ** (free - 1); of a thousand steps, that has 300 digits
    ways = [1] + [0] * free  # of so many of the steps on the devices seen so far
    for size in _families(field):
        heaps = _partings(free, size)
        ways = [sum(comb(n, k) * ways[n - k] * heaps[k] for k in range(n + 1)) for n in range(free + 1)]
    return min(limit, ways[free])


def _families(field: Dense) -> list[int]:
    """How many devices there are of each sort of equals."""
    first, sizes = list[int](), dict[int, int]()
    for column, twin in enumerate(field.twin.tolist()):
        first.append(column if twin < 0 else first[twin])
        sizes[first[column]] = sizes.get(first[column], 0) + 1
    return list(sizes.values())


def _partings(things: int, heaps: int) -> list[int]:
    """For 0, 1, 2 … things, the number of ways to part them into at most so many heaps."""
    row, out = [1] + [0] * heaps, [1]
    for _ in range(things):
        row = [0] + [row[k - 1] + k * row[k] for k in range(1, heaps + 1)]
        out.append(sum(row))
    return out


class _Walk:
    """A walk over all assignments, depth first, that can be stopped and taken up again."""

    def __init__(self, field: Dense, weights: Floats, canonical: bool) -> None:
        self._field, self._weights, self._canonical = field, weights, canonical
        self._place, self._used = field.fixed.copy(), np.zeros(field.service.shape[1], np.int64)
        self._scratch = scratch(field)
        self._depth = 0
        self.best, self.value, self.tried = field.fixed.copy(), np.full(len(weights), np.inf), 0

    def on(self, number: int) -> None:
        """Try so many assignments more."""
        self._depth, tried = _enumerate(
            self._field,
            self._weights,
            self._canonical,
            number,
            self._depth,
            self._place,
            self._used,
            self.best,
            self.value,
            *self._scratch,
        )
        self.tried += tried


@kernel
def _enumerate(
    field: Dense,
    weights: Floats,
    canonical: bool,
    limit: int,
    depth: int,
    place: Ints,
    used: Ints,
    best: Ints,
    best_value: Floats,
    sums: Floats,
    until: Floats,
) -> tuple[int, int]:
    """Walk on to `limit` more assignments; a device opens only after the twin before it. Return where, and how many."""
    free, columns = field.free, field.service.shape[1]
    out, value = np.zeros(OUT), np.zeros(weights.shape[0])
    tried = 0
    while depth >= 0 and tried < limit:
        if depth == len(free):
            tried += 1
            evaluate(field, place, sums, until, out)
            if out[6] == 0 and _better(weights, out, best_value, value):
                best[:] = place
                best_value[:] = value
            depth -= 1
            continue
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
    return depth, tried


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
