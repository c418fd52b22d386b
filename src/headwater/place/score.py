"""What a placement costs: time by step, stream and path, bytes over the WAN, energy, money and devices.

Paths are never listed: with the number of paths to and from each step, the sum over all of them is one pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headwater.net.arrays import Floats, Ints
from headwater.place.constraint_table import ENERGY, LIMITS, used_in_all
from headwater.place.problem import NOTHING_TAKEN, Model, Problem

MEASURES = ("critical", "aggregate", "wan", "energy", "money", "devices")


@dataclass(frozen=True, eq=False)
class Score:
    """Every measure of one placement."""

    step_s: Floats
    """Seconds in each step, its window left out."""
    stream_s: Floats
    critical: float
    """Seconds of the slowest path."""
    aggregate: float
    """Seconds of all source-to-sink paths together."""
    windows: float
    """The part of `aggregate` that windows add whatever the placement."""
    wan: float
    """Bytes per second that leave their zone."""
    energy: float
    """The largest share of its budget that any device with a battery draws."""
    money: float
    """Per hour."""
    devices: int
    """How many devices host a step."""

    def measure(self, name: str) -> float:
        """One of `MEASURES` by name."""
        return float(getattr(self, name))


def score(problem: Problem, device: Ints) -> Score:
    """Evaluate a placement, given as the device of every step; it need not be feasible."""
    zones = problem.net.zone_of(device)
    step_s, stream_s = step_times(problem, device), stream_times(problem, device)
    with_window = step_s + problem.window_s
    paths, stream_paths = problem.step_paths, problem.stream_paths
    crosses = zones[problem.stream_from] != zones[problem.stream_to]
    wan_bytes = problem.stream_bytes_hz * crosses
    return Score(
        step_s=step_s,
        stream_s=stream_s,
        critical=_longest(problem, with_window, stream_s),
        aggregate=float(paths @ with_window + stream_paths @ stream_s),
        windows=float(paths @ problem.window_s),
        wan=float(wan_bytes.sum()),
        energy=_energy(problem, device),
        money=_money(problem, device, wan_bytes),
        devices=len(np.unique(device)),
    )


def step_times(problem: Problem, device: Ints) -> Floats:
    """Seconds that a record spends in each step, waiting included, its window not."""
    rows, kinds = np.arange(len(device)), problem.net.class_of[device]
    service, busy = problem.held_s[rows, kinds], problem.load[rows, kinds]
    hosts, at = np.unique(device, return_inverse=True)
    others = [problem.taken.get(int(d), NOTHING_TAKEN) for d in hosts]
    if problem.model is Model.ROUND_ROBIN:
        turn = (np.bincount(at, service, len(hosts)) + [use.turn_s for use in others])[at]
        return np.where(service > 0, turn, 0.0)
    if problem.shares_processor:
        busy = (np.bincount(at, busy, len(hosts)) + [use.utilisation for use in others])[at]
    with np.errstate(divide="ignore", invalid="ignore"):
        waits = np.where(busy < 1, service / (1 - busy), np.inf)
    return np.where(service == 0, 0.0, waits)


def stream_times(problem: Problem, device: Ints) -> Floats:
    """Seconds that a record spends on each stream; 0 inside a device."""
    a, b = device[problem.stream_from], device[problem.stream_to]
    net = problem.net
    if problem.hop_s is not None:
        across = (net.zone_of(a) != net.zone_of(b)).astype(int)
        return np.where(a == b, 0.0, problem.hop_s[np.arange(len(a)), across])
    bits, bandwidth = problem.stream_bytes * problem.bits_per_byte, net.bandwidth_bps(a, b)
    load = problem.stream_bps if problem.model is not Model.ROUND_ROBIN else 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        sending = np.where(load < bandwidth, bits / (bandwidth - load), np.inf)
    return np.where(a == b, 0.0, np.where(bits == 0, 0.0, sending) + net.latency_s(a, b))


def path_ends(problem: Problem, step_s: Floats, stream_s: Floats) -> tuple[Floats, Ints]:
    """For each step, the seconds of the slowest path to its end, and the stream it came by (or −1)."""
    until, via = np.zeros(len(step_s)), np.full(len(step_s), -1)
    for step in problem.order:
        for e in problem.inputs[step]:
            arrival = until[problem.stream_from[e]] + stream_s[e]
            if via[step] < 0 or arrival > until[step]:
                until[step], via[step] = arrival, e
        until[step] += step_s[step]
    return until, via


def _longest(problem: Problem, step_s: Floats, stream_s: Floats) -> float:
    until, _ = path_ends(problem, step_s, stream_s)
    return float(until.max())


def _energy(problem: Problem, device: Ints) -> float:
    budgets = np.array([kind.budget_ma for kind in problem.net.classes])[problem.net.class_of[device]]
    if np.isinf(budgets).all():
        return 0.0
    hosts, total = used_in_all(problem, device)
    budget = dict(zip(device.tolist(), budgets.tolist(), strict=True))
    draws = total[LIMITS.index(ENERGY)].tolist()
    return max(part_of(ma, budget[d]) for d, ma in zip(hosts.tolist(), draws, strict=True))


def part_of(used: float, limit: float) -> float:
    """How much of a limit is used: of nothing, nothing is nothing and anything is infinitely much."""
    if limit > 0:
        return used / limit
    return np.inf if used > 0 else 0.0


def _money(problem: Problem, device: Ints, wan_bytes: Floats) -> float:
    net = problem.net
    prices = np.array([c.price_per_hour for c in net.classes])
    egress = np.array([c.egress_per_gb for c in net.classes])
    rent = prices[net.class_of[np.unique(device)]].sum()
    leaving = (wan_bytes * 3600 / 1e9) @ egress[net.class_of[device[problem.stream_from]]]
    return float(rent + leaving)
