"""RIoTBench on the engine: what rate each policy sustains within a latency bound, beside one thread per step.

Sources are open loop, and begin when a flow is warm. Each run is checked for what must come out before it counts. Beside
policies, it tries how much of a queue an activation takes, how many workers there are, how long messages are, and kernels
that keep the interpreter's lock.

By default it has what the EdgeWise paper shows, and should end in some twenty minutes on two cores: PRED, STATS and ETL at
eight rates, closest near capacity (there is no figure of TRAIN), and each of the other questions with one flow (`ASKED_OF`).
What is named by an option is tried with every flow.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from headwater import engine
from headwater.data.column import Text
from headwater.data.jit import wait_until_compiled
from headwater.errors import RunError, listed, suggestion
from headwater.flow import Flow
from headwater.flow.endpoints import Sink, Source
from headwater.metrics import Report
from headwater_bench.experiments import gil
from headwater_bench.experiments.sustained import FLOWS as SUBJECTS
from headwater_bench.experiments.sustained import ROUND
from headwater_bench.experiments.trial import (
    BOUND_MS,
    CONFIGS,
    Trial,
    cores,
    machine,
    measured,
    median,
    of,
    spread,
    sustained_hz,
    sweep,
    write_csv,
)
from headwater_bench.experiments.warmed import Warmed
from headwater_bench.riot.etl import etl
from headwater_bench.riot.generate import messages, stream
from headwater_bench.riot.pred import pred
from headwater_bench.riot.sources import generated, repeated
from headwater_bench.riot.stats import stats
from headwater_bench.riot.train import train, triggers

FLOWS = ("etl", "stats", "pred", "train")
TAKES = ("all", "half", "50", "100")  #: the consumption policies that the paper's figure 11 compares
KERNELS = ("release", "keep")  #: what kernels do with the interpreter's lock while they compute
PADDINGS = (1_000, 4_000)  #: bytes by which messages are made longer; they have some 400
#: shares of the engine's capacity that are offered, closest where its curves bend
LOADS = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0)
SHOWN = ("pred", "stats", "etl")  #: the flows of the paper's figure 7
#: the flow of which is asked what is varied beside policies, unless an option says more; the paper's figure 11 has STATS
ASKED_OF = {"takes": "stats", "workers": "pred", "paddings": "pred"}
_PADDED = 2**12  #: messages that are made longer, and repeated
_MORE_THAN_ANY_HZ = 1e7
_COMPARED = ("threads", "longest_queue")  #: what is tried with longer messages


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be tried with one flow; plain data, since another process may have to do it."""

    flow: str
    rates: Sequence[float]
    configs: Sequence[str]
    takes: Sequence[str]
    workers: Sequence[int]
    paddings: Sequence[int]
    seconds: float
    repeats: int
    sink: str
    wide: bool


def run(
    quick: bool = False,
    output: Path | None = None,
    *,
    flows: Sequence[str] | None = None,
    configs: Sequence[str] | None = None,
    takes: Sequence[str] | None = None,
    workers: Sequence[int] | None = None,
    paddings: Sequence[int] | None = None,
    kernels: Sequence[str] | None = None,
    rates: Sequence[float] | None = None,
    sink: str = "null",
    wide: bool = False,
    seconds: float | None = None,
    repeats: int | None = None,
) -> dict[str, Any]:
    """Sweep rates; `rates` are messages per second, else shares of the capacity that a first run finds.

    `sink` is `null`, `broker` (started for the runs) or the `mqtt://` URL of one. `wide` runs ETL on whole
    rows. What is tried beside policies is tried with `longest_queue`.
    """
    names = _checked("flow", flows or (("etl", "pred") if quick else SHOWN), FLOWS)
    compared = _checked("configuration", configs or (("threads", "longest_queue") if quick else CONFIGS), CONFIGS)
    variations = {"takes": _checked("take", takes or (), TAKES), "workers": workers, "paddings": paddings}
    doing = _checked("way with the lock", kernels or (("release",) if quick else KERNELS), KERNELS)
    span = seconds or 1.0
    times = repeats or (1 if quick else 2)
    trials: list[Trial] = []
    answer: dict[str, Any] = {}
    with _broker(sink) as url:
        for name in names:
            offered = list(rates or _loads(capacity_hz(name, url, wide, span), quick))
            varied = {what: list(values or _by_default(what, name, quick)) for what, values in variations.items()}
            plan = Plan(name, offered, compared, **varied, seconds=span, repeats=times, sink=url, wide=wide)
            mine: list[Trial] = []
            for way in doing:
                mine += swept(plan) if way == "release" else gil.trials(asdict(plan))
            trials += mine
            answer[name] = _answer(mine, plan)
    answer |= {"machine": machine(), "sink": sink, "seconds": span, "repeats": times}
    if output is not None:
        _write(trials, answer, output)
    return answer


