"""RIoTBench on the engine: what rate each policy sustains within a latency bound, beside one thread per step.

Sources are open loop. The machine may be shared and its speed drift, so at each rate the configurations take
turns, and a comparison is a ratio of medians over repeats. Each run is checked for what must come out before
it counts.
"""

from __future__ import annotations

import csv
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headwater import engine
from headwater.errors import RunError, listed, suggestion
from headwater.flow import Flow
from headwater.flow.endpoints import Sink
from headwater.metrics import Report, variation
from headwater.riot.etl import etl
from headwater.riot.pred import pred
from headwater.riot.sources import generated
from headwater.riot.stats import stats
from headwater.riot.train import train, triggers

BOUND_MS = 100.0
FLOWS = ("etl", "stats", "pred", "train")
CONFIGS = ("threads", "longest_queue", "oldest_first", "random", "min_latency", "min_memory")
TAKES = ("all", "half", "50", "100")  #: the consumption policies that the paper's figure 11 compares
LOADS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25)


@dataclass(frozen=True, slots=True)
class Case:
    """One configuration at one rate."""

    flow: str
    config: str
    take: str
    repeat: int
    offered_hz: float
    out_hz: float  #: messages per second that came through, by what the sinks took
    p50_ms: float
    p99_ms: float
    emit_p99_ms: float  #: from the moment the source emitted, as the paper measures
    cv: float
    backpressure: float
    steps: dict[str, dict[str, float]]

    @property
    def sustained(self) -> bool:
        """Whether the rate was kept within the latency bound."""
        return self.p99_ms <= BOUND_MS and self.out_hz >= 0.97 * self.offered_hz


def run(
    quick: bool = False,
    output: Path | None = None,
    *,
    flows: Sequence[str] | None = None,
    configs: Sequence[str] | None = None,
    takes: Sequence[str] | None = None,
    rates: Sequence[float] | None = None,
    sink: str = "null",
    wide: bool = False,
    seconds: float | None = None,
    repeats: int | None = None,
) -> dict[str, Any]:
    """Sweep rates; `rates` are messages per second, else shares of the capacity that a first run finds.

    `sink` is `null`, `broker` (started for the runs) or the `mqtt://` URL of one. `wide` runs ETL on whole
    rows.
    """
    chosen = _checked("flow", flows or (("etl", "pred") if quick else FLOWS), FLOWS)
    compared = _checked("configuration", configs or (("threads", "longest_queue") if quick else CONFIGS), CONFIGS)
    span = seconds or (1.0 if quick else 3.0)
    times = repeats or (1 if quick else 3)
    cases: list[Case] = []
    answer: dict[str, Any] = {}
    with _sinks(sink) as make_sink, tempfile.TemporaryDirectory() as models:
        for name in chosen:
            bench = _Bench(name, make_sink, Path(models), wide)
            offered = list(rates or _loads(bench.capacity_hz(span), quick))
            mine = list(_sweep(bench, compared, offered, span, times))
            best = _sustained(mine, "longest_queue") if "longest_queue" in compared else offered[0]
            taken = _checked("take", takes or (() if quick else TAKES), TAKES)
            by_take = list(_sweep_takes(bench, taken, 0.9 * best or offered[0], span, times))
            cases += mine + by_take
            answer[name] = _answer(mine, by_take, compared)
    answer["machine"] = f"{platform.machine()}, {_cores()} cores, Python {platform.python_version()}"
    answer["sink"], answer["seconds"], answer["repeats"] = sink, span, times
    if output is not None:
        _write(cases, answer, output)
    return answer


def _checked(what: str, wanted: Sequence[str], known: Sequence[str]) -> list[str]:
    for name in wanted:
        if name not in known:
            raise RunError(f"there is no {what} {name!r}; known are {listed(known)}{suggestion(name, known)}")
    return list(wanted)


def _cores() -> int:
    return len(os.sched_getaffinity(0))


@contextmanager
def _sinks(sink: str) -> Iterator[Callable[[str], Sink | None]]:
    if sink == "null":
        yield lambda name: None
    elif sink == "broker":
        from headwater.bench.broker import broker

        with broker() as url, _sinks(url) as make:
            yield make
    else:
        from headwater.io import Mqtt

        yield lambda name: Mqtt(sink, f"riot/{name}", payload="text" if name == "etl" else "json")


