"""Why each step is where it is: what the next best device would cost, and what forbids the better ones.

One step is moved at a time (with those that must share its device), all others stay. So this explains a placement; it does
not prove it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headwater.net.arrays import Ints
from headwater.place.candidates import candidates
from headwater.place.placement import Placement
from headwater.place.problem import Problem
from headwater.place.score import score
from headwater.place.verify import violations

MOST = 256
"""Other devices that are tried for a step, the nearest first."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Another device for a step, and what the whole placement would then be worth."""

    device: str
    value: float
    worse_by: float
    because: str = ""
    """The first constraint that forbids it; empty if it is allowed."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why one step is where it is."""

    step: str
    device: str
    pinned: bool
    next_best: Elsewhere | None
    """The best of the other devices that are allowed; None if there is none."""
    forbidden: tuple[Elsewhere, ...]
    """For each kind of constraint, the best device that would be better but is forbidden by it."""
    tried: int


def why(placement: Placement, *, most: int = MOST) -> list[Reason]:
    """Explain a placement step by step, in the order of the problem."""
    assert placement.device is not None, placement.reason
    devices = candidates(placement.problem)
    return [_reason(placement, step, devices, most) for step in range(len(placement.problem.steps))]


def _reason(placement: Placement, step: int, devices: Ints, most: int) -> Reason:
    problem, goal, at = placement.problem, placement.objective, placement.device
    assert at is not None
    name, here = problem.steps[step], problem.net.device_name(int(at[step]))
    if problem.pinned[step] >= 0:
        return Reason(name, here, pinned=True, next_best=None, forbidden=(), tried=0)
    moving = _company(problem, step)
    now = goal.values(score(problem, at))
    allowed: list[tuple[tuple[float, ...], Elsewhere]] = []
    barred: dict[str, tuple[tuple[float, ...], Elsewhere]] = {}
    others = _nearest(problem, int(at[step]), devices, most)
    for other in others:
        variant = at.copy()
        variant[moving] = other
        worth, broken = goal.values(score(problem, variant)), violations(problem, variant.tolist())
        device_name = problem.net.device_name(other)
        if not broken:
            allowed.append((worth, Elsewhere(device_name, worth[0], worth[0] - now[0])))
        elif worth < now and (broken[0].kind not in barred or worth < barred[broken[0].kind][0]):
            barred[broken[0].kind] = worth, Elsewhere(device_name, worth[0], worth[0] - now[0], str(broken[0]))
    best = min(allowed, key=lambda option: option[0], default=None)
    forbidden = tuple(option[1] for option in sorted(barred.values(), key=lambda option: option[0]))
    return Reason(name, here, pinned=False, next_best=best[1] if best else None, forbidden=forbidden, tried=len(others))


def _company(problem: Problem, step: int) -> list[int]:
    """The step and all that must share its device."""
    return sorted({step}.union(*(group for group in problem.together if step in group)))


def _nearest(problem: Problem, here: int, devices: Ints, most: int) -> list[int]:
    others = devices[devices != here]
    away = problem.net.latency_s(np.full(len(others), here), others)
    return [int(d) for d in others[np.argsort(away, kind="stable")[:most]]]


def render_why(reasons: list[dict[str, Any]], objective: str) -> list[str]:
    """Write the reasons as lines; takes them as plain data, as an account has them."""
    width = max(len(row["step"]) for row in reasons)
    lines = [f"why each step is where it is (what {objective} would be if it alone were moved)"]
    for row in reasons:
        head = f"  {row['step']:<{width}} on {row['device']}: "
        if row["pinned"]:
            lines.append(head + "it is pinned there")
            continue
        lines.append(head + _next(row))
        lines += [
            f"  {'':<{width}}   {e['device']} would be better by {-e['worse_by']:.4g}, but {e['because']}"
            for e in row["forbidden"]
        ]
    return lines


def _next(row: dict[str, Any]) -> str:
    best = row["next_best"]
    if best is None:
        return f"none of {row['tried']} other devices is allowed" if row["tried"] else "there is no other device"
    if best["worse_by"] < 0:
        return f"{best['device']} would be better by {-best['worse_by']:.4g}: this placement is not the best"
    if best["worse_by"] == 0:
        return f"{best['device']} would do as well"
    return f"next best is {best['device']}, worse by {best['worse_by']:.4g}"
