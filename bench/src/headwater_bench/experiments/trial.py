"""A trial: one configuration, a runner with its policy, at one rate; and what many trials say together.

The machine may be shared and its speed drift. So at each rate the configurations take turns (A B C A B C …), a comparison
is between neighbours in time, and what counts is the median over repeats.
"""

from __future__ import annotations

import csv
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater import engine
from headwater.cores import whole_cores
from headwater.engine.policy import POLICIES
from headwater.flow import Flow
from headwater.metrics import Report, variation
from headwater_bench.experiments.warmed import Warmed, copies_of, when_done_with

CONFIGS = ("threads", *POLICIES)
BOUND_MS = 100.0
_KEPT = 0.97  #: of the offered rate, that must come out for the rate to be sustained
_WARM_UP = 0.4  #: of the measured time, that a run is given before it


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What one configuration did at one rate."""

    subject: str  #: the flow or topology
    config: str
    take: str = "all"
    repeat: int = 0
    workers: int = 0  #: of the engine; 0 for as many as it takes by itself
    padding: int = 0  #: bytes that each message is longer than it need be
    kernels: str = "release"  #: the interpreter's lock while they compute, or `keep` it
    offered_hz: float
    out_hz: float  #: input records per second that came through, by what the sinks took
    p50_ms: float
    p99_ms: float
    emit_p99_ms: float  #: from the moment the source emitted, as the EdgeWise paper measures
    cv: float  #: of utilisation over steps
    backpressure: float  #: share of the time
    #: per step: T_Q, T_S, T_C in ms, ρ_w, cost in µs, records/s in
    steps: dict[str, dict[str, float]]


def measured(
    flow: Flow,
    check: Callable[[Report], float],
    *,
    subject: str,
    config: str,
    offered_hz: float,
    seconds: float,
    take: str = "all",
    repeat: int = 0,
    workers: int = 0,
    padding: int = 0,
    warmed: Warmed | None = None,
    idle: Callable[[str], bool] = lambda step: False,
) -> Trial:
    """Run a flow whose source makes `offered_hz`, warm it up, measure, let it drain and check the whole of it.

    `check` raises unless exactly what must come out came out, and returns how many records that is for each that went in.
    `warmed` is the source of a flow that says less of what it has seen seldom: time begins when it has worked off the first
    messages. `idle` names steps that compute nothing, which would distort the balance.
    """
    on, policy = ("threads", "longest_queue") if config == "threads" else ("engine", config)
    counted: dict[str, Any] = {"workers": workers} if workers else {}
    running = engine.start(flow, on=on, policy=policy, take=int(take) if take.isdigit() else take, **counted)
    warm = None if warmed is None else when_done_with(running, warmed.first)
    if warmed is not None:
        warmed.go.set()
    time.sleep(_WARM_UP * seconds)
    first = running.sample()
    time.sleep(seconds)
    last = running.sample()
    running.stop()
    report = running.wait()
    assert report is not None
    copies = check(report)
    if warm is not None:
        copies = copies_of(report, warm)
    span_s = last.at_s - first.at_s
    latency, emitted = last.latency.minus(first.latency), last.emit_latency.minus(first.emit_latency)
    sources = {step.name for step in flow.in_order() if step.is_source}
    steps = {name: last.steps[name].since(first.steps[name]) for name in last.steps if name not in sources}
    figures = ("t_q_ms", "t_s_ms", "t_c_ms", "utilisation", "cost_us")
    return Trial(
        subject=subject,
        config=config,
        take=take,
        repeat=repeat,
        workers=workers,
        padding=padding,
        offered_hz=offered_hz,
        out_hz=(sum(last.records_out.values()) - sum(first.records_out.values())) / span_s / copies,
        p50_ms=latency.percentile(50) / 1e6,
        p99_ms=latency.percentile(99) / 1e6,
        emit_p99_ms=emitted.percentile(99) / 1e6,
        cv=variation([step.utilisation for name, step in steps.items() if not idle(name)]),
        backpressure=(last.backpressure_s - first.backpressure_s) / span_s,
        steps={
            name: {key: step.to_json()[key] for key in figures} | {"in_hz": step.records_in / span_s}
            for name, step in steps.items()
        },
    )


def sweep(
    rates_hz: Iterable[float],
    configs: Sequence[str],
    repeats: int,
    measure: Callable[[str, float, int], Trial],
    *,
    give_up: int = 2,
    for_all: float | None = None,
    by: Callable[[Trial], str] = lambda trial: trial.config,
) -> Iterator[Trial]:
    """Try rates in rising order, configurations taking turns; `by` tells which one a trial is of.

    One that has failed `give_up` rates in a row is driven no further, except at the rate `for_all`.
    """
    failed = dict.fromkeys(configs, 0)
    for rate_hz in sorted(rates_hz):
        at_rate = [
            measure(config, rate_hz, repeat)
            for repeat in range(repeats)
            for config in configs
            if failed[config] < give_up or rate_hz == for_all
        ]
        for config in configs:
            failed[config] = 0 if sustained_hz([t for t in at_rate if by(t) == config]) else failed[config] + 1
        yield from at_rate


def of(trials: Iterable[Trial], config: str, **fields: Any) -> list[Trial]:
    """Return the trials of one configuration whose fields have these values."""
    return [t for t in trials if t.config == config and all(getattr(t, name) == v for name, v in fields.items())]


def sustained_hz(trials: Sequence[Trial]) -> float:
    """Return the highest rate that came through within the latency bound, in the median of repeats, as all lower ones did.

    0 for none.
    """
    best = 0.0
    for rate_hz in sorted({trial.offered_hz for trial in trials}):
        at = [trial for trial in trials if trial.offered_hz == rate_hz]
        p99 = statistics.median(trial.p99_ms for trial in at)
        if p99 > BOUND_MS or statistics.median(trial.out_hz for trial in at) < _KEPT * rate_hz:
            break
        best = rate_hz
    return best


def median(values: Iterable[float | None]) -> float | None:
    """Return the median of what is there, rounded."""
    there = [value for value in values if value is not None]
    return round(statistics.median(there), 4) if there else None


def spread(values: Sequence[float]) -> list[float]:
    """Return the least and the greatest."""
    return [round(min(values), 3), round(max(values), 3)] if values else []


def cores() -> int:
    """Return how many processors this process may use."""
    return whole_cores()


def machine() -> str:
    """Describe the machine, for beside the figures."""
    return f"{platform.machine()}, {cores()} cores, Python {platform.python_version()}"


def write_csv(trials: Sequence[Trial], path: Path) -> None:
    """Write all trials, without their steps."""
    names = [name for name in Trial.__slots__ if name != "steps"]
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(names)
        rows.writerows([getattr(trial, name) for name in names] for trial in trials)