class _Bench:
    """One flow to be run at many rates."""

    def __init__(self, name: str, make_sink: Callable[[str], Sink | None], models: Path, wide: bool) -> None:
        self.name, self._make_sink, self._models, self._wide = name, make_sink, models, wide

    def flow(self, rate_hz: float) -> Flow:
        """Build the flow anew, its source at a rate."""
        sink = self._make_sink(self.name)
        if self.name == "train":
            return train(triggers(rate_hz), models=self._models, publish=sink)
        source = generated("CITY", rate_hz)
        if self.name == "etl":
            return etl(source, publish=sink, wide=self._wide)
        return stats(source, publish=sink) if self.name == "stats" else pred(source, publish=sink)

    def check(self, report: Report) -> None:
        """Raise unless exactly what must come out came out."""
        taken, out = report.last.records_in, report.last.records_out
        expected = {"etl": {"insert": taken, "publish": taken}, "stats": {"publish": 10 * taken}}.get(
            self.name, {"publish": 2 * taken}
        )
        if self.name == "stats":
            expected["publish"] += report.last.steps["slr"].records_out
        if out != expected or report.dead_letters or report.left or report.shed:
            raise AssertionError(
                f"{self.name}: {taken} in, {out} out, {report.dead_letters} dead, {report.left} left; "
                f"expected {expected}"
            )

    def capacity_hz(self, seconds: float) -> float:
        """Return about how many messages per second all processors together could do, by what steps cost."""
        engine.run(self.flow(20 if self.name == "train" else 500), seconds=0.5)  # compiles what is not compiled yet
        report = engine.run(self.flow(50 if self.name == "train" else 5000), seconds=max(seconds, 1.0))
        self.check(report)
        busy_s = sum(step.busy_ns for step in report.last.steps.values()) / 1e9
        return _cores() * report.last.records_in / busy_s


def _loads(capacity_hz: float, quick: bool) -> list[float]:
    loads = (0.4, 0.7, 1.0, 1.3) if quick else LOADS
    return [float(f"{load * capacity_hz:.2g}") for load in loads]


def _sweep(
    bench: _Bench, configs: Sequence[str], rates: Sequence[float], seconds: float, repeats: int
) -> Iterator[Case]:
    failed = dict.fromkeys(configs, 0)
    for rate_hz in sorted(rates):
        at_rate: list[Case] = []
        for repeat in range(repeats):
            at_rate += [_measure(bench, c, "50", repeat, rate_hz, seconds) for c in configs if failed[c] < 2]
        for config in configs:
            kept = [case.sustained for case in at_rate if case.config == config]
            failed[config] = 0 if any(kept) else failed[config] + 1
        yield from at_rate


def _sweep_takes(bench: _Bench, takes: Sequence[str], rate_hz: float, seconds: float, repeats: int) -> Iterator[Case]:
    for repeat in range(repeats):
        for take in takes:
            yield _measure(bench, "longest_queue", take, repeat, rate_hz, seconds)


def _measure(bench: _Bench, config: str, take: str, repeat: int, rate_hz: float, seconds: float) -> Case:
    """Run one configuration, warm up, measure, and check the whole of it."""
    on, policy = ("threads", "longest_queue") if config == "threads" else ("engine", config)
    consumed: Any = int(take) if take.isdigit() else take
    running = engine.start(bench.flow(rate_hz), on=on, policy=policy, take=consumed, seconds=60.0)
    time.sleep(0.4 * seconds)
    first = running.sample()
    time.sleep(seconds)
    last = running.sample()
    running.stop()
    report = running.wait()
    assert report is not None
    bench.check(report)
    span_s = last.at_s - first.at_s
    ratio = sum(report.last.records_out.values()) / max(1, report.last.records_in)
    steps = {name: last.steps[name].since(first.steps[name]) for name in last.steps}
    working = [step for name, step in steps.items() if name not in ("messages", "triggers")]
    latency, emitted = last.latency.minus(first.latency), last.emit_latency.minus(first.emit_latency)
    told = ("t_q_ms", "t_s_ms", "t_c_ms", "utilisation", "cost_us", "in")
    return Case(
        flow=bench.name,
        config=config,
        take=take,
        repeat=repeat,
        offered_hz=rate_hz,
        out_hz=(sum(last.records_out.values()) - sum(first.records_out.values())) / span_s / max(ratio, 1e-9),
        p50_ms=latency.percentile(50) / 1e6,
        p99_ms=latency.percentile(99) / 1e6,
        emit_p99_ms=emitted.percentile(99) / 1e6,
        cv=variation([step.utilisation for step in working]),
        backpressure=(last.backpressure_s - first.backpressure_s) / span_s,
        steps={step.name: {key: step.to_json()[key] for key in told} for step in working},
    )


