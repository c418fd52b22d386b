"""Is there a valley: RIoTBench's flows from 5 % to 120 % of the highest rate that they sustain.

Whatever is offered below that rate should be delivered; no rate should have a worse latency, or cost more processor time per
record, than a higher one next to it would lead one to expect. Rates and flows take turns, and each rate is visited more than
once, so that a machine that gets slower or faster meanwhile does not look like a valley.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

from headwater.errors import RunError, listed, suggestion
from headwater_bench.experiments.sustained import FLOWS, Point, compile_kernels, highest_sustained, measured, together
from headwater_bench.experiments.trial import BOUND_MS, machine

LOADS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2)
CALM = 0.8  #: of the highest sustained rate, up to which latency is to stay low
_TRIAL, _LEAST_S = 0.4, 1.5  #: of the measured time, that a rate is tried in that search, and for how long at least


def run(
    quick: bool = False,
    output: Path | None = None,
    *,
    flows: Sequence[str] | None = None,
    on: Sequence[str] | None = None,
    seconds: float | None = None,
) -> dict[str, Any]:
    """Find the highest sustained rate of each flow on the engine, then offer shares of it to each runner in turns."""
    span, visits = seconds or (1.6 if quick else 5.0), 2 if quick else 3
    for name in flows or ():
        if name not in FLOWS:
            raise RunError(f"there is no flow {name!r}; known are {listed(FLOWS)}{suggestion(name, FLOWS)}")
    chosen = {name: FLOWS[name] for name in flows or FLOWS}
    runners = on or ["engine"]
    for subject in chosen.values():
        compile_kernels(subject)
    highest = {name: highest_sustained(subject, max(_LEAST_S, _TRIAL * span)) for name, subject in chosen.items()}
    for name, rate_hz in highest.items():
        if not rate_hz:
            raise RunError(f"{name} keeps no rate at all within {BOUND_MS:g} ms here; is the machine busy?")
    seen: dict[tuple[str, str, float], list[Point]] = {}
    for load in _in_turns(LOADS, visits):
        for name, subject in chosen.items():
            for runner in runners:
                point = measured(name, runner, load, load * highest[name], subject, span / visits)
                seen.setdefault((name, runner, load), []).append(point)
    points = [together(seen[key]) for key in sorted(seen)]
    answer: dict[str, Any] = {"machine": machine(), "seconds": span, "visits": visits}
    for name in chosen:
        for runner in runners:
            mine = [point for point in points if point.flow == name and point.on == runner]
            answer[name if runner == "engine" else f"{name}.{runner}"] = _answer(mine, highest[name])
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        _write(points, output)
    return answer


def _in_turns(loads: Sequence[float], visits: int) -> Iterable[float]:
    """Go up by every other step and come back by those between, so that neighbours are far apart in time; then again.

    The second time it is the other way round, so that what was measured first is measured last.
    """
    once = [*loads[::2], *reversed(loads[1::2])]
    for visit in range(visits):
        yield from reversed(once) if visit % 2 else once


def _answer(points: Sequence[Point], highest_hz: float) -> dict[str, Any]:
    below = [point for point in points if point.load < 1]
    beyond = [point.out_hz / highest_hz for point in points if point.load > 1]
    return {
        "highest_hz": round(highest_hz),
        "delivered_min": round(min(point.delivered for point in below), 4),
        "p99_ms": round(max(point.p99_ms for point in below if point.load <= CALM), 2),
        "cpu_per_record_rise": round(rise([point.cpu_us for point in points]), 3),
        "beyond": round(min(beyond), 3) if beyond else None,
        "points": [asdict(point) for point in points],
    }


def rise(costs: Sequence[float]) -> float:
    """Return how much dearer a record is at most than at the next lower load; costs are in rising order of load.

    >>> rise([8.0, 4.0, 5.0, 3.0])
    1.25
    """
    return max((higher / lower for lower, higher in pairwise(costs)), default=1.0)


def table(answer: dict[str, Any]) -> str:
    """Return the answer for people."""
    lines = [f"{'':18}{'highest/s':>12}{'delivered':>11}{'p99 ms':>9}{'dearer by':>11}{'beyond':>8}"]
    for name, found in answer.items():
        if isinstance(found, dict):
            lines.append(
                f"{name:18}{found['highest_hz']:>12,}{found['delivered_min']:>11.3f}{found['p99_ms']:>9.1f}"
                f"{found['cpu_per_record_rise']:>11.2f}{found['beyond'] or 0:>8.2f}"
            )
    lines.append(
        "delivered: least share below 100 %; p99: up to 80 %; dearer by: processor time per record over the next"
    )
    lines.append("lower load's, at most; beyond: throughput at 120 % over the highest sustained rate")
    return "\n".join(lines)


def _write(points: Sequence[Point], output: Path) -> None:
    from headwater_bench.experiments.plots import figure

    names = [field.name for field in fields(Point)]
    with (output / "curve.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(names)
        rows.writerows([getattr(point, name) for name in names] for point in points)
    flows = list(dict.fromkeys(point.flow for point in points))
    fig, axes = figure(3, len(flows), 3.6 * len(flows), 8.4)
    for column, flow in enumerate(flows):
        for on, colour in (("engine", "#1f77b4"), ("threads", "#d62728")):
            mine = [point for point in points if point.flow == flow and point.on == on]
            if not mine:
                continue
            loads = [100 * point.load for point in mine]
            look = {"color": colour, "marker": ".", "label": on}
            axes[0][column].plot(loads, [100 * point.delivered for point in mine], **look)
            axes[1][column].plot(loads, [point.p99_ms for point in mine], **look)
            axes[2][column].plot(loads, [point.cpu_us for point in mine], **look)
        highest = max(point.offered_hz / point.load for point in points if point.flow == flow)
        axes[0][column].set(title=f"{flow}: 100 % = {highest:,.0f}/s", ylabel="delivered, % of offered", ylim=(0, 105))
        axes[1][column].set(ylabel="p99 latency, ms", yscale="log")
        axes[1][column].axhline(25, color="#bbbbbb", linestyle=":", linewidth=1)
        axes[2][column].set(ylabel="processor time per message, µs", ylim=(0, None), xlabel="offered, % of the highest")
        for row in range(3):
            axes[row][column].axvline(100, color="#bbbbbb", linestyle=":", linewidth=1)
    axes[0][0].legend()
    fig.savefig(output / "curve.png", dpi=110)
