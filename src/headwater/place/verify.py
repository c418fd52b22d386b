"""The one judge of placements: every constraint, checked record by record from the problem's own numbers.

It shares no code with the scores and solvers that it judges, and loops over steps and streams in plain
Python.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headwater.place.problem import Model, Problem
from headwater.place.score import score

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
    where = [int(d) for d in device]
    return [
        *_wishes(problem, where),
        *_processors(problem, where),
        *_memory(problem, where),
        *_links(problem, where),
        *_energy(problem, where),
        *_targets(problem, where),
    ]


def _wishes(problem: Problem, where: list[int]) -> list[Violation]:
    net, out = problem.net, []
    for i, name in enumerate(problem.steps):
        at = net.device_name(where[i])
        if problem.pinned[i] >= 0 and problem.pinned[i] != where[i]:
            wanted = net.device_name(int(problem.pinned[i]))
            out.append(
                Violation(
                    "pin",
                    name,
                    where[i],
                    float(problem.pinned[i]),
                    f"step '{name}' is pinned to '{wanted}', not '{at}'",
                )
            )
        if where[i] in problem.closed:
            out.append(Violation("closed", name, 1, 0, f"step '{name}' is on '{at}', which is lost"))
        zone = _zone(problem, where[i])
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


def _processors(problem: Problem, where: list[int]) -> list[Violation]:
    net, out = problem.net, []
    busy: dict[int, float] = defaultdict(float)
    turn: dict[int, float] = defaultdict(float)
    fastest: dict[int, float] = defaultdict(float)
    for i, d in enumerate(where):
        service = float(problem.service_s[i, net.class_of[d]])
        rate = float(problem.rate_hz[i])
        name, at = problem.steps[i], net.device_name(d)
        if service == float("inf"):
            kind = net.classes[int(net.class_of[d])].name
            out.append(Violation("class", name, 1, 0, f"step '{name}' cannot run on '{at}', a {kind}"))
            continue
        if service > 0 and not rate * service < 1:
            text = f"step '{name}' takes {rate:,.0f} records/s; '{at}' can serve {1 / service:,.0f}"
            out.append(Violation("rate", name, rate, 1 / service, text))
        busy[d] += rate * service
        turn[d] += service
        if service > 0:
            fastest[d] = max(fastest[d], rate)
    for d in busy:
        used = busy[d] + (problem.taken[d].utilisation if d in problem.taken else 0.0)
        if used > 1 + SLACK:
            text = f"device '{net.device_name(d)}' would be {100 * used:.1f} % busy; 100 % is all it has"
            out.append(Violation("cpu", net.device_name(d), used, 1.0, text))
        if problem.model is Model.ROUND_ROBIN and not fastest[d] * turn[d] < 1:
            text = (
                f"device '{net.device_name(d)}' needs {turn[d] * 1e6:.2f} µs for a turn of its steps; "
                f"its busiest one brings a record every {1e6 / fastest[d]:.2f} µs"
            )
            out.append(Violation("rate", net.device_name(d), turn[d], 1 / fastest[d], text))
    return out


def _memory(problem: Problem, where: list[int]) -> list[Violation]:
    net = problem.net
    used: dict[int, float] = defaultdict(float)
    for i, d in enumerate(where):
        used[d] += float(problem.memory_bytes[i])
    out = []
    for d, needed in used.items():
        needed += problem.taken[d].memory_bytes if d in problem.taken else 0.0
        limit = net.classes[int(net.class_of[d])].memory_bytes
        if needed > limit * (1 + SLACK):
            text = f"device '{net.device_name(d)}' has {limit / 1e6:,.1f} MB, not {needed / 1e6:,.1f} MB"
            out.append(Violation("memory", net.device_name(d), needed, limit, text))
    return out


def _links(problem: Problem, where: list[int]) -> list[Violation]:
    net, out = problem.net, []
    used: dict[int, float] = defaultdict(float)
    for e in range(len(problem.stream_from)):
        a, b = where[problem.stream_from[e]], where[problem.stream_to[e]]
        if a == b:
            continue
        bps = float(problem.stream_hz[e] * problem.stream_bytes[e] * problem.bits_per_byte)
        slower = min(net.classes[int(net.class_of[d])].access_bps for d in (a, b))
        stream, ends = problem.stream_name(e), f"'{net.device_name(a)}' and '{net.device_name(b)}'"
        if bps > 0 and not bps < slower:
            text = f"stream {stream} is {bps / 1e6:,.1f} Mbit/s; between {ends} go {slower / 1e6:,.1f}"
            out.append(Violation("link", stream, bps, slower, text))
        if problem.hop_s is None and float(net.latency_s(a, b)) == float("inf"):
            out.append(Violation("disconnected", stream, 1, 0, f"stream {stream}: no way between {ends}"))
        for d in (a, b):
            used[d] += bps
    for d, needed in used.items():
        needed += problem.taken[d].access_bps if d in problem.taken else 0.0
        limit = net.classes[int(net.class_of[d])].access_bps
        if needed > limit * (1 + SLACK):
            name = net.device_name(d)
            text = f"the access link of '{name}' has {limit / 1e6:,.1f} Mbit/s, not {needed / 1e6:,.1f}"
            out.append(Violation("access", name, needed, limit, text))
    return out


def _energy(problem: Problem, where: list[int]) -> list[Violation]:
    net = problem.net
    draw: dict[int, float] = defaultdict(float)
    for i, d in enumerate(where):
        draw[d] += float(problem.rate_hz[i] * problem.charge_mas[i, net.class_of[d]])
    for e in range(len(problem.stream_from)):
        a, b = where[problem.stream_from[e]], where[problem.stream_to[e]]
        for d in (a, b) if a != b else ():
            per_byte = net.classes[int(net.class_of[d])].radio_mas_per_byte
            draw[d] += float(problem.stream_hz[e] * problem.stream_bytes[e]) * per_byte
    out = []
    for d, needed in draw.items():
        kind = net.classes[int(net.class_of[d])]
        needed += kind.idle_ma + (problem.taken[d].draw_ma if d in problem.taken else 0.0)
        if needed > kind.budget_ma * (1 + SLACK):
            text = f"device '{net.device_name(d)}' would draw {needed:,.1f} mA of {kind.budget_ma:,.1f} mA"
            out.append(Violation("energy", net.device_name(d), needed, kind.budget_ma, text))
    return out


def _targets(problem: Problem, where: list[int]) -> list[Violation]:
    if not problem.at_most:
        return []
    reached, out = score(problem, np.array(where)), []
    for level, limit in problem.at_most:
        value = sum(weight * reached.measure(measure) for measure, weight in level)
        if value > limit * (1 + SLACK) + 1e-12:
            name = " + ".join(measure if weight == 1 else f"{weight:g} * {measure}" for measure, weight in level)
            out.append(Violation("target", name, value, limit, f"{name} is {value:g}; at most {limit:g} is asked for"))
    return out


def _zone(problem: Problem, device: int) -> int:
    return int(problem.net.zone_of(device))