def _by_default(what: str, flow: str, quick: bool) -> Sequence[Any]:
    """Return what is varied of a flow where no option says so."""
    if quick or flow != ASKED_OF[what]:
        return ()
    return {"takes": TAKES, "workers": sorted({1, 2, cores(), 2 * cores()}), "paddings": PADDINGS}[what]


def _checked(what: str, names: Sequence[str], choices: Sequence[str]) -> list[str]:
    for name in names:
        if name not in choices:
            raise RunError(f"there is no {what} {name!r}; known are {listed(choices)}{suggestion(name, choices)}")
    return list(names)


@contextmanager
def _broker(sink: str) -> Iterator[str]:
    """Start a broker if one is asked for; the sink is then its URL."""
    if sink != "broker":
        yield sink
        return
    from headwater_bench.experiments.broker import broker

    with broker() as url:
        yield url


def swept(plan: Plan) -> list[Trial]:
    """Try all that a plan asks for: configurations and takes at every rate; workers and longer messages at every other."""
    few = plan.rates[1::2] or plan.rates
    results: list[Trial] = []
    with tempfile.TemporaryDirectory() as models:
        bench = _Bench(plan.flow, plan.sink, Path(models), plan.wide)
        bench.warm_up()
        tried = partial(bench.tried, plan.seconds)
        results += sweep(plan.rates, plan.configs, plan.repeats, tried)
        others = [take for take in plan.takes if take != "all"]  # that was tried
        results += sweep(
            plan.rates,
            others,
            1,
            lambda take, hz, n: tried("longest_queue", hz, n, take=take),
            by=lambda trial: trial.take,
        )
        results += sweep(
            few,
            [str(count) for count in plan.workers],
            1,
            lambda count, hz, n: tried("longest_queue", hz, n, workers=int(count)),
            by=lambda trial: str(trial.workers),
        )
        for padding in plan.paddings if plan.flow != "train" else ():
            compared = [config for config in plan.configs if config in _COMPARED]
            results += sweep(few, compared, 1, partial(bench.tried, plan.seconds, padding=padding))
    return results


class _Bench:
    """One flow to be run at many rates."""

    def __init__(self, name: str, sink: str, models: Path, wide: bool) -> None:
        self.name, self._sink, self._models, self._wide = name, sink, models, wide

    def source(self, rate_hz: float, padding: int = 0) -> Warmed | None:
        """Return messages at a rate, behind as many as make the flow warm; TRAIN has triggers, and what it learns from."""
        if self.name == "train":
            return None
        return Warmed(repeated(padded(padding), rate_hz), SUBJECTS[self.name].rounds * ROUND)

    def flow(self, rate_hz: float, source: Source | None) -> Flow:
        """Build the flow anew."""
        sink = _sink(self._sink, self.name)
        if source is None:
            return train(triggers(rate_hz), models=self._models, publish=sink)
        if self.name == "etl":
            return etl(source, publish=sink, wide=self._wide)
        return stats(source, publish=sink) if self.name == "stats" else pred(source, publish=sink)

    def check(self, report: Report) -> float:
        """Raise unless exactly what must come out came out; return records out for each message."""
        records, out = report.last.records_in, report.last.records_out
        expected = {"etl": {"insert": records, "publish": records}, "stats": {"publish": 10 * records}}.get(
            self.name, {"publish": 2 * records}
        )
        if self.name == "stats":
            expected["publish"] += report.last.steps["slr"].records_out
        if out != expected or report.dead_letters or report.left or report.shed:
            raise AssertionError(
                f"{self.name}: {records} in, {out} out, {report.dead_letters} dead, {report.left} left; "
                f"expected {expected}"
            )
        return sum(out.values()) / max(1, records) or 1.0

    def tried(
        self,
        seconds: float,
        config: str,
        rate_hz: float,
        repeat: int,
        *,
        take: str = "all",
        workers: int = 0,
        padding: int = 0,
    ) -> Trial:
        """Run one configuration at one rate."""
        source = self.source(rate_hz, padding)
        return measured(
            self.flow(rate_hz, source),
            self.check,
            subject=self.name,
            config=config,
            take=take,
            workers=workers,
            padding=padding,
            repeat=repeat,
            offered_hz=rate_hz,
            seconds=seconds,
            warmed=source,
        )

    def warm_up(self) -> None:
        """Run for a moment, and wait until what is needed is compiled."""
        # where kernels keep the lock, they are compiled while records wait
        source = None if self.name == "train" else generated("CITY", 500)
        engine.run(self.flow(20, source), seconds=0.5, hang="10 min")
        wait_until_compiled()


def _sink(sink: str, name: str) -> Sink | None:
    if sink == "null":
        return None
    from headwater.io import Mqtt

    return Mqtt(sink, f"riot/{name}", payload="text" if name == "etl" else "json")


@cache
def padded(padding: int) -> Text:
    """Return messages that say the same in more bytes: spaces, which any reader of JSON has to pass over."""
    plain = messages(stream("CITY"), 0, _PADDED if padding else ROUND)
    return Text.of([text[0] + " " * padding + text[1:] for text in plain.tolist()]) if padding else plain


