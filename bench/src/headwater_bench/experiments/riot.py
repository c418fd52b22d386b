"""RIoTBench on the engine: what rate each policy sustains within a latency bound, beside one thread per step.

Sources are open loop. Each run is checked for what must come out before it counts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from headwater import engine
from headwater.data.jit import wait_until_compiled
from headwater.errors import RunError, listed, suggestion
from headwater.flow import Flow
from headwater.flow.endpoints import Sink
from headwater.metrics import Report
from headwater_bench.experiments.trial import (
    BOUND_MS,
    CONFIGS,
    Trial,
    machine,
    measured,
    median,
    of,
    spread,
    sustained_hz,
    sweep,
    write_csv,
)
from headwater_bench.riot.etl import etl
from headwater_bench.riot.pred import pred
from headwater_bench.riot.sources import generated
from headwater_bench.riot.stats import stats
from headwater_bench.riot.train import train, triggers

FLOWS = ("etl", "stats", "pred", "train")
TAKES = ("all", "half", "50", "100")  #: the consumption policies that the paper's figure 11 compares
#: shares of the engine's capacity that are offered; one thread per step keeps up with the first few of them
LOADS = (0.03, 0.05, 0.07, 0.1, 0.14, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


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
    trials: list[Trial] = []
    answer: dict[str, Any] = {}
    with _sinks(sink) as make_sink, tempfile.TemporaryDirectory() as models:
        for name in chosen:
            bench = _Bench(name, make_sink, Path(models), wide)
            offered = list(rates or _loads(bench.capacity_hz(span), quick))
            mine = list(sweep(offered, compared, times, partial(bench.tried, span)))
            best = sustained_hz(of(mine, "longest_queue"))
            taken = _checked("take", takes or (() if quick else TAKES), TAKES)
            rate_hz = 0.9 * best or offered[0]
            by_take = [bench.tried(span, "longest_queue", rate_hz, n, take) for n in range(times) for take in taken]
            trials += mine + by_take
            answer[name] = _answer(mine, by_take, compared)
    answer |= {"machine": machine(), "sink": sink, "seconds": span, "repeats": times}
    if output is not None:
        _write(trials, answer, output)
    return answer


def _checked(what: str, wanted: Sequence[str], known: Sequence[str]) -> list[str]:
    for name in wanted:
        if name not in known:
            raise RunError(f"there is no {what} {name!r}; known are {listed(known)}{suggestion(name, known)}")
    return list(wanted)


@contextmanager
def _sinks(sink: str) -> Iterator[Callable[[str], Sink | None]]:
    if sink == "null":
        yield lambda name: None
    elif sink == "broker":
        from headwater_bench.experiments.broker import broker

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

    def check(self, report: Report) -> float:
        """Raise unless exactly what must come out came out; return records out for each message."""
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
        return sum(out.values()) / max(1, taken) or 1.0

    def tried(self, seconds: float, config: str, rate_hz: float, repeat: int, take: str = "all") -> Trial:
        """Run one configuration at one rate."""
        return measured(
            self.flow(rate_hz),
            self.check,
            subject=self.name,
            config=config,
            take=take,
            repeat=repeat,
            offered_hz=rate_hz,
            seconds=seconds,
        )

    def capacity_hz(self, seconds: float) -> float:
        """Return how many messages per second the engine takes when there are always more."""
        engine.run(self.flow(20 if self.name == "train" else 500), seconds=0.5)
        wait_until_compiled()
        report = engine.run(self.flow(1e7), seconds=max(seconds, 1.0))
        self.check(report)
        return report.last.records_in / report.seconds


def _loads(capacity_hz: float, quick: bool) -> list[float]:
    loads = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0) if quick else LOADS
    return [float(f"{load * capacity_hz:.2g}") for load in loads]


def _answer(trials: list[Trial], by_take: list[Trial], configs: Sequence[str]) -> dict[str, Any]:
    sustained = {config: sustained_hz(of(trials, config)) for config in configs}
    over_threads = {
        config: round(rate / sustained["threads"], 3)
        for config, rate in sustained.items()
        if config != "threads" and sustained.get("threads")
    }
    rates = sorted({trial.offered_hz for trial in trials})
    ours = [config for config in configs if config != "threads"]
    best = max(ours, key=lambda config: sustained[config]) if ours else None
    return {
        "longest_queue_over_threads": over_threads.get("longest_queue"),
        "best": best,
        "best_over_threads": over_threads.get(best or ""),
        "over_threads": over_threads,
        "sustained": sustained,
        "rates": rates,
        "cv": _by_rate(trials, configs, rates, "cv"),
        "p99_ms": _by_rate(trials, configs, rates, "p99_ms"),
        "p99_spread_ms": {c: [spread([t.p99_ms for t in of(trials, c, offered_hz=r)]) for r in rates] for c in configs},
        "takes": {take: _of_take(by_take, take) for take in dict.fromkeys(trial.take for trial in by_take)},
        "step_cost_us": _costs(trials),
        "cases": [asdict(trial) for trial in (*trials, *by_take)],
    }


def _by_rate(trials: list[Trial], configs: Sequence[str], rates: list[float], what: str) -> dict[str, Any]:
    return {c: [median(getattr(t, what) for t in of(trials, c, offered_hz=rate)) for rate in rates] for c in configs}


def _of_take(trials: Sequence[Trial], take: str) -> dict[str, float | None]:
    names = ("out_hz", "p50_ms", "p99_ms", "cv")
    return {name: median(getattr(trial, name) for trial in trials if trial.take == take) for name in names}


def _costs(trials: Sequence[Trial]) -> dict[str, float | None]:
    names = dict.fromkeys(name for trial in trials for name in trial.steps)
    return {name: median(trial.steps[name]["cost_us"] for trial in trials) for name in names}


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


def _write(trials: list[Trial], answer: dict[str, Any], output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    write_csv(trials, output / "riot.csv")
    (output / "riot.txt").write_text(table(answer) + "\n")
    from headwater_bench.experiments.riot_figures import draw

    draw([asdict(trial) for trial in trials], output)