def _sustained(cases: Sequence[Case], config: str) -> float:
    """Return the highest rate that the median of repeats kept within the bound."""
    best = 0.0
    for rate_hz in sorted({case.offered_hz for case in cases if case.config == config}):
        at = [case for case in cases if case.config == config and case.offered_hz == rate_hz]
        p99 = statistics.median(case.p99_ms for case in at)
        if p99 <= BOUND_MS and statistics.median(case.out_hz for case in at) >= 0.97 * rate_hz:
            best = rate_hz
    return best


def _answer(cases: list[Case], by_take: list[Case], configs: Sequence[str]) -> dict[str, Any]:
    sustained = {config: _sustained(cases, config) for config in configs}
    ratio = None
    if sustained.get("threads") and "longest_queue" in sustained:
        ratio = round(sustained["longest_queue"] / sustained["threads"], 3)
    rates = sorted({case.offered_hz for case in cases})
    ours = {config: rate for config, rate in sustained.items() if config != "threads"}
    best = max(ours, key=lambda config: ours[config]) if ours else None
    return {
        "longest_queue_over_threads": ratio,
        "best": best,
        "best_over_threads": round(ours[best] / sustained["threads"], 3)
        if best is not None and sustained.get("threads")
        else None,
        "sustained": sustained,
        "rates": rates,
        "cv": {config: [_median(cases, config, rate, "cv") for rate in rates] for config in configs},
        "p99_ms": {config: [_median(cases, config, rate, "p99_ms") for rate in rates] for config in configs},
        "p99_spread_ms": {config: [_spread(cases, config, rate) for rate in rates] for config in configs},
        "takes": {take: _median_take(by_take, take) for take in dict.fromkeys(case.take for case in by_take)},
        "step_cost_us": _costs(cases),
        "cases": [asdict(case) for case in (*cases, *by_take)],
    }


def _median(cases: Sequence[Case], config: str, rate_hz: float, what: str) -> float | None:
    values = [getattr(case, what) for case in cases if case.config == config and case.offered_hz == rate_hz]
    return round(statistics.median(values), 4) if values else None


def _spread(cases: Sequence[Case], config: str, rate_hz: float) -> list[float]:
    values = [case.p99_ms for case in cases if case.config == config and case.offered_hz == rate_hz]
    return [round(min(values), 3), round(max(values), 3)] if values else []


def _median_take(cases: Sequence[Case], take: str) -> dict[str, float]:
    mine = [case for case in cases if case.take == take]
    names = ("out_hz", "p50_ms", "p99_ms", "cv")
    return {name: round(statistics.median(getattr(case, name) for case in mine), 4) for name in names}


def _costs(cases: Sequence[Case]) -> dict[str, float]:
    names = dict.fromkeys(name for case in cases for name in case.steps)
    return {
        name: round(statistics.median(case.steps[name]["cost_us"] for case in cases if name in case.steps), 4)
        for name in names
    }


def table(answer: dict[str, Any]) -> str:
    """Return the answer for people."""
    lines = [f"highest rate with p99 <= {BOUND_MS:.0f} ms, messages/s; sink: {answer['sink']}"]
    for name in FLOWS:
        if name not in answer:
            continue
        flow = answer[name]
        rates = "  ".join(f"{config} {rate:,.0f}" for config, rate in flow["sustained"].items())
        lines.append(f"{name:6s} {rates}")
        lines.append(f"       longest queue / threads: {flow['longest_queue_over_threads']}; best: {flow['best']}")
        costs = "  ".join(f"{step} {cost}" for step, cost in flow["step_cost_us"].items())
        lines.append(f"       cost per record, µs: {costs}")
        for take, found in flow["takes"].items():
            lines.append(f"       take {take}: {found['out_hz']:,.0f}/s, p99 {found['p99_ms']} ms, CV {found['cv']}")
    return "\n".join(lines)


def _write(cases: list[Case], answer: dict[str, Any], output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    names = [name for name in Case.__slots__ if name != "steps"]
    with (output / "riot.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(names)
        rows.writerows([getattr(case, name) for name in names] for case in cases)
    (output / "riot.txt").write_text(table(answer) + "\n")
    from headwater.bench.riot_figures import draw

    draw([asdict(case) for case in cases], output)
