"""Why nothing fits: the steps that conflict, and the smallest relaxation found that lets them be placed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from headwater.place import best
from headwater.place.capacity import Capacity
from headwater.place.constraint_table import LIMITS
from headwater.place.copies import with_copies
from headwater.place.placement import Budget, Clock
from headwater.place.problem import Problem
from headwater.place.routes import no_route
from headwater.place.why_not import why_not

FINE = 0.005
"""How closely a relaxation's size is searched."""
_BUSIEST = 2
"""How many steps are tried in several copies."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What stands in the way of a placement."""

    steps: tuple[str, ...]
    """Steps that cannot be placed even if all others cost nothing; none may be left out of the set."""
    reasons: tuple[str, ...]
    relaxations: tuple[str, ...]
    """Single changes that make a placement possible, as small as they were found."""


def explain(problem: Problem, budget: Budget | None = None) -> Explanation:
    """Explain why a problem has no placement; looks for about the budget's time."""
    budget = budget or Budget(time_s=20.0)
    clock = Clock(budget)
    probe = dataclasses.replace(budget, time_s=max(budget.time_s / 20, 0.3))

    def fits(variant: Problem) -> bool:
        return _any(variant, probe)

    capacity = Capacity(problem)
    apart = no_route(problem)
    alone = [apart] if apart else []
    alone += [
        why_not(capacity, step)
        for step in np.flatnonzero(problem.pinned < 0).tolist()
        if not capacity.feasible(step).any()
    ]
    relaxations = [text for find in RELAXATIONS if clock.left_s > 0 for text in find(problem, fits)]
    steps = _conflict(problem, fits, clock)
    return Explanation(steps, tuple(alone), tuple(relaxations))


def _any(problem: Problem, budget: Budget) -> bool:
    """Whether any valid placement is found; the first will do."""
    from headwater.place import exact_aggregate, exact_latency

    if best.quick(problem, budget) is not None:
        return True
    first = dataclasses.replace(budget, gap=1.0)
    if exact_latency.solvable(problem, first):
        return exact_latency.solve(problem, first).device is not None
    if exact_aggregate.solvable(problem):
        return exact_aggregate.solve(problem, first).device is not None
    return best.solve(problem, first).device is not None


def _conflict(problem: Problem, fits: Callable[[Problem], bool], clock: Clock) -> tuple[str, ...]:
    """Take steps' cost away one by one; those without which all would fit remain."""
    free = set(range(len(problem.steps)))
    weightless: set[int] = set()
    for step in sorted(free, key=lambda i: float(problem.load[i].min())):
        if clock.left_s == 0:
            break
        if problem.solid[step] and not fits(_without_cost(problem, weightless | {step})):
            weightless.add(step)
    if clock.left_s == 0:
        return ()
    return tuple(problem.steps[i] for i in sorted(free - weightless) if problem.solid[i])


def _without_cost(problem: Problem, steps: set[int]) -> Problem:
    names = ("service_s", "overhead_s", "memory_bytes", "charge_mas")
    costs = {name: getattr(problem, name).copy() for name in names}
    for values in costs.values():
        values[sorted(steps)] = 0.0
    return dataclasses.replace(problem, **costs)


def slower(problem: Problem, factor: float) -> Problem:
    """The problem with all rates multiplied by a factor; windows of so many records fill the later, or sooner."""
    return dataclasses.replace(
        problem,
        rate_hz=problem.rate_hz * factor,
        stream_hz=problem.stream_hz * factor,
        window_s=np.where(problem.window_records > 0, problem.window_s / factor, problem.window_s),
    )


def _lower_rates(problem: Problem, fits: Callable[[Problem], bool]) -> list[str]:
    factor = _largest(lambda f: fits(slower(problem, f)))
    return [] if factor is None else [f"rates lowered by {100 * (1 - factor):.1f} %"]


def _stronger(field: str, words: str) -> Callable[[Problem, Callable[[Problem], bool]], list[str]]:
    def find(problem: Problem, fits: Callable[[Problem], bool]) -> list[str]:
        def boost(shrink: float) -> Problem:
            classes = tuple(dataclasses.replace(c, **{field: getattr(c, field) / shrink}) for c in problem.net.classes)
            return dataclasses.replace(problem, net=dataclasses.replace(problem.net, classes=classes))

        factor = _largest(lambda f: fits(boost(f)))
        return [] if factor is None else [f"{100 * (1 / factor - 1):.1f} % more {words} on every device"]

    return find


def _faster(problem: Problem, fits: Callable[[Problem], bool]) -> list[str]:
    def quick(shrink: float) -> Problem:
        return dataclasses.replace(
            problem, service_s=problem.service_s * shrink, overhead_s=problem.overhead_s * shrink
        )

    factor = _largest(lambda f: fits(quick(f)))
    return [] if factor is None else [f"processors {100 * (1 / factor - 1):.1f} % faster"]


def _drop(problem: Problem, fits: Callable[[Problem], bool]) -> list[str]:
    """Leave out one constraint at a time."""
    out = []
    for i in np.flatnonzero(problem.pinned >= 0).tolist():
        if problem.inputs[i]:  # a source is where its sensor is
            pinned = problem.pinned.copy()
            pinned[i] = -1
            if fits(dataclasses.replace(problem, pinned=pinned)):
                out.append(f"step '{problem.steps[i]}' not pinned")
    for group in problem.together:
        if fits(dataclasses.replace(problem, together=tuple(g for g in problem.together if g != group))):
            out.append("steps " + ", ".join(f"'{problem.steps[i]}'" for i in group) + " not held together")
    if problem.zone_allowed is not None and fits(dataclasses.replace(problem, zone_allowed=None)):
        out.append("streams allowed to leave their trust zone")
    return out


def _copies(problem: Problem, fits: Callable[[Problem], bool]) -> list[str]:
    """Share the busiest steps out to several devices, one step at a time."""
    load = problem.load.min(axis=1)
    alone = {i for group in problem.together for i in group} | set(np.flatnonzero(problem.pinned >= 0).tolist())
    free = [i for i in np.argsort(-load).tolist() if i not in alone and problem.solid[i]]
    for step in free[:_BUSIEST]:
        for count in (2, 4):
            if fits(with_copies(problem, problem.steps[step], count)):
                return [f"step '{problem.steps[step]}' in {count} copies"]
    return []


def _later(problem: Problem, fits: Callable[[Problem], bool]) -> list[str]:
    """Loosen one target at a time."""
    out = []
    for at, (level, limit) in enumerate(problem.at_most):

        def loose(shrink: float, at: int = at, limit: float = limit) -> Problem:
            targets = list(problem.at_most)
            targets[at] = (targets[at][0], limit / shrink)
            return dataclasses.replace(problem, at_most=tuple(targets))

        factor = _largest(lambda f, loose=loose: fits(loose(f)))  # type: ignore[misc]  # bound per round
        if factor is not None:
            out.append(f"a target for {level[0][0]} of {limit / factor:.4g} instead of {limit:.4g}")
    return out


def _largest(works: Callable[[float], bool]) -> float | None:
    """The largest factor below 1 that works, within `FINE`; None if not even a hundredth does."""
    low, high = 0.01, 1.0
    if not works(low):
        return None
    while high - low > FINE * high:
        middle = (low + high) / 2 if low > 0.5 else (low * high) ** 0.5
        low, high = (middle, high) if works(middle) else (low, middle)
    return low


RELAXATIONS = (
    _drop,
    _copies,
    _later,
    _lower_rates,
    _faster,
    *(_stronger(*limit.relaxation) for limit in LIMITS if limit.relaxation),
)
