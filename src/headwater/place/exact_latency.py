"""The proven optimum for queries on identical edge devices and one cloud machine, by CP-SAT.

No variable names a device: two steps share one or they do not, so equal devices cause no symmetry. Where
every path starts on the edge and ends in the cloud, its number of crossings is odd; a placement in which no
path comes back is therefore optimal if it is faster than three crossings, and only else the general case is
searched.
"""

from __future__ import annotations

import dataclasses
import math
from itertools import combinations
from typing import Any

import numpy as np

from headwater.errors import PlacementError
from headwater.net.arrays import Ints
from headwater.net.net import Net
from headwater.place import constraint_table as table
from headwater.place.lower_bound import lower_bound
from headwater.place.placement import Budget, Clock, Placement, failure, judge
from headwater.place.problem import Model, Problem
from headwater.place.score import score
from headwater.place.verify import violations

NS = 1e9
WORKERS = 2
ROOM = 3.0
"""So many times as long as it takes to write the model down must be left: the solver takes about as long to read it."""


def solvable(problem: Problem, budget: Budget) -> bool:
    """Whether the model covers a problem: equal edge devices and one cloud.

    Limits on links, radio and memory are not in it. A bound, or a proof that nothing fits, holds with them as well; a
    placement that breaks one does not count, which the verifier sees.
    """
    net, goal = problem.net, budget.goal(problem)
    edge = np.flatnonzero(~net.is_cloud[net.class_of]) if len(net) <= 4096 else np.zeros(0, np.int64)
    alike = (
        len(edge) > 0
        and len({(int(net.class_of[d]), int(net.zone_of(int(d))), float(net.lan_s[d])) for d in edge}) == 1
    )
    measures = {m for level in goal.levels for m, _ in level} | {m for level, _ in problem.at_most for m, _ in level}
    return bool(
        problem.model is Model.ROUND_ROBIN
        and alike
        and len(net) - len(edge) == 1
        and not problem.taken
        and np.isfinite(problem.service_s).all()
        and not problem.window_s.any()
        and measures <= {"critical", "devices"}
        and all(len(level) == 1 for level, _ in problem.at_most)
        and (problem.hop_s is not None or _is_connected(net))
    )


def _is_connected(net: Net) -> bool:
    """Whether every device has a link, and a way to every other."""
    ways = net.wan.row(int(net.zone_of(0)))[np.unique(net.zone_of(np.arange(len(net))))]
    return bool((net.access_bps > 0).all() and np.isfinite(ways).all() and np.isfinite(net.lan_s).all())


def solve(problem: Problem, budget: Budget | None = None, *, hint: Ints | None = None) -> Placement:
    """Prove the best placement, or that there is none; within the time limit, else with a bound."""
    budget = budget or Budget(time_s=60.0)
    if not solvable(problem, budget):
        raise PlacementError(
            f"'{problem.name}' is not a case of equal edge devices and one cloud under round-robin time; "
            "use strategy 'exact', which picks a fitting proof"
        )
    clock, original = Clock(budget), problem
    problem = _with_hops(problem)
    answer = _prove(problem, budget, clock, hint)
    if answer.device is None:
        return answer
    broken = violations(original, answer.device.tolist())
    if broken:
        return failure(original, "exact", budget, clock.spent_s, str(broken[0]))
    return dataclasses.replace(answer, problem=original)


def _with_hops(problem: Problem) -> Problem:
    """The problem with seconds per stream in place of the net's latencies, which are the same for all edge devices."""
    if problem.hop_s is not None:
        return problem
    net = problem.net
    cloud = int(np.flatnonzero(net.is_cloud[net.class_of])[0])
    edge = np.flatnonzero(~net.is_cloud[net.class_of])
    bits, hops = problem.stream_bytes * problem.bits_per_byte, []
    for a, b in ((int(edge[0]), int(edge[-1])), (int(edge[0]), cloud)):
        speed = min(net.access_bps[net.class_of[a]], net.access_bps[net.class_of[b]])
        far = net.lan_s[a] + net.lan_s[b] + net.wan.row(int(net.zone_of(a)))[int(net.zone_of(b))]
        hops.append(far + (bits / speed if math.isfinite(speed) else 0.0 * bits))
    free = tuple(
        dataclasses.replace(c, access_bps=math.inf, radio_mas_per_byte=0.0, memory_bytes=math.inf) for c in net.classes
    )
    return dataclasses.replace(problem, hop_s=np.stack(hops, axis=1), net=dataclasses.replace(net, classes=free))


