"""The answer of a strategy: a device for every step, what it is worth, and how sure that is."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from headwater.net.arrays import Ints
from headwater.place.lower_bound import fixed_part
from headwater.place.objective import Objective, usual
from headwater.place.problem import Problem
from headwater.place.routes import no_route
from headwater.place.score import Score, score
from headwater.place.verify import violations


@dataclass(frozen=True, slots=True)
class Budget:
    """How long a strategy may search, for what, and with which seed."""

    time_s: float = 10.0
    gap: float = 0.0
    """Stop when value and bound are this close, relative to what a placement can change."""
    seed: int = 0
    objective: Objective | None = None
    """None takes the objective of the problem's model."""

    def goal(self, problem: Problem) -> Objective:
        """The objective for a problem."""
        return self.objective or usual(problem)


def moves(budget: Budget) -> int:
    """How many moves a search before a proof may make: by the time limit, not the clock, so that answers repeat."""
    return int(100_000 * min(1.0, max(0.05, budget.time_s / 2)))


@dataclass(frozen=True, eq=False)
class Placement:
    """What a strategy found. `device` is None when it found nothing valid."""

    problem: Problem
    strategy: str
    objective: Objective
    status: str
    """optimal (proven), feasible, or infeasible (see `proven`)."""
    device: Ints | None
    value: float
    bound: float
    seconds: float
    proven: bool = False
    """Whether `status` is certain: an optimum, or that no placement exists."""
    reason: str = ""
    notes: Mapping[str, float] = field(default_factory=dict)
    trace: tuple[tuple[float, float], ...] = ()
    """(seconds, value) at every improvement."""

    @property
    def gap(self) -> float:
        """How far the value can be from the optimum, relative to what a placement can change: windows are left out."""
        if self.status == "optimal" or self.value == self.bound:
            return 0.0
        if self.device is None or not math.isfinite(self.value) or not self.movable > 0:
            return math.inf
        return min(1.0, (self.value - self.bound) / self.movable)

    @property
    def movable(self) -> float:
        """The part of the value that depends on where steps run; windows fill at their own pace."""
        return self.value - fixed_part(self.problem, self.objective)

    @property
    def score(self) -> Score:
        """Every measure of the placement."""
        assert self.device is not None, self.reason
        return score(self.problem, self.device)

    @property
    def by_name(self) -> dict[str, str]:
        """Step → device, by name."""
        if self.device is None:
            return {}
        net = self.problem.net
        return {s: net.device_name(int(d)) for s, d in zip(self.problem.steps, self.device, strict=True)}


class Clock:
    """Counts the seconds of one search."""

    def __init__(self, budget: Budget) -> None:
        self._start = time.perf_counter()
        self._limit_s = budget.time_s

    @property
    def spent_s(self) -> float:
        """Seconds since the search began."""
        return time.perf_counter() - self._start

    def allow(self, seconds: float) -> None:
        """Let the search last longer."""
        self._limit_s += seconds

    @property
    def left_s(self) -> float:
        """Seconds that remain, at least 0."""
        return max(0.0, self._limit_s - self.spent_s)


_SLICE_S = 0.02
"""About how long a compiled search runs before it looks at the clock."""


def slices(clock: Clock, total: int) -> Iterator[int]:
    """Cut `total` rounds of a search into runs short enough that the time limit is kept; there are always some.

    The rounds are the same however they are cut, so that an answer depends on the clock only where it was stopped by it. The
    first one stands apart: a search that was never run here is compiled then, which is not time that was searched.
    """
    before_s = clock.spent_s
    if total > 0:
        yield 1
        clock.allow(clock.spent_s - before_s)
    done, size = 1, 64
    while done < total:
        size, before_s = min(size, total - done), clock.spent_s
        yield size
        done += size
        if clock.left_s == 0:
            return
        took_s = clock.spent_s - before_s
        size = 2 * size if took_s < _SLICE_S else max(1, int(size * _SLICE_S / took_s))


def judge(
    problem: Problem,
    strategy: str,
    device: Sequence[int] | Ints,
    budget: Budget,
    seconds: float,
    *,
    bound: float = 0.0,
    optimal: bool = False,
    notes: Mapping[str, float] | None = None,
    trace: tuple[tuple[float, float], ...] = (),
) -> Placement:
    """Make a placement of a strategy's choice; the verifier decides whether it counts."""
    goal, devices = budget.goal(problem), np.asarray(device, np.int64)
    broken = violations(problem, devices.tolist())
    if broken:
        return failure(problem, strategy, budget, seconds, str(broken[0]), notes=notes)
    value = goal.value(score(problem, devices))
    return Placement(
        problem=problem,
        strategy=strategy,
        objective=goal,
        status="optimal" if optimal else "feasible",
        device=devices,
        value=value,
        bound=value if optimal else bound,
        seconds=seconds,
        proven=optimal,
        notes=notes or {},
        trace=trace,
    )


def failure(
    problem: Problem,
    strategy: str,
    budget: Budget,
    seconds: float,
    reason: str,
    *,
    proven: bool = False,
    notes: Mapping[str, float] | None = None,
) -> Placement:
    """Say that a strategy found nothing; `proven` when nothing exists. Where there is no route, that is reason and proof."""
    apart = no_route(problem)
    reason, proven = apart or reason, proven or apart is not None
    return Placement(
        problem=problem,
        strategy=strategy,
        objective=budget.goal(problem),
        status="infeasible",
        device=None,
        value=math.inf,
        bound=math.inf if proven else 0.0,
        seconds=seconds,
        proven=proven,
        reason=reason,
        notes=notes or {},
    )
