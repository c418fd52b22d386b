"""The optimum as a mixed-integer program, with a bound that holds for the whole net.

Devices that are not listed are stood for by relaxed ones (see `hosts`). The solver's bound therefore holds
for all devices, and an answer that uses no relaxed device is optimal. Shared time is a curve, which the
program touches from below; it is solved again with the curve touched where the last answer lies, until both
agree.
"""

from __future__ import annotations

import math

import numpy as np

from headwater.errors import PlacementError
from headwater.net.arrays import Floats, Ints
from headwater.place.constraint_table import CPU, LIMITS, used_in_all
from headwater.place.hosts import hosts
from headwater.place.lower_bound import fixed_part
from headwater.place.placement import Budget, Clock, Placement, failure, judge
from headwater.place.problem import Problem
from headwater.place.program import Program
from headwater.place.score import score
from headwater.place.verify import violations


def solvable(problem: Problem) -> bool:
    """Whether the model covers a problem: latencies must come from the net."""
    return problem.hop_s is None


def solve(problem: Problem, budget: Budget | None = None, *, hint: Placement | None = None) -> Placement:
    """Find the best placement on the listed devices and bound what any other could reach, within the time limit."""
    budget = budget or Budget(time_s=60.0)
    if not solvable(problem):
        raise PlacementError(f"'{problem.name}' has times per stream; use strategy 'exact' to pick a fitting proof")
    clock, tangents, bound = Clock(budget), set[float](), 0.0
    best = hint if _value(problem, budget, hint) < math.inf else None
    all_hosts = hosts(problem, best.device if best is not None else None)
    notes = {"devices": float(len(all_hosts.device))}
    while clock.left_s > 0:
        cutoff = _value(problem, budget, best)
        try:
            program = Program(problem, budget, all_hosts, tangents, clock)
        except TimeoutError:  # there is no time left to solve what takes so long to write down
            break
        status, device, lower = program.run(clock.left_s, cutoff)
        if status == "infeasible":
            if best is None:
                reason = f"'{problem.name}' is proven to have no valid placement"
                return failure(problem, "exact", budget, clock.spent_s, reason, proven=True, notes=notes)
            bound = cutoff  # nothing is better than what we have
            break
        bound = max(bound, lower)
        if device is not None and (device < 0).any():  # the bound stands, the answer does not: look among real devices
            try:
                program = Program(problem, budget, all_hosts.real(), tangents, clock)
            except TimeoutError:
                break
            _, device, _ = program.run(clock.left_s, cutoff)
        before, best = best, _better(problem, budget, best, device)
        if device is None or not problem.shares_processor or _is_closed(problem, budget, best, bound):
            break
        more = set(np.round(utilisation(problem, device), 12).tolist()) - tangents
        if not more and best is before:
            break
        tangents |= more
    if best is None or best.device is None:
        return failure(
            problem, "exact", budget, clock.spent_s, f"'{problem.name}' was not decided in time", notes=notes
        )
    optimal = _is_closed(problem, budget, best, bound)
    return judge(problem, "exact", best.device, budget, clock.spent_s, bound=bound, optimal=optimal, notes=notes)


def _better(problem: Problem, budget: Budget, best: Placement | None, device: Ints | None) -> Placement | None:
    if device is None:
        return best
    answer = judge(problem, "exact", device, budget, 0.0)
    worse = answer.device is None or (best is not None and _value(problem, budget, best) <= answer.value)
    return best if worse else answer


def _is_closed(problem: Problem, budget: Budget, best: Placement | None, bound: float) -> bool:
    value = _value(problem, budget, best)
    movable = value - fixed_part(problem, budget.goal(problem))
    return value < math.inf and value - bound <= max(budget.gap * movable, 1e-6 * abs(movable), 1e-9 * abs(value))


def utilisation(problem: Problem, device: Ints) -> Floats:
    """How busy the device of each step is, below 1."""
    hosts, total = used_in_all(problem, device)
    return np.asarray(np.minimum(total[LIMITS.index(CPU)], 0.999)[np.searchsorted(hosts, device)])


def _value(problem: Problem, budget: Budget, placement: Placement | None) -> float:
    """What a known placement is worth under this objective; infinite if it does not count here."""
    if placement is None or placement.device is None or violations(problem, placement.device.tolist()):
        return math.inf
    return budget.goal(problem).value(score(problem, placement.device))