def _prove(problem: Problem, budget: Budget, clock: Clock, hint: Ints | None) -> Placement:
    status, reason = "UNKNOWN", "not decided in time"
    if _odd_crossings(problem) and clock.left_s > ROOM * build_s(problem):
        status, device, bound = _run(problem, budget, clock, hint, monotone=True)
        limit = 3 * problem.hop_s[:, 1].min() if problem.hop_s is not None else 0.0
        if device is not None and _below(problem, device, limit):
            optimal = status == "OPTIMAL"
            return judge(problem, "exact", device, budget, clock.spent_s, optimal=optimal, bound=min(bound, limit))
        hint = device if device is not None else hint
        status = "UNKNOWN"
    if clock.left_s > ROOM * build_s(problem):
        status, device, bound = _run(problem, budget, clock, hint, monotone=False)
        if device is not None:
            return judge(problem, "exact", device, budget, clock.spent_s, optimal=status == "OPTIMAL", bound=bound)
    if status == "INFEASIBLE":
        reason = "proven to have no valid placement"
    elif hint is not None and not violations(problem, hint.tolist()):
        return judge(problem, "exact", hint, budget, clock.spent_s, bound=lower_bound(problem, budget.goal(problem)))
    proven = status == "INFEASIBLE"
    return failure(problem, "exact", budget, clock.spent_s, f"'{problem.name}' is {reason}", proven=proven)


def _run(
    problem: Problem, budget: Budget, clock: Clock, hint: Ints | None, *, monotone: bool
) -> tuple[str, Ints | None, float]:
    """Write the model down and solve it, unless the former takes so long that no time is left for the latter."""
    try:
        model = _Model(problem, budget, until_s=clock.spent_s + clock.left_s / ROOM, clock=clock, monotone=monotone)
    except TimeoutError:
        return "UNKNOWN", None, 0.0
    return model.run(clock.left_s, hint)


def build_s(problem: Problem) -> float:
    """About how long it takes to write the model down: with n steps it has n³ / 2 rules on who shares a device."""
    return 6e-6 * len(problem.steps) ** 3 / 2


def _odd_crossings(problem: Problem) -> bool:
    """Whether every source is pinned to the edge and every sink to the cloud."""
    cloud = problem.net.is_cloud[problem.net.class_of]
    return all(problem.pinned[i] >= 0 and not cloud[problem.pinned[i]] for i in problem.sources) and all(
        problem.pinned[i] >= 0 and cloud[problem.pinned[i]] for i in problem.sinks
    )


def _below(problem: Problem, device: Ints, limit_s: float) -> bool:
    """Whether no detour can compete: the placement, or its target, is below three crossings."""
    targets = [limit for level, limit in problem.at_most if level[0][0] == "critical"]
    return min([score(problem, device).critical, *targets]) < limit_s


