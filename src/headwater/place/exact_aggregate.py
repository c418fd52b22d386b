"""The optimum under queue time as a mixed-integer program, with a bound that holds for the whole net.

Devices that are not listed are stood for by relaxed ones (see `seats`). The solver's bound therefore holds
for all devices, and an answer that uses no relaxed device is optimal.
"""

from __future__ import annotations

import math

from headwater.errors import PlacementError
from headwater.place.placement import Budget, Clock, Placement, failed, judged
from headwater.place.problem import Model, Problem
from headwater.place.program import Program
from headwater.place.score import score
from headwater.place.seats import seats
from headwater.place.verify import violations


def solvable(problem: Problem) -> bool:
    """Whether the model covers a problem: time on a device must not depend on its other steps."""
    return problem.model is Model.QUEUE and problem.hop_s is None


def solve(problem: Problem, budget: Budget | None = None, *, hint: Placement | None = None) -> Placement:
    """Find the best placement on the listed devices and bound what any other could reach."""
    budget = budget or Budget(time_s=60.0)
    if not solvable(problem):
        raise PlacementError(f"'{problem.name}' does not have queue time; use strategy 'exact' to pick a fitting proof")
    clock = Clock(budget)
    cutoff = _value(problem, budget, hint)
    listed = seats(problem, hint.device if hint is not None else None)
    status, device, bound = Program(problem, budget, listed).run(clock.left_s, cutoff)
    notes = {"devices": float(len(listed.device))}
    if status == "infeasible" and cutoff == math.inf:
        reason = f"'{problem.name}' is proven to have no valid placement"
        return failed(problem, "exact", budget, clock.spent_s, reason, proven=True, notes=notes)
    relaxed = device is not None and bool((device < 0).any())
    if relaxed:  # the bound stands, the answer does not: look again among real devices
        real = listed.real()
        again, device, _ = Program(problem, budget, real).run(clock.left_s, cutoff)
        status = "feasible" if again in ("optimal", "feasible") else again
    if device is None and hint is not None and cutoff < math.inf:
        device = hint.device
        bound = cutoff if status == "infeasible" and not relaxed else bound
    if device is None:
        return failed(problem, "exact", budget, clock.spent_s, f"'{problem.name}' was not decided in time", notes=notes)
    found = judged(problem, "exact", device, budget, clock.spent_s, bound=bound, notes=notes)
    if found.device is not None and found.value - bound <= max(budget.gap, 1e-6) * abs(found.value):
        return judged(problem, "exact", device, budget, clock.spent_s, optimal=True, notes=notes)
    return found


def _value(problem: Problem, budget: Budget, hint: Placement | None) -> float:
    """What a known placement is worth under this objective; infinite if it does not count here."""
    if hint is None or hint.device is None or violations(problem, hint.device.tolist()):
        return math.inf
    return budget.goal(problem).value(score(problem, hint.device))
