"""Is there a valley: RIoTBench's flows from 5 % to 120 % of the highest rate that they sustain.

Whatever is offered below that rate should be delivered; no rate should have a worse latency, or cost more processor time per
record, than a higher one next to it would lead one to expect. A machine gets slower and faster by a fifth within a minute,
by what its host does. So neighbouring rates are measured one right after the other, up and down again and up, flows take
turns, and what a record costs is compared with the neighbour's of the same visit, in the median over visits. And a highest
rate that was not kept, or below which some rate was not, was none: then that flow is measured again, from a lower one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from headwater.engine import RUNNERS
from headwater.errors import RunError, listed, suggestion
from headwater_bench.experiments.descent import DOWN, highest_sustained
from headwater_bench.experiments.rows import write_rows
from headwater_bench.experiments.sustained import FLOWS, Point, Subject, compile_kernels, measured, together
from headwater_bench.experiments.trial import BOUND_MS, machine

LOADS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2)
CALM = 0.8  #: of the highest sustained rate, up to which latency is to stay low
_VISITS = 3
_ATTEMPTS = 6  #: at most, at the curve of a flow; only a flow that did not keep a rate has more than one

Curve = dict[float, list[Point]]  #: the visits of each load, in turn


def run(
    quick: bool = False,
    output: Path | None = None,
    *,
    flows: Sequence[str] | None = None,
    on: Sequence[str] | None = None,
    seconds: float | None = None,
) -> dict[str, Any]:
    """Find the highest sustained rate of each flow on the engine, then offer shares of it to each runner in turns."""
    span = seconds or (1.8 if quick else 5.0)
    for what, names, choices in (("flow", flows, FLOWS), ("runner", on, RUNNERS)):
        for name in names or ():
            if name not in choices:
                raise RunError(f"there is no {what} {name!r}; known are {listed(choices)}{suggestion(name, choices)}")
    subjects = {name: FLOWS[name] for name in flows or FLOWS}
    for subject in subjects.values():
        compile_kernels(subject)
    results = {name: highest_sustained(subject, span / _VISITS, _VISITS) for name, subject in subjects.items()}
    highest = {name: each.rate_hz for name, each in results.items()}
    for name, rate_hz in highest.items():
        if not rate_hz:
            raise RunError(f"{name} keeps no rate at all within {BOUND_MS:g} ms here; is the machine busy?")
    curves, attempts = _curves(subjects, highest, on or ["engine"], span / _VISITS)
    answer: dict[str, Any] = {"machine": machine(), "seconds": span, "visits": _VISITS}
    for (name, runner), curve in curves.items():
        row = {**_answer(curve, highest[name]), "attempts": attempts[name], "restless": not results[name].is_sure}
        answer[name if runner == "engine" else f"{name}.{runner}"] = row
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        _write(curves, highest, output)
    return answer


def _curves(
    flows: Mapping[str, Subject], highest: dict[str, float], runners: Sequence[str], seconds: float
) -> tuple[dict[tuple[str, str], Curve], dict[str, int]]:
    """Measure the curve of each flow on each runner, again from a lower rate where the engine did not keep all up to it.

    Return them, and how many attempts each flow took; `highest` is left at the rates that the curves are shares of.
    """
    curves: dict[tuple[str, str], Curve] = {}
    attempts = dict.fromkeys(flows, 0)
    waiting = dict(flows)
    while waiting:
        curves |= _visited(waiting, highest, runners, seconds)
        for name in list(waiting):
            attempts[name] += 1
            if attempts[name] == _ATTEMPTS or is_sustained(curves.get((name, "engine"), {})):
                del waiting[name]
            else:
                highest[name] *= DOWN
    return curves, attempts


def _visited(
    flows: Mapping[str, Subject], highest: Mapping[str, float], runners: Sequence[str], seconds: float
) -> dict[tuple[str, str], Curve]:
    curves: dict[tuple[str, str], Curve] = {(name, runner): {} for name in flows for runner in runners}
    for visit in range(_VISITS):
        for name, subject in flows.items():
            for load in reversed(LOADS) if visit % 2 else LOADS:
                for runner in runners:
                    point = measured(name, runner, load, load * highest[name], subject, seconds)
                    curves[name, runner].setdefault(load, []).append(point)
    return curves


def is_sustained(curve: Curve) -> bool:
    """Say whether every rate up to the highest was kept."""
    return all(together(visits).is_kept for load, visits in curve.items() if load <= 1)


def _answer(curve: Curve, highest_hz: float) -> dict[str, Any]:
    points = [together(curve[load]) for load in LOADS]
    below = [point for point in points if point.load < 1]
    beyond = [point.out_hz / highest_hz for point in points if point.load > 1]
    dearer = rises([[curve[load][visit].cpu_us for load in LOADS] for visit in range(_VISITS)])
    return {
        "highest_hz": round(highest_hz),
        "delivered_min": round(min(point.delivered for point in below), 4),
        "p99_ms": round(max(point.p99_ms for point in below if point.load <= CALM), 2),
        "cpu_per_record_rise": round(max(dearer), 3),
        "beyond": round(min(beyond), 3),
        "rises": {f"{load:g}": round(rise, 3) for load, rise in zip(LOADS[1:], dearer, strict=True)},
        "points": [
            {**asdict(point), "delivered": round(point.delivered, 4), "seen": [asdict(each) for each in curve[load]]}
            for load, point in zip(LOADS, points, strict=True)
        ],
    }


def rises(visits: Sequence[Sequence[float]]) -> list[float]:
    """Return how much dearer a record is at each load but the lowest than at the next lower one, by the median visit.

    A visit has what a record costs at each load, in rising order of load.

    >>> rises([[8.0, 4.0, 5.0], [8.0, 4.0, 4.0], [16.0, 8.0, 8.0]])
    [0.5, 1.0]
    """
    ratios = [[higher / lower for lower, higher in pairwise(costs)] for costs in visits]
    return [median(at) for at in zip(*ratios, strict=True)]


def table(answer: dict[str, Any]) -> str:
    """Return the answer for people."""
    lines = [f"{'':18}{'highest/s':>12}{'delivered':>11}{'p99 ms':>9}{'dearer by':>11}{'beyond':>8}{'attempts':>10}"]
    for name, row in answer.items():
        if isinstance(row, dict):
            lines.append(
                f"{name:18}{row['highest_hz']:>12,}{row['delivered_min']:>11.3f}{row['p99_ms']:>9.1f}"
                f"{row['cpu_per_record_rise']:>11.2f}{row['beyond']:>8.2f}{row['attempts']:>10}"
            )
    lines.append(
        "delivered: least share below 100 %; p99: up to 80 %; dearer by: processor time per record over the next"
    )
    lines.append(
        "lower load's, at most; beyond: throughput at 120 % over the highest sustained rate; attempts: how often"
    )
    lines.append(
        f"a highest rate was measured, {_ATTEMPTS} at most: one that is not kept, or below which one is not, is none"
    )
    restless = [name for name, row in answer.items() if isinstance(row, dict) and row["restless"]]
    if restless:
        lines.append(f"the machine was too restless to be sure of the highest rate of {', '.join(restless)}")
    return "\n".join(lines)


def _write(curves: Mapping[tuple[str, str], Curve], highest: Mapping[str, float], output: Path) -> None:
    from headwater_bench.experiments.plots import figure

    all_visits = [(load, visits) for curve in curves.values() for load, visits in sorted(curve.items())]
    write_rows([asdict(together(visits)) for _, visits in all_visits], output / "curve.csv")
    each = [{"visit": number, **asdict(point)} for _, visits in all_visits for number, point in enumerate(visits)]
    write_rows(each, output / "visits.csv")
    fig, axes = figure(3, len(highest), 3.6 * len(highest), 8.4)
    columns = {name: column for column, name in enumerate(highest)}
    for (name, runner), curve in curves.items():
        points = [together(curve[load]) for load in LOADS]
        loads = [100 * load for load in LOADS]
        look = {"color": {"engine": "#1f77b4", "threads": "#d62728"}[runner], "marker": ".", "label": runner}
        column = columns[name]
        axes[0][column].plot(loads, [100 * point.delivered for point in points], **look)
        axes[1][column].plot(loads, [point.p99_ms for point in points], **look)
        axes[2][column].plot(loads, [point.cpu_us for point in points], **look)
    for name, column in columns.items():
        title = f"{name}: 100 % = {highest[name]:,.0f}/s"
        axes[0][column].set(title=title, ylabel="delivered, % of offered", ylim=(0, 105))
        axes[1][column].set(ylabel="p99 latency, ms", yscale="log")
        axes[1][column].axhline(25, color="#bbbbbb", linestyle=":", linewidth=1)
        axes[2][column].set(ylabel="processor time per message, µs", ylim=(0, None), xlabel="offered, % of the highest")
        for row in range(3):
            axes[row][column].axvline(100, color="#bbbbbb", linestyle=":", linewidth=1)
    axes[0][0].legend()
    fig.savefig(output / "curve.png", dpi=110)
