"""Several flows on one net, each placed on what the others leave, and all of them checked together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from headwater.errors import PlacementError, listed
from headwater.net.arrays import Ints
from headwater.net.net import Net
from headwater.place import best
from headwater.place.constraint_table import LIMITS, usage
from headwater.place.placement import Budget, Placement, failure
from headwater.place.problem import NOTHING_TAKEN, DeviceUse, Problem
from headwater.place.repair import repair
from headwater.place.score import score
from headwater.place.verify import Violation, violations


class Fleet:
    """The flows that share a net: add, remove, and mend them after a loss.

    `placements` has each flow as it is now: its problem knows what the others take, and its value counts that in.
    """

    def __init__(self, net: Net) -> None:
        self.net = net
        self.placements: dict[str, Placement] = {}
        self._closed: frozenset[int] = frozenset()

    def add(
        self, problem: Problem, budget: Budget | None = None, solve: Callable[..., Placement] = best.solve
    ) -> Placement:
        """Place one more flow; a flow that does not fit, or would break another's limits, is not added and says why."""
        if problem.name in self.placements:
            raise PlacementError(f"flow '{problem.name}' is placed already; remove it first")
        if problem.net is not self.net:
            raise PlacementError(f"flow '{problem.name}' is for net '{problem.net.name}', not '{self.net.name}'")
        return self._settle(problem, budget or Budget(), lambda restricted: solve(restricted, budget))

    def remove(self, name: str) -> None:
        """Take a flow off the net."""
        if name not in self.placements:
            raise PlacementError(f"no flow '{name}' is placed; placed are {listed(self.placements)}")
        del self.placements[name]
        self._refresh()

    def lose(self, device: str, budget: Budget | None = None) -> dict[str, Placement]:
        """Close a device and mend every flow that used it; return the mended placements."""
        number = self.net.device(device)
        self._closed |= {number}
        affected = {n: p for n, p in self.placements.items() if p.device is not None and number in p.device.tolist()}
        for name in affected:
            del self.placements[name]
        return {name: self._mend(old, budget) for name, old in affected.items()}

    def _mend(self, old: Placement, budget: Budget | None) -> Placement:
        before = old.device
        assert before is not None
        problem = dataclasses.replace(old.problem, closed=old.problem.closed - self._closed)
        return self._settle(problem, budget or Budget(), lambda restricted: repair(restricted, before, budget))

    def violations(self) -> dict[str, list[Violation]]:
        """Every limit that a flow breaks, all flows on the net together; empty lists when all is well."""
        return {
            name: violations(p.problem, p.device.tolist())
            for name, p in self.placements.items()
            if p.device is not None
        }

    def device_use(self, *, but: str | None = None) -> dict[int, DeviceUse]:
        """What all placed flows use, by device; `but` leaves one out."""
        total: dict[int, DeviceUse] = {}
        for name, placement in self.placements.items():
            if placement.device is not None and name != but:
                for device, use in uses(placement.problem, placement.device).items():
                    total[device] = total.get(device, NOTHING_TAKEN).plus(use)
        return total

    def _settle(self, problem: Problem, budget: Budget, solve: Callable[[Problem], Placement]) -> Placement:
        """Place a flow so that no other breaks: where one would, its devices count as full for the newcomer."""
        restricted, full = self._restricted(problem), set[int]()
        first = answer = solve(restricted)
        while answer.device is not None:
            broken = self._with(problem.name, answer)
            if broken is None:
                return self._accept(problem.name, first, answer)
            other, slip = broken
            more = (
                _workplaces(problem, answer.device) & _workplaces(self.placements[other].problem, self._where(other))
            ) - full
            reason = f"flow '{problem.name}' would break flow '{other}': {slip}"
            if more:
                full |= more
                full_use = {d: dataclasses.replace(restricted.taken[d], utilisation=1.0) for d in full}
                answer = solve(dataclasses.replace(restricted, taken={**restricted.taken, **full_use}))
            if not more or answer.device is None:
                return failure(first.problem, first.strategy, budget, answer.seconds, reason)
        return answer

    def _where(self, name: str) -> Ints:
        device = self.placements[name].device
        assert device is not None
        return device

    def _with(self, name: str, newcomer: Placement) -> tuple[str, Violation] | None:
        """The first limit of another flow that a newcomer would break; None if all keep theirs."""
        before = self.placements
        self.placements = before | {name: newcomer}
        self._refresh()
        broken = next(((flow, each[0]) for flow, each in self.violations().items() if each), None)
        self.placements = before
        return broken

    def _accept(self, name: str, first: Placement, answer: Placement) -> Placement:
        if answer is not first:  # what was proven of it, was proven with devices counted as full
            answer = dataclasses.replace(
                answer, problem=first.problem, status="feasible", proven=False, bound=min(first.bound, answer.value)
            )
        self.placements[name] = answer
        self._refresh()
        return self.placements[name]

    def _refresh(self) -> None:
        """Let every flow know what the others take now."""
        self.placements = {name: self._now(name, placement) for name, placement in self.placements.items()}

    def _now(self, name: str, placement: Placement) -> Placement:
        assert placement.device is not None
        problem = dataclasses.replace(placement.problem, taken=self.device_use(but=name))
        value = placement.objective.value(score(problem, placement.device))
        if value == placement.value:
            return dataclasses.replace(placement, problem=problem)
        # others came or went: the optimum may be another one now
        bound = min(placement.bound, value)
        return dataclasses.replace(
            placement, problem=problem, value=value, bound=bound, status="feasible", proven=False
        )

    def _restricted(self, problem: Problem) -> Problem:
        return dataclasses.replace(problem, taken=self.device_use(), closed=problem.closed | self._closed)


def _workplaces(problem: Problem, device: Ints) -> set[int]:
    """The devices whose processor a placed flow uses."""
    working = problem.load[np.arange(len(device)), problem.net.class_of[device]] > 0
    return set(device[working].tolist())


def uses(problem: Problem, device: Ints) -> dict[int, DeviceUse]:
    """What a placed flow uses of every device, other flows left out."""
    hosts, total = usage(problem, device)
    out = {}
    for d, row in zip(hosts.tolist(), total.T.tolist(), strict=True):
        steps = np.flatnonzero(device == d)
        step_s = problem.held_s[steps, problem.net.class_of[d]]
        out[d] = DeviceUse(
            **{limit.use_field: use for limit, use in zip(LIMITS, row, strict=True)},
            turn_s=float(step_s.sum()),
            fastest_hz=float(problem.rate_hz[steps][step_s > 0].max(initial=0.0)),
        )
    return out
