"""Re-placement: mend a placement after a loss or a change of rate, with as few moves as possible."""

from __future__ import annotations

import dataclasses

import numpy as np

from headwater.net.arrays import Ints
from headwater.place import best
from headwater.place import constraint_table as table
from headwater.place.capacity import Capacity
from headwater.place.descent import cheapest_between
from headwater.place.placement import Budget, Clock, Placement, judge
from headwater.place.problem import Problem
from headwater.place.verify import violations


def repair(problem: Problem, before: Ints, budget: Budget | None = None, *, spare_moves: int = 0) -> Placement:
    """Place `problem` starting from an older placement; only what must move does, plus up to `spare_moves`.

    First the steps that cannot stay are lifted and put where they do best. If that does not fit, steps on
    overloaded devices follow, cheapest to move first. Only when all of that fails is everything placed
    anew.
    """
    budget = budget or Budget()
    clock = Clock(budget)
    for moving in _widening(problem, before):
        device = _refill(problem, before, moving)
        if device is not None and not violations(problem, device.tolist()):
            device = _improve(problem, device, before, spare_moves)
            moves = float((device != before).sum())
            return judge(problem, "repair", device, budget, clock.spent_s, notes={"moves": moves})
        if clock.left_s == 0:
            break
    replacement = best.solve(problem, dataclasses.replace(budget, time_s=max(clock.left_s, 0.5)))
    moves = float((replacement.device != before).sum()) if replacement.device is not None else 0.0
    return dataclasses.replace(replacement, strategy="repair", notes={"moves": moves}, seconds=clock.spent_s)


def must_move(problem: Problem, before: Ints) -> list[int]:
    """Steps that cannot stay, whatever else moves: where they are is lost, off their pin, not trusted or too slow."""
    devices = table.devices(problem, before)
    return [step for step in range(len(before)) if not table.fits(problem, step, devices)[step]]


def _widening(problem: Problem, before: Ints) -> list[list[int]]:
    """Sets of steps to lift, smallest first: the forced ones, then those of crowded devices."""
    moving = must_move(problem, before)
    sets = [list(moving)]
    crowded = {v.thing for v in violations(problem, before.tolist())}
    names = {s: problem.net.device_name(int(before[i])) for i, s in enumerate(problem.steps)}
    crowded_steps = [
        i
        for i, s in enumerate(problem.steps)
        if problem.pinned[i] < 0 and i not in moving and (names[s] in crowded or s in crowded)
    ]
    cut_off = [
        int(end)
        for e in range(len(problem.stream_from))
        if problem.stream_name(e) in crowded
        for end in (problem.stream_to[e], problem.stream_from[e])
    ]
    for step in (*cut_off, *sorted(crowded_steps, key=lambda i: problem.memory_bytes[i])):
        if problem.pinned[step] < 0 and step not in moving:
            moving.append(step)
            sets.append(list(moving))
            if len(sets) > 2 and step in crowded_steps:
                sets.append([*sets[0], step])  # this one alone may do
    return sorted(sets, key=len)


def _refill(problem: Problem, before: Ints, moving: list[int]) -> Ints | None:
    capacity = Capacity(problem)
    for step in problem.order:
        if step not in moving or problem.pinned[step] >= 0:
            pin = int(problem.pinned[step])
            capacity.put(step, capacity.row(pin if pin >= 0 else int(before[step])))
    for step in problem.order:
        if capacity.at[step] < 0:
            row = cheapest_between(capacity, step)
            if row is None:
                return None
            capacity.put(step, row)
    return capacity.devices()


def _improve(problem: Problem, device: Ints, before: Ints, spare_moves: int) -> Ints:
    """Spend spare moves, each on the single move that gains most."""
    from headwater.place.objective import usual
    from headwater.place.score import score

    goal = usual(problem)
    for _ in range(spare_moves):
        value, best_device = goal.value(score(problem, device)), None
        for step in np.flatnonzero((problem.pinned < 0) & (device == before)).tolist():
            capacity = Capacity(problem)
            for other in problem.order:
                if other != step:
                    capacity.put(other, capacity.row(int(device[other])))
            row = cheapest_between(capacity, step)
            if row is not None:
                variant = device.copy()
                variant[step] = capacity.device[row]
                worth = goal.value(score(problem, variant))
                if worth < value * (1 - 1e-9) and not violations(problem, variant.tolist()):
                    value, best_device = worth, variant
        if best_device is None:
            break
        device = best_device
    return device
