"""The one judge of placements: every constraint, checked from the problem's own numbers.

It shares no code with the scores and solvers that it judges: what it needs it counts itself, in plain Python (`recount`), so
that a mistake of theirs shows as a violation, or as a difference to `Recount.measure`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headwater.net.device import DeviceClass
from headwater.place.problem import Model, Problem
from headwater.place.recount import Recount

SLACK = 1e-9  # sums of floats may pass a limit by rounding


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken constraint."""

    kind: str
    """pin, closed, zone, together, class, rate, cpu, memory, link, access, energy, disconnected or target."""
    thing: str
    needed: float
    limit: float
    text: str

    def __str__(self) -> str:
        return self.text


def violations(problem: Problem, device: Sequence[int]) -> list[Violation]:
    """Return every constraint that the placement breaks; an empty list is a valid placement."""
    if len(device) != len(problem.steps):
        text = f"a placement of '{problem.name}' names {len(problem.steps)} devices; got {len(device)}"
        return [Violation("pin", problem.name, len(device), len(problem.steps), text)]
    outside = [d for d in device if not 0 <= d < len(problem.net)]
    if outside:
        text = f"device {outside[0]} is not in net '{problem.net.name}' of {len(problem.net):,} devices"
        return [Violation("pin", str(outside[0]), outside[0], len(problem.net), text)]
    count = Recount(problem, [int(d) for d in device])
    return [
        *_constraints(count),
        *_processors(count),
        *_memory(count),
        *_links(count),
        *_energy(count),
        *_targets(count),
    ]


def _constraints(count: Recount) -> list[Violation]:
    problem, where, out = count.problem, count.device, []
    net = problem.net
    for i, name in enumerate(problem.steps):
        at = net.device_name(where[i])
        if problem.pinned[i] >= 0 and problem.pinned[i] != where[i]:
            pin = net.device_name(int(problem.pinned[i]))
            out.append(
                Violation(
                    "pin",
                    name,
                    where[i],
                    float(problem.pinned[i]),
                    f"step '{name}' is pinned to '{pin}', not '{at}'",
                )
            )
        if where[i] in problem.closed:
            out.append(Violation("closed", name, 1, 0, f"step '{name}' is on '{at}', which is lost"))
        zone = count.zone[i]
        if problem.zone_allowed is not None and not problem.zone_allowed[i, zone]:
            trust = net.trust[zone]
            out.append(
                Violation(
                    "zone",
                    name,
                    1,
                    0,
                    f"step '{name}' is on '{at}' in trust zone '{trust}', where its input may not go",
                )
            )
    for group in problem.together:
        if len({where[i] for i in group}) > 1:
            names = ", ".join(f"'{problem.steps[i]}'" for i in group)
            out.append(
                Violation("together", names, len({where[i] for i in group}), 1, f"steps {names} must share a device")
            )
    return out


def _processors(count: Recount) -> list[Violation]:
    problem, out = count.problem, []
    for i, d in enumerate(count.device):
        name, at = problem.steps[i], problem.net.device_name(d)
        if count.work_s[i] == float("inf"):
            out.append(Violation("class", name, 1, 0, f"step '{name}' cannot run on '{at}', a {count.kind[i].name}"))
        elif not count.busy_of(i) < 1:
            most = count.rate[i] / count.busy_of(i)
            text = f"step '{name}' takes {count.rate[i]:,.0f} records/s; '{at}' can serve {most:,.0f}"
            out.append(Violation("rate", name, count.rate[i], most, text))
    for d in count.hosts:
        at = problem.net.device_name(d)
        hosted = count.on(d)
        able = all(count.work_s[i] < float("inf") for i in hosted)
        used = count.busy(d) if able else 0.0
        if used > 1 + SLACK:
            text = f"device '{at}' would be {100 * used:.1f} % busy; 100 % is all it has"
            out.append(Violation("cpu", at, used, 1.0, text))
        if problem.model is not Model.ROUND_ROBIN or not able or not any(count.work_s[i] > 0 for i in hosted):
            continue
        turn, fastest = count.turn_s(d), count.fastest_hz(d)
        if not fastest * turn < 1:
            text = (
                f"device '{at}' needs {turn * 1e6:.2f} µs for a turn of its steps; "
                f"its busiest one brings a record every {1e6 / fastest:.2f} µs"
            )
            out.append(Violation("rate", at, turn, 1 / fastest, text))
    return out


def _memory(count: Recount) -> list[Violation]:
    def describe(name: str, needed: float, limit: float) -> str:
        return f"device '{name}' has {limit / 1e6:,.1f} MB, not {needed / 1e6:,.1f} MB"

    return _beyond(count, "memory", count.memory_bytes, lambda kind: kind.memory_bytes, describe)


def _links(count: Recount) -> list[Violation]:
    problem, out = count.problem, []
    for e, (a, b) in enumerate(count.streams):
        here, there = count.device[a], count.device[b]
        if here == there:
            continue
        bps, slower = count.bps(e), min(count.kind[a].access_bps, count.kind[b].access_bps)
        stream = f"'{problem.steps[a]}' → '{problem.steps[b]}'"
        ends = f"'{problem.net.device_name(here)}' and '{problem.net.device_name(there)}'"
        if bps > 0 and not bps < slower:
            text = f"stream {stream} is {bps / 1e6:,.1f} Mbit/s; between {ends} go {slower / 1e6:,.1f}"
            out.append(Violation("link", stream, bps, slower, text))
        if count.latency_s(e) == float("inf"):
            out.append(Violation("disconnected", stream, 1, 0, f"stream {stream}: no way between {ends}"))

    def describe(name: str, needed: float, limit: float) -> str:
        return f"the access link of '{name}' has {limit / 1e6:,.1f} Mbit/s, not {needed / 1e6:,.1f}"

    return out + _beyond(count, "access", count.access_bps, lambda kind: kind.access_bps, describe)


def _energy(count: Recount) -> list[Violation]:
    def describe(name: str, needed: float, limit: float) -> str:
        return f"device '{name}' would draw {needed:,.1f} mA of {limit:,.1f} mA"

    return _beyond(count, "energy", count.draw_ma, lambda kind: kind.budget_ma, describe)


def _beyond(
    count: Recount,
    kind: str,
    needed_of: Callable[[int], float],
    limit_of: Callable[[DeviceClass], float],
    describe: Callable[[str, float, float], str],
) -> list[Violation]:
    """Return the hosts that need more of something than their class has."""
    out = []
    for d in count.hosts:
        needed, limit, name = needed_of(d), limit_of(count.kind_of(d)), count.problem.net.device_name(d)
        if needed > limit * (1 + SLACK):
            out.append(Violation(kind, name, needed, limit, describe(name, needed, limit)))
    return out


def _targets(count: Recount) -> list[Violation]:
    out = []
    for level, limit in count.problem.at_most:
        value = sum(weight * count.measure(measure) for measure, weight in level)
        if value > limit * (1 + SLACK) + 1e-12:
            name = " + ".join(measure if weight == 1 else f"{weight:g} * {measure}" for measure, weight in level)
            out.append(Violation("target", name, value, limit, f"{name} is {value:g}; at most {limit:g} is asked for"))
    return out
