"""Several flows on one net, each placed on what the others leave."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from headwater.errors import PlacementError, listed
from headwater.net.arrays import Ints
from headwater.net.net import Net
from headwater.place import best
from headwater.place.placement import Budget, Placement
from headwater.place.problem import Problem, Taken
from headwater.place.repair import repair


class Fleet:
    """The flows that share a net: add, remove, and mend them after a loss."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self.placed: dict[str, Placement] = {}
        self._closed: frozenset[int] = frozenset()

    def add(
        self, problem: Problem, budget: Budget | None = None, solve: Callable[..., Placement] = best.solve
    ) -> Placement:
        """Place one more flow; a flow that does not fit is not added, and its placement says why."""
        if problem.name in self.placed:
            raise PlacementError(f"flow '{problem.name}' is placed already; remove it first")
        if problem.net is not self.net:
            raise PlacementError(f"flow '{problem.name}' is for net '{problem.net.name}', not '{self.net.name}'")
        found = solve(self._left(problem), budget)
        if found.device is not None:
            self.placed[problem.name] = found
        return found

    def remove(self, name: str) -> None:
        """Take a flow off the net."""
        if name not in self.placed:
            raise PlacementError(f"no flow '{name}' is placed; placed are {listed(self.placed)}")
        del self.placed[name]

    def lose(self, device: str, budget: Budget | None = None) -> dict[str, Placement]:
        """Close a device and mend every flow that used it; return the mended placements."""
        number = self.net.device(device)
        self._closed |= {number}
        mended = {}
        for name, old in list(self.placed.items()):
            if old.device is not None and number in old.device.tolist():
                del self.placed[name]
                found = repair(self._left(old.problem), old.device, budget)
                mended[name] = found
                if found.device is not None:
                    self.placed[name] = found
        return mended

    def taken(self) -> dict[int, Taken]:
        """What all placed flows use, by device."""
        total: dict[int, Taken] = {}
        for placement in self.placed.values():
            if placement.device is not None:
                for device, use in uses(placement.problem, placement.device).items():
                    total[device] = total.get(device, Taken()).plus(use)
        return total

    def _left(self, problem: Problem) -> Problem:
        return dataclasses.replace(problem, taken=self.taken(), closed=problem.closed | self._closed)


def uses(problem: Problem, device: Ints) -> dict[int, Taken]:
    """What a placed flow uses of every device, other flows left out."""
    net, out = problem.net, {}
    for d in np.unique(device).tolist():
        kind, steps = net.classes[int(net.class_of[d])], np.flatnonzero(device == d)
        outside = (device[problem.stream_from] == d) != (device[problem.stream_to] == d)
        service = problem.service_s[steps, net.class_of[d]]
        charge = float((problem.rate_hz[steps] * problem.charge_mas[steps, net.class_of[d]]).sum())
        radio = float((problem.stream_hz * problem.stream_bytes)[outside].sum()) * kind.radio_mas_per_byte
        out[d] = Taken(
            utilisation=float((problem.rate_hz[steps] * service).sum()),
            memory_bytes=float(problem.memory_bytes[steps].sum()),
            access_bps=float(problem.stream_bps[outside].sum()),
            draw_ma=charge + radio,
        )
    return out
