"""TCEP: each step on the middle device of the ranking by free processor (after Taneja and Davy)."""

from __future__ import annotations

import numpy as np

from headwater.net.nearest import nearest
from headwater.place.capacity import Capacity
from headwater.place.greedy import grow
from headwater.place.placement import Budget, Placement
from headwater.place.problem import Problem


def solve(problem: Problem, budget: Budget | None = None) -> Placement:
    """Place steps by falling demand; where the middle device does not fit, on the first cloud that does."""
    demand = np.where(np.isfinite(problem.load), problem.load, 0).max(axis=1)
    pinned = np.flatnonzero(problem.pinned >= 0)
    free = np.flatnonzero(problem.pinned < 0)
    falling = free[np.argsort(-demand[free], kind="stable")]
    order = [*pinned.tolist(), *falling.tolist()]
    return grow(problem, "tcep", budget or Budget(), middle_or_cloud, order=order)


def middle_or_cloud(capacity: Capacity, step: int) -> int | None:
    """The row of the middle device, or else of the first fitting cloud."""
    row = capacity.row(middle(capacity))
    fits = capacity.feasible(step)
    if fits[row]:
        return row
    clouds = np.flatnonzero(fits & capacity.problem.net.is_cloud[capacity.kind])
    return int(clouds[np.argmin(capacity.device[clouds])]) if len(clouds) else None


def middle(capacity: Capacity) -> int:
    """The device in the middle of all, ranked by free instructions per second, equals by number.

    Devices without load come in blocks of one class, so the ranking is counted, not sorted.
    """
    net, used = capacity.problem.net, capacity.device[capacity.groups :]
    speed = np.array([c.cpu_ips for c in net.classes])
    free = speed[net.class_of[used]] * (1 - capacity.busy[capacity.groups :])
    place, untouched = len(net) // 2, {}
    for kind in range(len(net.classes)):
        untouched[kind] = len(nearest(net).of_kind(kind)) - int((net.class_of[used] == kind).sum())
    values = sorted({*free.tolist(), *speed.tolist()})
    for value in values:
        at_value = used[free == value]
        kinds = [k for k in untouched if speed[k] == value]
        count = len(at_value) + sum(untouched[k] for k in kinds)
        if place < count:
            return _nth(capacity, place, at_value.tolist(), kinds)
        place -= count
    raise AssertionError("the middle of a non-empty ranking exists")


def _nth(capacity: Capacity, place: int, used: list[int], kinds: list[int]) -> int:
    """The device at `place`, by number, among used ones of a value and all untouched ones of some classes."""
    index, in_use = nearest(capacity.problem.net), np.sort(capacity.device[capacity.groups :])
    low, high = 0, len(capacity.problem.net) - 1
    while low < high:  # how many of the asked-for devices have a number of at most `middle`?
        guess = (low + high) // 2
        count = sum(device <= guess for device in used)
        for kind in kinds:
            of_class = in_use[capacity.problem.net.class_of[in_use] == kind]
            count += int(np.searchsorted(index.of_kind(kind), guess, side="right"))
            count -= int(np.searchsorted(of_class, guess, side="right"))
        low, high = (low, guess) if count > place else (guess + 1, high)
    return low
