"""A bound without search: what every placement must take, whatever it does. Any model, any size, milliseconds."""

from __future__ import annotations

import numpy as np

from headwater.net.arrays import Floats
from headwater.place.objective import Objective
from headwater.place.problem import Model, Problem


def lower_bound(problem: Problem, goal: Objective) -> float:
    """Return a value of the objective's first level that no placement goes below."""
    return sum(weight * _MEASURES[name](problem) for name, weight in goal.weights().items() if weight)


def fixed_part(problem: Problem, goal: Objective) -> float:
    """The part of the objective's first level that windows add wherever steps run."""
    weights = goal.weights()
    slowest = np.zeros(len(problem.steps))
    for step in problem.order:
        before = [slowest[problem.stream_from[e]] for e in problem.inputs[step]]
        slowest[step] = problem.window_s[step] + max(before, default=0.0)
    return float(weights["aggregate"] * (problem.step_paths @ problem.window_s) + weights["critical"] * slowest.max())


def _least_step_s(problem: Problem) -> Floats:
    """The least that a step takes on any class, alone on its device; its window counted in."""
    step_s = problem.held_s.copy()
    if problem.model is not Model.ROUND_ROBIN:
        with np.errstate(divide="ignore", invalid="ignore"):
            step_s = np.where(problem.load < 1, step_s / (1 - problem.load), np.inf)
    free = np.where(np.isfinite(step_s).any(axis=1), step_s.min(axis=1), 0.0)
    kinds = problem.net.class_of[np.maximum(problem.pinned, 0)]
    pinned_s = step_s[np.arange(len(free)), kinds]
    least = np.where(problem.pinned >= 0, np.where(np.isfinite(pinned_s), pinned_s, 0.0), free)
    return np.asarray(least + problem.window_s)


def _apart_s(problem: Problem, a: int, b: int) -> float:
    """The least latency between two pinned steps: straight, or out of one zone and into the other."""
    net = problem.net
    here, there = int(problem.pinned[a]), int(problem.pinned[b])
    if here == there:
        return 0.0
    zone, other = int(net.zone_of(here)), int(net.zone_of(there))
    if problem.hop_s is not None:
        return float(problem.hop_s[:, 1].min()) if zone != other else 0.0
    if zone == other:
        return float(min(net.latency_s(here, there), net.lan_s[here] + net.lan_s[there]))
    out, into = (np.delete(net.wan.row(z), z).min() for z in (zone, other))
    return float(min(net.wan.row(zone)[other], out + into) + net.lan_s[here] + net.lan_s[there])


def _ends(problem: Problem) -> list[tuple[int, int]]:
    """Pairs of a pinned source and a pinned sink."""
    pinned = problem.pinned >= 0
    return [(s, t) for s in problem.sources if pinned[s] for t in problem.sinks if pinned[t] and s != t]


def _critical(problem: Problem) -> float:
    step_s, longest = _least_step_s(problem), 0.0
    reach = {s: _reach(problem, s, step_s) for s in problem.sources}
    for source, until in reach.items():
        for sink in problem.sinks:
            if np.isfinite(until[sink]):
                pinned = problem.pinned[source] >= 0 and problem.pinned[sink] >= 0
                apart = _apart_s(problem, source, sink) if pinned and source != sink else 0.0
                longest = max(longest, float(until[sink]) + apart)
    return max(longest, _crossings(problem))


def _reach(problem: Problem, source: int, step_s: Floats) -> Floats:
    """The longest path from a source to the end of every step, by steps alone; minus infinity where there is none."""
    until = np.full(len(step_s), -np.inf)
    until[source] = step_s[source]
    for step in problem.order:
        for e in problem.inputs[step]:
            until[step] = max(until[step], until[problem.stream_from[e]] + step_s[step])
    return until


def _crossings(problem: Problem) -> float:
    """Where each stream has its own time between zones: a path between zones has one, the slowest the dearest."""
    if problem.hop_s is None:
        return 0.0
    pinned = problem.pinned >= 0
    zone = problem.net.zone_of(np.maximum(problem.pinned, 0))
    ends = [*problem.sources, *problem.sinks]
    homes, aims = ({int(zone[i]) for i in some} for some in (problem.sources, problem.sinks))
    if not pinned[ends].all() or len(homes) > 1 or len(aims) > 1 or homes == aims:
        return 0.0
    least = np.full(len(problem.steps), np.inf)
    for step in problem.order:
        if problem.inputs[step]:
            least[step] = max(min(least[problem.stream_from[e]], problem.hop_s[e, 1]) for e in problem.inputs[step])
    return float(max(least[sink] for sink in problem.sinks))


def _aggregate(problem: Problem) -> float:
    total = float(problem.step_paths @ _least_step_s(problem))
    for source in problem.sources:
        ways = _ways(problem, source)
        total += sum(ways[t] * _apart_s(problem, s, t) for s, t in _ends(problem) if s == source and ways[t])
    return total


def _ways(problem: Problem, source: int) -> Floats:
    """The number of paths from one source to every step; a copy counts as its share of one step."""
    count = np.zeros(len(problem.steps))
    count[source] = problem.share[source]
    for step in problem.order:
        count[step] += problem.share[step] * sum(count[problem.stream_from[e]] for e in problem.inputs[step])
    return count


def _wan(problem: Problem) -> float:
    a, b = problem.pinned[problem.stream_from], problem.pinned[problem.stream_to]
    zones = problem.net.zone_of(np.maximum(a, 0)), problem.net.zone_of(np.maximum(b, 0))
    between_pins = (a >= 0) & (b >= 0) & (zones[0] != zones[1])
    return float((problem.stream_hz * problem.stream_bytes)[between_pins].sum())


def _money(problem: Problem) -> float:
    hosts = np.unique(problem.pinned[problem.pinned >= 0])
    return float(sum(problem.net.classes[int(k)].price_per_hour for k in problem.net.class_of[hosts]))


def _devices(problem: Problem) -> float:
    return float(max(1, len(np.unique(problem.pinned[problem.pinned >= 0]))))


_MEASURES = {
    "critical": _critical,
    "aggregate": _aggregate,
    "wan": _wan,
    "energy": lambda problem: 0.0,
    "money": _money,
    "devices": _devices,
}
