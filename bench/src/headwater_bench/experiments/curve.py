"""Is there a valley: RIoTBench's flows from 5 % to 120 % of the highest rate that they sustain.

Whatever is offered below that rate should be delivered; no rate should have a worse latency, or cost more processor time per
record, than a higher one next to it would lead one to expect. Rates and flows take turns, so that a machine that gets
slower or faster meanwhile does not look like a valley.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

from headwater import engine
from headwater.data.jit import wait_until_compiled
from headwater.flow import Flow
from headwater.metrics import Report
from headwater_bench.experiments.trial import BOUND_MS, machine
from headwater_bench.riot.etl import etl
from headwater_bench.riot.pred import pred
from headwater_bench.riot.sources import generated
from headwater_bench.riot.stats import stats

LOADS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2)
CALM = 0.8  #: of the highest sustained rate, up to which latency is to stay low
_KEPT = 0.99  #: of what is offered, that is delivered at a sustained rate
_GROWTH = 1.3  #: from one rate to the next, in search of the highest
_WARM_UP = 0.3  #: of the measured time

Build = Callable[[float], Flow]


def _built(make: Callable[..., Flow], **options: Any) -> Build:
    return lambda rate_hz: make(generated("CITY", rate_hz), **options)


FLOWS: dict[str, Build] = {
    "etl": _built(etl),
    "etl_wide": _built(etl, wide=True),
    "stats": _built(stats),
    "stats_wide": _built(stats, wide=True),
    "pred": _built(pred),
}


@dataclass(frozen=True, slots=True)
class Point:
    """What a flow did at one rate."""

    flow: str
    on: str
    load: float  #: offered, of the highest sustained rate; 0 in search of it
    offered_hz: float
    out_hz: float  #: messages taken into the flow and out again, per second
    p50_ms: float
    p99_ms: float
    cpu_us: float  #: processor time per message

    @property
    def delivered(self) -> float:
        """The share of what was offered that came out."""
        return self.out_hz / self.offered_hz

    @property
    def is_kept(self) -> bool:
        """Say whether the rate was sustained."""
        return self.delivered >= _KEPT and self.p99_ms <= BOUND_MS


def run(
    quick: bool = False,
    output: Path | None = None,
    *,
    flows: Sequence[str] | None = None,
    on: Sequence[str] | None = None,
    seconds: float | None = None,
) -> dict[str, Any]:
    """Find the highest sustained rate of each flow on the engine, then offer shares of it to each runner in turns."""
    span = seconds or (1.0 if quick else 5.0)
    chosen = {name: FLOWS[name] for name in flows or FLOWS}
    runners = on or ["engine"]
    for build in chosen.values():
        compile_kernels(build)
    highest = {name: highest_sustained(build, span) for name, build in chosen.items()}
    points = [
        measured(name, runner, load, load * highest[name], build, span)
        for load in _in_turns(LOADS)
        for name, build in chosen.items()
        for runner in runners
    ]
    points.sort(key=lambda point: (point.flow, point.on, point.load))
    answer: dict[str, Any] = {"machine": machine(), "seconds": span}
    for name in chosen:
        for runner in runners:
            mine = [point for point in points if point.flow == name and point.on == runner]
            answer[name if runner == "engine" else f"{name}.{runner}"] = _answer(mine, highest[name])
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        _write(points, output)
    return answer


def compile_kernels(build: Build) -> None:
    """Run a flow for a moment, and wait until what it needs is compiled."""
    engine.run(build(500), seconds=0.5)
    wait_until_compiled()


def highest_sustained(build: Build, seconds: float, start_hz: float = 5_000.0) -> float:
    """Return the highest rate that was kept, of rates tried from low to high, below which every rate was kept too."""
    return climbed(lambda rate_hz: measured("", "engine", 0.0, rate_hz, build, seconds).is_kept, start_hz)


def climbed(is_kept: Callable[[float], bool], start_hz: float) -> float:
    """Try higher and higher rates until one is not kept, even when tried again; then go on in steps half as long."""
    best, rate_hz, growth = 0.0, start_hz, _GROWTH
    while growth > 1.1 and best < 1e8:
        if is_kept(rate_hz) or is_kept(rate_hz):
            best = rate_hz
        elif best == 0.0:
            rate_hz /= 4
            if rate_hz < 1:
                return 0.0
            continue
        else:
            growth = growth**0.5
        rate_hz = best * growth
    return best


def measured(name: str, on: str, load: float, rate_hz: float, build: Build, seconds: float) -> Point:
    """Run a flow at a rate, warm it up, measure, and check that what went in came out."""
    running = engine.start(build(rate_hz), on=on)
    time.sleep(_WARM_UP * seconds)
    first, began_s = running.sample(), time.process_time()
    time.sleep(seconds)
    last, spent_s = running.sample(), time.process_time() - began_s
    running.abort() if load > 1 or load == 0 else running.stop()
    report = running.wait()
    assert report is not None
    copies = _copies(report)
    out = (sum(last.records_out.values()) - sum(first.records_out.values())) / copies
    latency = last.latency.minus(first.latency)
    return Point(
        name,
        on,
        load,
        rate_hz,
        out_hz=out / (last.at_s - first.at_s),
        p50_ms=latency.percentile(50) / 1e6,
        p99_ms=latency.percentile(99) / 1e6,
        cpu_us=1e6 * spent_s / max(1.0, out),
    )


def _copies(report: Report) -> float:
    """Return how many records leave the flow for each that it has taken, and raise if one was lost on the way."""
    if report.dead_letters or report.shed:
        raise AssertionError(f"{report.flow}: {report.dead_letters} dead letters, shed {report.shed}")
    finished = report.last.records_in - report.left  # near enough where a run was cut short
    return sum(report.last.records_out.values()) / max(1, finished) or 1.0


def _in_turns(loads: Sequence[float]) -> Iterable[float]:
    """Go up by every other step and come back by those between, so that neighbours are far apart in time."""
    yield from loads[::2]
    yield from reversed(loads[1::2])


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
