"""The loop that greedy strategies share: step by step, each where a rule says, never taken back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headwater.place.capacity import Capacity
from headwater.place.placement import Budget, Clock, Placement, failure, judge
from headwater.place.problem import Problem
from headwater.place.why_not import why_not

Rule = Callable[[Capacity, int], int | None]
"""Names the row for a free step, or None when nothing fits."""


def grow(
    problem: Problem,
    strategy: str,
    budget: Budget,
    rule: Rule,
    *,
    order: Sequence[int] | None = None,
    pins_first: bool = False,
) -> Placement:
    """Place the steps in order, pinned ones where they are pinned, the others by the rule.

    Papers place a pinned sink when its turn comes and never look at its link; the verifier does. With
    `pins_first` all pinned steps are on the capacity from the start, so that the rule sees them.
    """
    clock, capacity, rows = Clock(budget), Capacity(problem), 0
    sequence = problem.order if order is None else order
    if pins_first:
        sequence = sorted(sequence, key=lambda step: problem.pinned[step] < 0)
    for step in sequence:
        pin = int(problem.pinned[step])
        row = capacity.row(pin) if pin >= 0 else rule(capacity, step)
        if row is None:
            reason = why_not(capacity, step)
            return failure(problem, strategy, budget, clock.spent_s, reason, notes={"rows": rows})
        rows += capacity.rows if pin < 0 else 0
        capacity.put(step, row)
    spent_s = clock.spent_s  # the judge's time is not the strategy's
    return judge(problem, strategy, capacity.devices(), budget, spent_s, notes={"rows": rows})
