"""A placement problem as a linear program over real and relaxed devices, handed to HiGHS.

Every measure is linear in three kinds of variables: step v is on device k, stream e goes from zone a to
zone b, and both ends of stream e share device k. Where time depends on the other steps of a device, it has a
variable of its own (`_company`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from headwater.net.arrays import Floats, Ints
from headwater.place import constraint_table as table
from headwater.place.hosts import Hosts
from headwater.place.placement import Budget, Clock
from headwater.place.problem import NOTHING_TAKEN, Model, Problem

Sum = dict[int, float]
"""A linear expression: coefficient by variable; −1 holds the constant."""
PATIENCE = 10.0
"""With a placement at hand, whole numbers are searched only if so many times the time without them is left."""
TANGENTS = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
"""Utilisations at which the curve 1 / (1 − u) of shared time is touched from below."""


class Program:
    """Builds the rows and columns of the program and hands them to HiGHS; raises TimeoutError where that takes too long."""

    def __init__(
        self, problem: Problem, budget: Budget, hosts: Hosts, tangents: Iterable[float] = (), clock: Clock | None = None
    ) -> None:
        self.problem, self.budget, self.hosts, self._clock = problem, budget, hosts, clock
        self._candidates = table.Devices(hosts.device, hosts.kind, hosts.zone[hosts.zone_at])
        self._tangents = sorted({*TANGENTS, *tangents})
        # the solver lets rows be off by 1e-6, so times are counted in units in which that is nothing
        self._unit_s = max(1e-9, 1e-3 * float(hosts.wan_s[np.isfinite(hosts.wan_s)].max(initial=0.0)))
        self.cost: list[float] = []
        self.upper: list[float] = []
        self.whole: list[bool] = []
        self.rows: list[tuple[Sum, float, float]] = []
        access = problem.net.access_bps[hosts.kind]
        self._fastest = [float(access[hosts.zone_at == a].max(initial=0.0)) for a in range(len(hosts.zone))]
        prices = np.array([c.egress_per_gb for c in problem.net.classes])[hosts.kind]
        # a zone of mixed prices counts at its lowest, which keeps the bound true
        self._egress = [float(prices[hosts.zone_at == a].min(initial=np.inf)) for a in range(len(hosts.zone))]
        self.x: list[dict[int, int]] = [self._columns_of(v) for v in range(len(problem.steps))]
        self.hop = [self._stream(e) for e in range(len(problem.stream_from))]
        self.step = [self._step_s(v) for v in range(len(problem.steps))]
        self.used = {k: self._variable(1.0, whole=False) for k in range(len(hosts.device))}
        self._group_steps()
        self._limit_devices()
        self.measure = {name: self._measure(name) for name in self._measure_names()}

    def _measure_names(self) -> set[str]:
        goal = self.budget.goal(self.problem)
        names = {m for m, w in goal.weights().items() if w}
        return names | {m for level, _ in self.problem.at_most for m, _ in level}

    def _variable(self, upper: float, *, whole: bool) -> int:
        self.upper.append(upper)
        self.whole.append(whole)
        return len(self.upper) - 1

    def _row(self, terms: Sum, low: float, high: float) -> None:
        if self._clock is not None and self._clock.left_s == 0:
            raise TimeoutError
        fixed = terms.pop(-1, 0.0)
        if terms:
            self.rows.append((terms, low - fixed, high - fixed))
        elif not low <= fixed <= high + 1e-12:
            self.rows.append(({0: 0.0}, 1.0, 1.0))  # a contradiction without variables

    def _columns_of(self, v: int) -> dict[int, int]:
        """The variables of a step by host: one per host where it may be; none if its pin leaves no choice."""
        problem, numbers = self.problem, np.arange(len(self.hosts.device))
        allowed = table.fits(problem, v, self._candidates)
        if problem.pinned[v] >= 0:
            here = int(np.flatnonzero(self.hosts.device == problem.pinned[v])[0])
            if not allowed[here]:
                self._row({-1: 1.0}, 0.0, 0.0)
            return {here: -1}
        out = {int(k): self._variable(1.0, whole=True) for k in numbers[allowed]}
        self._row(dict.fromkeys(out.values(), 1.0), 1.0, 1.0)
        return out

    def _at(self, v: int, k: int) -> Sum:
        """Whether step v is on host k, as an expression."""
        if k not in self.x[v]:
            return {}
        return {self.x[v][k]: 1.0}

    def _at_zone(self, v: int, a: int) -> Sum:
        out: Sum = {}
        for k, column in self.x[v].items():
            if self.hosts.zone_at[k] == a:
                out[column] = out.get(column, 0.0) + 1.0
        return out

    def _stream(self, e: int) -> tuple[Sum, Sum, dict[int, Sum], Sum]:
        """Seconds, whether zones are crossed, per host whether the stream stays inside it, and money per gigabyte."""
        problem, hosts = self.problem, self.hosts
        u, v = int(problem.stream_from[e]), int(problem.stream_to[e])
        inside: dict[int, Sum] = {}
        for k in self.x[u].keys() & self.x[v].keys():
            if self.x[u][k] == -1 or self.x[v][k] == -1:
                inside[k] = self._at(v if self.x[u][k] == -1 else u, k)
                continue
            same = self._variable(1.0, whole=False)
            self._row({same: 1.0, self.x[u][k]: -1.0}, -math.inf, 0.0)
            self._row({same: 1.0, self.x[v][k]: -1.0}, -math.inf, 0.0)
            inside[k] = {same: 1.0}
        flows = self._flows(e, u, v)
        seconds: Sum = {}
        crossing: Sum = {}
        paid: Sum = {}
        for k in range(len(hosts.device)):
            lan = float(hosts.lan_s[k])
            _add(seconds, self._at(u, k), lan)
            _add(seconds, self._at(v, k), lan)
            for variable, one in inside.get(k, {}).items():
                _add(seconds, {variable: one}, -2 * lan)
        for (a, b), flow in flows.items():
            _add(seconds, flow, float(hosts.wan_s[a, b]) + self._send_s(e, a, b))
            if a != b:
                _add(crossing, flow, 1.0)
                _add(paid, flow, self._egress[a])
            else:
                within = [inside[k] for k in inside if hosts.zone_at[k] == a]
                for same_here in within:
                    _add(seconds, same_here, -self._send_s(e, a, a))
                if not self._passes(e, a, a):  # too fast for its zone's links: one device
                    together: Sum = dict(flow)
                    for same_here in within:
                        _add(together, same_here, -1.0)
                    self._row(together, -math.inf, 0.0)
        return _scale(seconds, 1 / self._unit_s), crossing, inside, paid

    def _flows(self, e: int, u: int, v: int) -> dict[tuple[int, int], Sum]:
        """Per pair of zones whether the stream goes that way; pairs that cannot carry it are left out."""
        from_zones = sorted({int(self.hosts.zone_at[k]) for k in self.x[u]})
        to_zones = sorted({int(self.hosts.zone_at[k]) for k in self.x[v]})
        flows: dict[tuple[int, int], Sum] = {}
        if len(from_zones) == 1 or len(to_zones) == 1:
            for a in from_zones:
                for b in to_zones:
                    other = self._at_zone(v, b) if len(from_zones) == 1 else self._at_zone(u, a)
                    if a != b and not self._passes(e, a, b):
                        self._row(dict(other), -math.inf, 0.0)
                    else:
                        flows[a, b] = other
            return flows
        for a in from_zones:
            for b in to_zones:
                if a == b or self._passes(e, a, b):
                    flows[a, b] = {self._variable(1.0, whole=False): 1.0}
        for a in from_zones:
            self._equal(self._at_zone(u, a), [flows.get((a, b), {}) for b in to_zones])
        for b in to_zones:
            self._equal(self._at_zone(v, b), [flows.get((a, b), {}) for a in from_zones])
        return flows

    def _equal(self, whole: Sum, parts: Iterable[Sum]) -> None:
        """Have parts add up to a whole."""
        total: Sum = {}
        _add(total, whole, -1.0)
        for part in parts:
            _add(total, part, 1.0)
        self._row(total, 0.0, 0.0)

    def _speed(self, a: int, b: int) -> float:
        """The fastest link between devices of two zones."""
        return min(self._fastest[a], self._fastest[b])

    def _passes(self, e: int, a: int, b: int) -> bool:
        bps, speed, away_s = self.problem.stream_bps[e], self._speed(a, b), self.hosts.wan_s[a, b]
        return all(way.is_open(bps, speed, away_s) for way in table.WAYS)

    def _send_s(self, e: int, a: int, b: int) -> float:
        bits = self.problem.stream_bytes[e] * self.problem.bits_per_byte
        load = 0.0 if self.problem.model is Model.ROUND_ROBIN else self.problem.stream_bps[e]
        free = self._speed(a, b) - load
        return float(bits / free) if bits > 0 and free > 0 and math.isfinite(free) else 0.0

    def _step_s(self, v: int) -> Sum:
        """Seconds in a step, its window counted in: alone on its device, or at least that and what company adds."""
        problem, alone = self.problem, {-1: float(self.problem.window_s[v])}
        for k, column in self.x[v].items():
            service, load = problem.held_s[v, self.hosts.kind[k]], problem.load[v, self.hosts.kind[k]]
            if service > 0 and load < 1:
                sojourn_s = service if problem.model is Model.ROUND_ROBIN else service / (1 - load)
                _add(alone, {column: 1.0}, float(sojourn_s))
        alone = _scale(alone, 1 / self._unit_s)
        if problem.model is Model.QUEUE or not problem.solid[v]:
            return alone
        seconds = self._variable(math.inf, whole=False)
        self._row({seconds: 1.0, **_scale(alone, -1.0)}, 0.0, math.inf)
        for k in self.x[v]:
            if self.hosts.device[k] >= 0:
                self._company(v, k, seconds)
        return {seconds: 1.0}

    def _company(self, v: int, k: int, seconds: int) -> None:
        """If step v is on device k, let its time follow from all steps there."""
        problem, kind = self.problem, self.hosts.kind[k]
        service, window = problem.held_s[:, kind] / self._unit_s, float(problem.window_s[v]) / self._unit_s
        if not service[v] > 0:
            return
        turns = table.has_turns(problem)
        use = problem.taken.get(int(self.hosts.device[k]), NOTHING_TAKEN)
        load: Sum = {-1: use.turn_s / self._unit_s if turns else use.utilisation}
        for u in range(len(problem.steps)):
            if np.isfinite(service[u]):
                _add(load, self._at(u, k), float(service[u] if turns else problem.load[u, kind]))
        most = float(service[np.isfinite(service)].sum()) + load[-1]
        if turns:
            fastest = max(float(problem.rate_hz[v]), use.fastest_hz)
            if fastest > 0:
                self._if_there(v, k, _scale(load, -1.0), -table.longest_turn_s(fastest) / self._unit_s, most)
            self._if_there(v, k, {seconds: 1.0, **_scale(load, -1.0)}, window, most + window)
            return
        for at in self._tangents:
            slope = float(service[v]) / (1 - at) ** 2
            level = float(service[v]) / (1 - at) - slope * at
            self._if_there(v, k, {seconds: 1.0, **_scale(load, -slope)}, level + window, level + slope + window)

    def _if_there(self, v: int, k: int, terms: Sum, low: float, slack: float) -> None:
        """Ask that terms ≥ low if step v is on device k; `slack` is enough to let go of it otherwise."""
        row = dict(terms)
        _add(row, self._at(v, k), -max(slack, 0.0))
        self._row(row, low - max(slack, 0.0), math.inf)

    def _group_steps(self) -> None:
        for one, other in table.pairs_together(self.problem).tolist():
            for k in range(len(self.hosts.device)):
                equal: Sum = {}
                _add(equal, self._at(one, k), 1.0)
                _add(equal, self._at(other, k), -1.0)
                self._row(equal, 0.0, 0.0)

    def _limit_devices(self) -> None:
        """Let steps, streams and other flows use no more of any real device than it has."""
        problem, arrays = self.problem, table.limits(self.problem)
        self.draw_ma: dict[int, Sum] = {}
        for k, device in enumerate(self.hosts.device.tolist()):
            kind, border = int(self.hosts.kind[k]), self._border(k)
            for v in range(len(problem.steps)):
                if at := self._at(v, k):
                    self._row({self.used[k]: 1.0, **_scale(at, -1.0)}, 0.0, math.inf)
            others = table.used_by_others(problem, device)
            for c, limit in enumerate(table.LIMITS):
                used: Sum = {}
                for v in range(len(problem.steps)):
                    _add(used, self._at(v, k), float(arrays.step[c, v, kind]))
                _add(used, border, float(arrays.per_byte[c, kind]))
                _add(used, {self.used[k]: 1.0}, float(arrays.idle[c, kind]))
                if limit is table.ENERGY:
                    self.draw_ma[k] = used
                most = float(arrays.most[c, kind])
                if device >= 0 and math.isfinite(most):
                    scale = 1 / most if most > 0 else 1.0
                    self._row(_scale(used, scale), -math.inf, (most - others[c]) * scale)

    def _border(self, k: int) -> Sum:
        """Bytes per second that come to a device and leave it."""
        problem, border = self.problem, dict[int, float]()
        for e, bytes_hz in enumerate(problem.stream_bytes_hz.tolist()):
            _add(border, self._at(int(problem.stream_from[e]), k), bytes_hz)
            _add(border, self._at(int(problem.stream_to[e]), k), bytes_hz)
            _add(border, self.hop[e][2].get(k, {}), -2.0 * bytes_hz)
        return border

    def _measure(self, name: str) -> Sum:
        """One measure of the placement as an expression."""
        problem, out = self.problem, dict[int, float]()
        classes = problem.net.classes
        if name == "aggregate":
            for v, seconds in enumerate(self.step):
                _add(out, seconds, float(problem.step_paths[v]))
            for e, (seconds, _, _, _) in enumerate(self.hop):
                _add(out, seconds, float(problem.stream_paths[e]))
            return _scale(out, self._unit_s)
        if name == "critical":
            out = {self._slowest(): self._unit_s}
        elif name == "wan":
            for e, (_, crossing, _, _) in enumerate(self.hop):
                _add(out, crossing, float(problem.stream_bytes_hz[e]))
        elif name == "devices":
            out = dict.fromkeys(self.used.values(), 1.0)
        elif name == "money":
            out = {c: classes[int(self.hosts.kind[k])].price_per_hour for k, c in self.used.items()}
            for e, (_, _, _, paid) in enumerate(self.hop):
                _add(out, paid, float(problem.stream_bytes_hz[e]) * 3600 / 1e9)
        else:
            share = self._variable(math.inf, whole=False)
            for k, draw in self.draw_ma.items():
                limit = classes[int(self.hosts.kind[k])].budget_ma
                if math.isfinite(limit) and limit > 0 and self.hosts.device[k] >= 0:  # of nothing, nothing is drawn
                    self._row({share: 1.0, **_scale(dict(draw), -1 / limit)}, 0.0, math.inf)
            out = {share: 1.0}
        return out

    def _slowest(self) -> int:
        problem = self.problem
        until = [self._variable(math.inf, whole=False) for _ in problem.steps]
        end = self._variable(math.inf, whole=False)
        for v in range(len(problem.steps)):
            self._row({until[v]: 1.0, **_scale(self.step[v], -1.0)}, 0.0, math.inf)
            self._row({end: 1.0, until[v]: -1.0}, 0.0, math.inf)
            for e in problem.inputs[v]:
                wait: Sum = {until[v]: 1.0, until[int(problem.stream_from[e])]: -1.0}
                _add(wait, self.step[v], -1.0)
                _add(wait, self.hop[e][0], -1.0)
                self._row(wait, 0.0, math.inf)
        return end

    def run(self, time_s: float, cutoff: float) -> tuple[str, Ints | None, float]:
        """Solve; return the status, the device of each step (−1: a relaxed one) and a bound."""
        goal: Sum = {}
        for measure, weight in self.budget.goal(self.problem).weights().items():
            if weight:
                _add(goal, self.measure[measure], weight)
        for level, limit in self.problem.at_most:
            cap: Sum = {}
            for measure, weight in level:
                _add(cap, self.measure[measure], weight)
            self._at_most(cap, limit)
        if math.isfinite(cutoff):
            self._at_most(goal, cutoff * (1 + 1e-7))
        constant, cost = goal.pop(-1, 0.0), np.zeros(len(self.upper))
        for column, weight in goal.items():
            cost[column] = weight
        return self._solve(cost, constant, time_s, has_cutoff=math.isfinite(cutoff))

    def _at_most(self, terms: Sum, limit: float) -> None:
        scale = 1 / limit if limit > 0 else 1.0
        self._row(_scale(terms, scale), -math.inf, limit * scale)

    def _solve(
        self, cost: Floats, constant: float, time_s: float, *, has_cutoff: bool
    ) -> tuple[str, Ints | None, float]:
        """Solve without whole numbers first: that is a bound, quick, often whole by itself, and tells how fast we are."""
        import scipy.optimize  # noqa: F401  # what is timed below is the program, not the import

        started, scale = time.perf_counter(), float(np.abs(cost).max(initial=0.0)) or 1.0
        cost = cost / scale
        bounded, whole = self._milp(cost, time_s, whole=False), np.array(self.whole, bool)
        if bounded.status == 2:
            return "infeasible", None, math.inf
        if bounded.status != 0:
            return "unknown", None, 0.0
        bound, took_s = constant + scale * float(bounded.fun), time.perf_counter() - started
        values = bounded.x[whole]
        if (np.abs(values - np.rint(values)) < 1e-7).all():
            return "optimal", self._devices(bounded.x), bound
        left_s = time_s - took_s
        if has_cutoff and left_s < PATIENCE * took_s:
            return "unknown", None, bound
        result = self._milp(cost, left_s, whole=True)
        if result.status == 2:
            return "infeasible", None, math.inf
        if result.mip_dual_bound is not None and math.isfinite(result.mip_dual_bound):
            bound = max(bound, constant + scale * float(result.mip_dual_bound))
        if result.x is None:
            return "unknown", None, bound
        return ("optimal" if result.status == 0 else "feasible"), self._devices(result.x), bound

    def _milp(self, cost: Floats, time_s: float, *, whole: bool) -> Any:
        from scipy.optimize import Bounds, LinearConstraint, milp

        matrix, low, high = self._matrix()
        return milp(
            cost,
            integrality=np.array(self.whole, int) if whole else None,
            bounds=Bounds(0, np.array(self.upper)),
            constraints=LinearConstraint(matrix, low, high),
            options={"time_limit": max(time_s, 0.05), "mip_rel_gap": max(self.budget.gap, 1e-7)},
        )

    def _matrix(self) -> tuple[Any, Floats, Floats]:
        from scipy.sparse import csr_matrix

        entries = [(r, c, w) for r, (terms, _, _) in enumerate(self.rows) for c, w in terms.items()]
        rows, columns, weights = zip(*entries, strict=True) if entries else ((), (), ())
        shape = (len(self.rows), len(self.upper))
        low, high = np.array([r[1] for r in self.rows]), np.array([r[2] for r in self.rows])
        return csr_matrix((weights, (rows, columns)), shape=shape), low, high

    def _devices(self, values: Floats) -> Ints:
        device = self.problem.pinned.copy()
        for v, columns in enumerate(self.x):
            if device[v] < 0:
                host = max(columns, key=lambda k: values[columns[k]])
                device[v] = self.hosts.device[host]
        return device


def _add(to: Sum, terms: Sum, weight: float) -> None:
    if weight:
        for column, one in terms.items():
            to[column] = to.get(column, 0.0) + one * weight


def _scale(terms: Sum, weight: float) -> Sum:
    return {column: one * weight for column, one in terms.items()}
