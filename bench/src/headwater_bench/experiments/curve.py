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
from typing import Any, NamedTuple

from headwater import engine
from headwater.data.jit import wait_until_compiled
from headwater.errors import RunError, listed, suggestion
from headwater.flow import Flow
from headwater.metrics import Report
from headwater_bench.experiments.trial import BOUND_MS, machine
from headwater_bench.riot.etl import etl
from headwater_bench.riot.pred import pred
from headwater_bench.riot.sources import generated
from headwater_bench.riot.stats import stats

LOADS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2)
CALM = 0.8  #: of the highest sustained rate, up to which latency is to stay low
#: of full speed, at which a flow works off what is always there: tried in turn, in search of the highest sustained rate
SHARES = (0.4, 0.6, 0.75, 0.85, 0.92, 0.97)
_FULL_HZ, _FULL_S = 1e9, 1.0  #: more than any flow can take, and how long it is offered
_KEPT = 0.99  #: of what is offered, that is delivered at a sustained rate
_TRIAL, _LEAST_S = 0.6, 0.8  #: of the measured time, that a rate is tried in that search, and for how long at least
_WARM_UP, _LONGEST_S = 0.3, 0.7  #: of the measured time, before it, and how long that is at most

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
    for name in flows or ():
        if name not in FLOWS:
            raise RunError(f"there is no flow {name!r}; known are {listed(FLOWS)}{suggestion(name, FLOWS)}")
    chosen = {name: FLOWS[name] for name in flows or FLOWS}
    runners = on or ["engine"]
    for build in chosen.values():
        compile_kernels(build)
    highest = {name: highest_sustained(build, max(_LEAST_S, _TRIAL * span)) for name, build in chosen.items()}
    for name, found in highest.items():
        if not found.rate_hz:
            raise RunError(f"{name} keeps no rate at all within {BOUND_MS:g} ms here; is the machine busy?")
    points = [
        measured(name, runner, load, load * highest[name].rate_hz, build, span, highest[name].copies)
        for load in _in_turns(LOADS)
        for name, build in chosen.items()
        for runner in runners
    ]
    points.sort(key=lambda point: (point.flow, point.on, point.load))
    answer: dict[str, Any] = {"machine": machine(), "seconds": span}
    for name in chosen:
        for runner in runners:
            mine = [point for point in points if point.flow == name and point.on == runner]
            answer[name if runner == "engine" else f"{name}.{runner}"] = _answer(mine, highest[name].rate_hz)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        _write(points, output)
    return answer


def compile_kernels(build: Build) -> None:
    """Run a flow for a moment, and wait until what it needs is compiled."""
    engine.run(build(500), seconds=0.5)
    wait_until_compiled()


class Highest(NamedTuple):
    """The highest sustained rate of a flow, and how many records leave it for each that it takes."""

    rate_hz: float
    copies: float


def highest_sustained(build: Build, seconds: float) -> Highest:
    """Return the highest rate that was kept, of rates tried from low to high, below which every rate was kept too."""
    full = max(full_speed(build) for _ in range(2))  # others only slow it down

    def is_kept(rate_hz: float) -> bool:
        return measured("", "engine", 0.0, rate_hz, build, seconds, full.copies).is_kept

    return Highest(climbed(is_kept, full.rate_hz), full.copies)


def full_speed(build: Build) -> Highest:
    """Return how many messages a second a flow works off that all wait: more than it sustains, by how much is open.

    So many messages also tell how many records come out for each, which the first few of a run may not.
    """
    report = engine.run(build(_FULL_HZ), seconds=_FULL_S)
    return Highest(report.last.records_in / report.seconds, copies_of(report))


def climbed(is_kept: Callable[[float], bool], full_hz: float) -> float:
    """Try higher and higher shares of full speed until one is not kept, even when tried again; return the last kept.

    Where not even the first is, go down by halves; 0 where no rate is kept.
    """
    best = 0.0
    for share in SHARES:
        if not (is_kept(share * full_hz) or is_kept(share * full_hz)):
            break
        best = share * full_hz
    rate_hz = SHARES[0] * full_hz / 2
    while not best and rate_hz >= 1:
        best = rate_hz if is_kept(rate_hz) else 0.0
        rate_hz /= 2
    return best


def measured(name: str, on: str, load: float, rate_hz: float, build: Build, seconds: float, copies: float) -> Point:
    """Run a flow at a rate, warm it up, measure, and check that nothing was lost; `copies` come out for each message."""
    running = engine.start(build(rate_hz), on=on)
    time.sleep(min(_WARM_UP * seconds, _LONGEST_S))
    first, began_s = running.sample(), time.process_time()
    time.sleep(seconds)
    last, spent_s = running.sample(), time.process_time() - began_s
    running.stop()  # what is in the queues, bounded, is still worked off
    report = running.wait()
    assert report is not None
    copies_of(report)
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


def copies_of(report: Report) -> float:
    """Return how many records leave the flow for each that it has taken, and raise if one was lost on the way."""
    if report.dead_letters or report.shed or report.left:
        raise AssertionError(
            f"{report.flow}: {report.dead_letters} dead letters, shed {report.shed}, {report.left} left"
        )
    return sum(report.last.records_out.values()) / max(1, report.last.records_in) or 1.0


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