def capacity_hz(name: str, sink: str, wide: bool, seconds: float) -> float:
    """Return how many messages per second the engine takes when there are always more."""
    with tempfile.TemporaryDirectory() as models:
        bench = _Bench(name, sink, Path(models), wide)
        bench.warm_up()
        return bench.tried(max(seconds, 1.0), "oldest_first", _MORE_THAN_ANY_HZ, 0).out_hz


def _loads(capacity_hz: float, quick: bool) -> list[float]:
    loads = (0.05, 0.1, 0.2, 0.4, 0.7, 1.0) if quick else LOADS
    return [float(f"{load * capacity_hz:.2g}") for load in loads]


def is_of_sweep(trial: Trial) -> bool:
    """Say whether a trial is of a configuration alone, all else as it is by default."""
    return trial.take == "all" and not trial.workers and not trial.padding


def _answer(trials: list[Trial], plan: Plan) -> dict[str, Any]:
    ways = {way: [trial for trial in trials if trial.kernels == way] for way in KERNELS}
    by_way = {way: _of_way(mine, plan) for way, mine in ways.items() if mine}
    first = next(iter(by_way.values()))
    return first | {
        "kernels": {way: {key: each[key] for key in ("sustained", "over_threads")} for way, each in by_way.items()},
        "cases": [asdict(trial) for trial in trials],
    }


def _of_way(trials: list[Trial], plan: Plan) -> dict[str, Any]:
    configs, swept = plan.configs, [trial for trial in trials if is_of_sweep(trial)]
    sustained = {config: sustained_hz(of(swept, config)) for config in configs}
    over_threads = {
        config: round(rate / sustained["threads"], 3)
        for config, rate in sustained.items()
        if config != "threads" and sustained.get("threads")
    }
    rates = sorted({trial.offered_hz for trial in swept})
    ours = [config for config in configs if config != "threads"]
    best = max(ours, key=lambda config: sustained[config]) if ours else None
    longest = [trial for trial in of(trials, "longest_queue") if not trial.padding]
    return {
        "longest_queue_over_threads": over_threads.get("longest_queue"),
        "best": best,
        "best_over_threads": over_threads.get(best or ""),
        "over_threads": over_threads,
        "sustained": sustained,
        "rates": rates,
        "cv": _by_rate(swept, configs, rates, "cv"),
        "p99_ms": _by_rate(swept, configs, rates, "p99_ms"),
        "p99_spread_ms": {c: [spread([t.p99_ms for t in of(swept, c, offered_hz=r)]) for r in rates] for c in configs},
        "takes": {take: _highest([t for t in longest if t.take == take and not t.workers]) for take in plan.takes},
        "workers": {str(count): _highest([t for t in longest if t.workers == count]) for count in plan.workers},
        "paddings": {
            str(padding): {
                config: _highest(of(trials, config, padding=padding, take="all", workers=0))
                for config in configs
                if config in _COMPARED
            }
            for padding in sorted({trial.padding for trial in trials})
        },
        "step_cost_us": _costs(swept),
    }


def _highest(trials: list[Trial]) -> dict[str, float | None]:
    """Return the highest rate that was sustained, and latency and balance there."""
    rate_hz = sustained_hz(trials)
    there = [trial for trial in trials if trial.offered_hz == rate_hz]
    return {"sustained_hz": rate_hz, "p99_ms": median(t.p99_ms for t in there), "cv": median(t.cv for t in there)}


def _by_rate(trials: list[Trial], configs: Sequence[str], rates: list[float], what: str) -> dict[str, Any]:
    return {c: [median(getattr(t, what) for t in of(trials, c, offered_hz=rate)) for rate in rates] for c in configs}


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
        for way, figures in flow["kernels"].items():
            rates = "  ".join(f"{config} {rate:,.0f}" for config, rate in figures["sustained"].items())
            lines.append(f"{name:6s} kernels {way} the lock: {rates}")
            lines.append(f"       longest queue / threads: {figures['over_threads'].get('longest_queue')}")
        lines.append(f"       best: {flow['best']}")
        costs = "  ".join(f"{step} {cost}" for step, cost in flow["step_cost_us"].items())
        lines.append(f"       cost per record, µs: {costs}")
        for what in ("take", "workers"):
            key = "takes" if what == "take" else what
            for value, figures in flow[key].items():
                lines.append(f"       {what} {value}: {figures['sustained_hz']:,.0f}/s, p99 {figures['p99_ms']} ms")
        for padding, by in flow["paddings"].items() if len(flow["paddings"]) > 1 else ():
            rates = "  ".join(f"{config} {figures['sustained_hz']:,.0f}" for config, figures in by.items())
            lines.append(f"       messages {int(padding):,} bytes longer: {rates}")
    return "\n".join(lines)


def _write(trials: list[Trial], answer: dict[str, Any], output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    write_csv(trials, output / "riot.csv")
    (output / "riot.txt").write_text(table(answer) + "\n")
    from headwater_bench.experiments.riot_figures import draw

    draw(trials, output)