class _Model:
    """The constraint model; see the module's docstring."""

    def __init__(self, problem: Problem, budget: Budget, *, until_s: float, clock: Clock, monotone: bool) -> None:
        from ortools.sat.python import cp_model

        self._cp: Any = cp_model
        self.problem, self.budget, self.monotone = problem, budget, monotone
        self._until_s, self._clock = until_s, clock
        self.model = cp_model.CpModel()
        net, n = problem.net, len(problem.steps)
        cloud = net.is_cloud[net.class_of]
        self.vm = int(np.flatnonzero(cloud)[0])
        self.edge_devices = [d for d in np.flatnonzero(~cloud).tolist() if d not in problem.closed]
        edge_kind, vm_kind = int(net.class_of[np.flatnonzero(~cloud)[0]]), int(net.class_of[self.vm])
        self._kinds = edge_kind, vm_kind
        self.pi = [round(problem.service_s[i, edge_kind] * NS) for i in range(n)]
        self.az = [round(problem.service_s[i, vm_kind] * NS) for i in range(n)]
        self.ua = [round(1e3 * use) for use in table.ENERGY.step_use(problem)[:, edge_kind].tolist()]
        kind = net.classes[edge_kind]
        budget_ma = table.ENERGY.most(kind) - table.ENERGY.idle(kind)
        self.budget_ua = math.floor(1e3 * budget_ma) if math.isfinite(budget_ma) else None
        self.pinned_devices = sorted({int(d) for d in problem.pinned if d >= 0 and d != self.vm})
        self._variables(n)
        self._sharing(n)
        self._turns(n)
        self._latency(n)
        self._goal()

    def _variables(self, n: int) -> None:
        problem, model = self.problem, self.model
        self.c = [model.new_bool_var(f"c{i}") for i in range(n)]
        sides = np.array([self.vm, *self.edge_devices[:1]])
        both = table.devices(problem, sides)
        for i in range(n):
            if problem.pinned[i] >= 0:
                model.add(self.c[i] == int(problem.pinned[i] == self.vm))
            # what a device can serve in time follows from turns, and where a step is pinned is said above
            allowed = table.fits(problem, i, both, (table.CLOSED, table.ZONE)).tolist()
            for on_vm, fits in zip((1, 0), allowed, strict=False):
                if not fits:
                    model.add(self.c[i] == 1 - on_vm)

    def _sharing(self, n: int) -> None:
        """`same[u, v]`: on one edge device. Pinned steps share if their pins agree."""
        problem, model = self.problem, self.model
        self.same: dict[tuple[int, int], Any] = {}
        for u, v in combinations(range(n), 2):
            same = model.new_bool_var(f"s{u}_{v}")
            self.same[u, v] = same
            model.add_implication(same, self.c[u].negated())
            model.add_implication(same, self.c[v].negated())
            if problem.pinned[u] >= 0 and problem.pinned[v] >= 0:
                model.add(same == int(problem.pinned[u] == problem.pinned[v] != self.vm))
        for at, (u, v, w) in enumerate(combinations(range(n), 3)):
            if at % 1024 == 0 and self._clock.spent_s > self._until_s:
                raise TimeoutError(f"the model of {n} steps is not written down in time")
            uv, vw, uw = self.same[u, v], self.same[v, w], self.same[u, w]
            model.add_bool_or([uv.negated(), vw.negated(), uw])
            model.add_bool_or([uv.negated(), uw.negated(), vw])
            model.add_bool_or([vw.negated(), uw.negated(), uv])
        for u, v in table.pairs_together(problem).tolist():
            model.add(self.c[u] == self.c[v])
            model.add(self._pair(u, v) == 1).only_enforce_if(self.c[u].negated())
        self.opens = []
        for v in range(n):
            opens = model.new_bool_var(f"o{v}")
            model.add(opens >= 1 - self.c[v] - sum(self.same[u, v] for u in range(v)))
            self.opens.append(opens)
        model.add(sum(self.opens) <= len(self.edge_devices))

    def _pair(self, u: int, v: int) -> Any:
        return self.same[min(u, v), max(u, v)]

    def _turns(self, n: int) -> None:
        """Time for one turn on each step's resource, and the constraints on rate and battery."""
        problem, model = self.problem, self.model
        most = sum(self.pi) + sum(self.az) + 1
        self.turn = []
        on_vm = sum(self.az[v] * self.c[v] for v in range(n))
        for v in range(n):
            if not problem.solid[v]:
                self.turn.append(0)
                continue
            turn = model.new_int_var(0, most, f"t{v}")
            if problem.held_s[v, self._kinds[0]] > 0:  # what costs nothing on a device waits for no turn there
                others = sum(self.pi[u] * self._pair(u, v) for u in range(n) if u != v and self.pi[u])
                model.add(turn >= self.pi[v] * (1 - self.c[v]) + others)
            if problem.held_s[v, self._kinds[1]] > 0:
                model.add(turn >= on_vm).only_enforce_if(self.c[v])
            if problem.rate_hz[v] > 0:
                limit = math.ceil(NS / problem.rate_hz[v]) - 1
                if limit < most:
                    model.add(turn <= limit)
            self.turn.append(turn)
            if self.budget_ua is not None and any(self.ua):
                draw = sum(self.ua[u] * self._pair(u, v) for u in range(n) if u != v and self.ua[u])
                model.add(draw + self.ua[v] * (1 - self.c[v]) <= self.budget_ua)

    def _latency(self, n: int) -> None:
        problem, model = self.problem, self.model
        assert problem.hop_s is not None
        lan = [round(s * NS) for s in problem.hop_s[:, 0]]
        wan = [round(s * NS) for s in problem.hop_s[:, 1]]
        horizon = sum(self.pi) * n + sum(wan) + 1
        for level, limit in problem.at_most:
            if level[0][0] == "critical":
                horizon = min(horizon, math.floor(limit / level[0][1] * NS))
        self.until = [model.new_int_var(0, horizon, f"T{v}") for v in range(n)]
        self.end = model.new_int_var(0, horizon, "end")
        for v in range(n):
            model.add(self.until[v] >= self.turn[v])
            if v in problem.sinks:
                model.add(self.end >= self.until[v])
        for e in range(len(lan)):
            u, v = int(problem.stream_from[e]), int(problem.stream_to[e])
            start, same = self.until[u] + self.turn[v], self._pair(u, v)
            if self.monotone:
                model.add_implication(self.c[u], self.c[v])
                hop = wan[e] * (self.c[v] - self.c[u]) + lan[e] * (1 - self.c[v] - same)
                model.add(self.until[v] >= start + hop)
                continue
            model.add(self.until[v] >= start)
            for one, other in ((u, v), (v, u)):
                crossing = [self.c[one], self.c[other].negated()]
                model.add(self.until[v] >= start + wan[e]).only_enforce_if(crossing)
            apart = [self.c[u].negated(), self.c[v].negated(), same.negated()]
            model.add(self.until[v] >= start + lan[e]).only_enforce_if(apart)

    def _goal(self) -> None:
        problem = self.problem
        weights = self.budget.goal(problem).weights()
        used = self.model.new_bool_var("vm_used")
        self.model.add_max_equality(used, self.c)
        devices = sum(self.opens) + used
        for level, limit in problem.at_most:
            if level[0][0] == "devices":
                self.model.add(devices <= math.floor(limit / level[0][1] + 1e-9))
        # seconds are counted in nanoseconds, so a device weighs 1e9 units where a second does
        self.model.minimize(
            round(weights["critical"] * 1e3) * self.end + round(weights["devices"] * 1e3 * NS) * devices
        )

    def run(self, time_s: float, hint: Ints | None) -> tuple[str, Ints | None, float]:
        """Solve; return the status, the device of each step, and a lower bound on the objective."""
        solver = self._cp.CpSolver()
        solver.parameters.max_time_in_seconds = max(time_s, 0.05)
        solver.parameters.num_workers = WORKERS
        solver.parameters.random_seed = self.budget.seed
        solver.parameters.relative_gap_limit = self.budget.gap
        if hint is not None:
            self._give(hint)
        status = solver.status_name(solver.solve(self.model))
        if status not in ("OPTIMAL", "FEASIBLE"):
            return ("INFEASIBLE" if status == "INFEASIBLE" else "UNKNOWN"), None, 0.0
        return status, self._devices(solver), solver.best_objective_bound / (1e3 * NS)

    def _give(self, hint: Ints) -> None:
        for v, c in enumerate(self.c):
            self.model.add_hint(c, int(hint[v] == self.vm))
        for (u, v), same in self.same.items():
            self.model.add_hint(same, int(hint[u] == hint[v] != self.vm))

    def _devices(self, solver: Any) -> Ints:
        """Give every group of steps a device: its pin, or the first one that is free."""
        problem, device = self.problem, np.where(self.problem.pinned >= 0, self.problem.pinned, -1)
        spare = iter([d for d in self.edge_devices if d not in self.pinned_devices])
        for v in range(len(problem.steps)):
            if device[v] >= 0:
                continue
            if solver.boolean_value(self.c[v]):
                device[v] = self.vm
                continue
            group = [u for u in range(len(problem.steps)) if u != v and solver.boolean_value(self._pair(u, v))]
            shared = [int(device[u]) for u in group if device[u] >= 0]
            device[v] = shared[0] if shared else next(spare)
        return device
