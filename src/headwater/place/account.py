"""The account of a placement: where time, load, energy and money go, what binds, and what came second."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from headwater.net.arrays import Ints
from headwater.place.candidates import candidates
from headwater.place.constraint_table import ACCESS, CPU, ENERGY, LIMITS, MEMORY, used_in_all
from headwater.place.placement import Placement
from headwater.place.problem import Problem
from headwater.place.score import part_of, path_ends, score
from headwater.place.verify import Violation, violations


def account(placement: Placement, *, alternatives: bool = True) -> dict[str, Any]:
    """Everything about an answer as plain data, ready for JSON.

    `paths` has the slowest path to each sink, `devices` every host, `links` every stream between devices,
    `binding` the constraints that are closest to their limit.
    """
    head: dict[str, Any] = {
        "problem": placement.problem.name,
        "strategy": placement.strategy,
        "objective": str(placement.objective),
        "status": placement.status,
        "proven": placement.proven,
        "value": _finite(placement.value),
        "bound": _finite(placement.bound),
        "gap": _finite(placement.gap),
        "movable": _finite(placement.movable),
        "seconds": placement.seconds,
        "placement": placement.by_name,
        "reason": placement.reason,
    }
    if placement.device is None:
        return head | {"paths": [], "devices": [], "links": [], "binding": []}
    problem, device = placement.problem, placement.device
    totals = placement.score
    measures = {name: _finite(totals.measure(name)) for name in ("critical", "aggregate", "wan", "energy", "money")}
    body = {
        "measures": measures | {"devices": totals.devices, "windows": totals.windows},
        "paths": _paths(problem, device),
        "devices": _devices(problem, device),
        "links": _links(problem, device),
        "binding": _binding(problem, device),
    }
    if alternatives:
        body["alternative"] = alternative(placement)
    return head | body


def _paths(problem: Problem, device: Ints) -> list[dict[str, Any]]:
    totals = score(problem, device)
    until, via = path_ends(problem, totals.step_s + problem.window_s, totals.stream_s)
    out = []
    for sink in problem.sinks:
        path, step = [sink], sink
        while via[step] >= 0:
            step = int(problem.stream_from[via[step]])
            path.append(step)
        path.reverse()
        out.append(
            {
                "sink": problem.steps[sink],
                "latency_s": float(until[sink]),
                "steps": [problem.steps[i] for i in path],
                "in_steps_s": float(sum(totals.step_s[i] for i in path)),
                "in_windows_s": float(sum(problem.window_s[i] for i in path)),
            }
        )
    return sorted(out, key=lambda row: -row["latency_s"])


def _devices(problem: Problem, device: Ints) -> list[dict[str, Any]]:
    net, out = problem.net, []
    hosts, total = used_in_all(problem, device)
    for at, d in enumerate(hosts.tolist()):
        kind, steps = net.classes[int(net.class_of[d])], np.flatnonzero(device == d)
        used = {limit.name: float(total[c, at]) for c, limit in enumerate(LIMITS)}
        row = {
            "device": net.device_name(d),
            "class": kind.name,
            "zone": net.zones[int(net.zone_of(d))],
            "steps": [problem.steps[i] for i in steps],
            "utilisation": used[CPU.name],
            "memory_bytes": used[MEMORY.name],
            "memory_limit_bytes": _finite(kind.memory_bytes),
            "access_bps": used[ACCESS.name],
            "access_limit_bps": _finite(kind.access_bps),
            "draw_ma": used[ENERGY.name],
            "money_per_hour": kind.price_per_hour,
        }
        if math.isfinite(kind.budget_ma):
            row["budget_ma"] = kind.budget_ma
            spare = used[ENERGY.name] - kind.harvest_ma
            row["hours_to_empty"] = kind.battery_mah / spare if spare > 0 else None
        out.append(row)
    return out


def _links(problem: Problem, device: Ints) -> list[dict[str, Any]]:
    net, seconds = problem.net, score(problem, device).stream_s
    out = []
    for e in range(len(problem.stream_from)):
        a, b = int(device[problem.stream_from[e]]), int(device[problem.stream_to[e]])
        if a != b:
            speed = float(net.bandwidth_bps(a, b))
            out.append(
                {
                    "stream": problem.stream_name(e).replace("'", ""),
                    "from": net.device_name(a),
                    "to": net.device_name(b),
                    "bps": float(problem.stream_bps[e]),
                    "share": part_of(float(problem.stream_bps[e]), speed),
                    "latency_s": float(seconds[e]),
                    "wan": bool(net.zone_of(a) != net.zone_of(b)),
                }
            )
    return out


def _binding(problem: Problem, device: Ints) -> list[dict[str, Any]]:
    """The fullest device of each limit; what is above 90 % binds."""
    net, out = problem.net, []
    hosts, total = used_in_all(problem, device)
    for limit, used in zip(LIMITS, total.tolist(), strict=True):
        most = [limit.most(net.classes[int(kind)]) for kind in net.class_of[hosts]]
        parts = zip(used, most, hosts.tolist(), strict=True)
        shares = [(part_of(use, top), net.device_name(host)) for use, top, host in parts if math.isfinite(top)]
        if shares:
            share, name = max(shares)
            out.append({"kind": limit.name, "device": name, "share": float(share), "binds": bool(share > 0.9)})
    return sorted(out, key=lambda row: -row["share"])


def alternative(placement: Placement, *, per_step: int = 16) -> dict[str, Any]:
    """The best placement that differs in one step, and the best one that a constraint forbids."""
    problem, goal = placement.problem, placement.objective
    assert placement.device is not None
    value = goal.value(placement.score)
    best: tuple[float, int, int] | None = None
    barred: tuple[float, int, int, Violation] | None = None
    tried: set[tuple[str, int]] = set()
    for step in np.flatnonzero(problem.pinned < 0).tolist():
        copied = problem.steps[step].rpartition(" #")[0] if problem.share[step] < 1 else problem.steps[step]
        kind = (copied, int(placement.device[step]))
        if kind in tried:
            continue  # copies of a step on one device are equal: what holds of one holds of all
        tried.add(kind)
        others = [d for d in candidates(problem).tolist() if d != placement.device[step]]
        near = problem.net.latency_s(np.full(len(others), placement.device[step]), np.array(others, np.int64))
        for at in np.argsort(near, kind="stable")[:per_step].tolist():
            variant = placement.device.copy()
            variant[step] = others[at]
            worth = goal.value(score(problem, variant))
            broken = violations(problem, variant.tolist())
            if broken and worth < value and (barred is None or worth < barred[0]):
                barred = (worth, step, others[at], broken[0])
            elif not broken and (best is None or worth < best[0]):
                best = (worth, step, others[at])
    out: dict[str, Any] = {}
    if best is not None:
        out["next_best"] = {
            "step": problem.steps[best[1]],
            "device": problem.net.device_name(best[2]),
            "value": _finite(best[0]),
            "worse_by": _finite(best[0] - value),
        }
    if barred is not None:
        out["forbidden"] = {
            "step": problem.steps[barred[1]],
            "device": problem.net.device_name(barred[2]),
            "value": _finite(barred[0]),
            "because": str(barred[3]),
        }
    return out


def _finite(value: float) -> float | None:
    """JSON has no infinity."""
    return float(value) if math.isfinite(value) else None
