"""Policies and thread-per-step side by side: what rate each sustains, at what latency, and how evenly steps are served.

The machine may be shared and its speed drift, so for each rate the configurations take turns (A B C A B C …), and every
comparison is a ratio of two runs that were neighbours in time, the median over repeats.
"""

from __future__ import annotations

import csv
import os
import platform
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headwater import engine
from headwater.bench.topologies import Topology, topologies
from headwater.engine.policy import POLICIES
from headwater.flow import Batch, Schema
from headwater.io import Replay
from headwater.metrics import variation

CONFIGS = ("threads", *POLICIES)
LOADS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.1, 1.25, 1.5)
BOUND_MS = 100.0
#: Beyond this many failed rates in a row a configuration is not driven further up.
_GIVE_UP = 3


@dataclass(frozen=True, slots=True)
class Case:
    """One configuration at one rate on one topology."""

    topology: str
    config: str
    load: float
    repeat: int
    offered_hz: float
    out_hz: float
    p50_ms: float
    p99_ms: float
    emit_p99_ms: float
    cv: float
    backpressure: float
    #: per step: T_Q, T_S, T_C in ms, ρ_w, records/s in, cost in µs
    steps: dict[str, dict[str, float]]
    #: how far the steps' shares of busy time are from the best weights (equation 4), 0 = equal
    eq4_off: float
    #: measured T_Q over the T_Q of equation 7, median over steps
    eq7_ratio: float | None

    @property
    def sustained(self) -> bool:
        """Whether the configuration kept up with the rate within the latency bound."""
        return self.p99_ms <= BOUND_MS and self.out_hz >= 0.97 * self.offered_hz


def run(
    quick: bool = False,
    output: Path | None = None,
    *,
    seconds: float | None = None,
    repeats: int | None = None,
    only: list[str] | None = None,
) -> dict[str, Any]:
    """Sweep rates on generated topologies; `quick` takes one of each shape and few rates."""
    seconds = seconds or (1.0 if quick else 2.0)
    repeats = repeats or (1 if quick else 2)
    chosen = [t for t in topologies() if (t.name in only if only else t.name.endswith("of 20") if quick else True)]
    if not chosen:
        raise ValueError(f"no such topology; there are {', '.join(t.name for t in topologies())}")
    loads = (0.5, 0.7, 0.8, 0.9, 1.0, 1.2) if quick else LOADS
    cases = [case for topology in chosen for case in _sweep(topology, loads, seconds, repeats)]
    answer = _answer(cases, chosen)
    answer["machine"] = f"{platform.machine()}, {_cores()} cores, Python {platform.python_version()}"
    answer["seconds"], answer["repeats"] = seconds, repeats
    if output is not None:
        _write(cases, answer, output)
    return answer


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _sweep(topology: Topology, loads: tuple[float, ...], seconds: float, repeats: int) -> list[Case]:
    numbers = Batch.of({"n": np.arange(4096)}, Schema.of({"n": int}))
    capacity = topology.capacity_hz(_cores())
    failed = dict.fromkeys(CONFIGS, 0)
    cases: list[Case] = []
    for load in loads:
        at_load: list[Case] = []
        for repeat in range(repeats):
            for config in CONFIGS:
                # capacity itself is measured for everyone, since balance is compared there
                if failed[config] < _GIVE_UP or load == 1.0:
                    at_load.append(_measure(topology, config, load, repeat, load * capacity, numbers, seconds))
        for config in CONFIGS:
            mine = [case.sustained for case in at_load if case.config == config]
            failed[config] = 0 if any(mine) else failed[config] + 1
        cases += at_load
    return cases


def _measure(
    topology: Topology, config: str, load: float, repeat: int, rate_hz: float, numbers: Batch, seconds: float
) -> Case:
    """Run one configuration, warm up for a while, then measure; nothing may be lost."""
    on, policy = ("threads", "longest_queue") if config == "threads" else ("engine", config)
    running = engine.start(topology.flow(Replay(numbers, rate=rate_hz)), on=on, policy=policy)
    time.sleep(0.4 * seconds)
    first = running.sample()
    time.sleep(seconds)
    last = running.sample()
    running.stop()
    report = running.wait()
    assert report is not None
    copies = topology.copies_out()
    if sum(report.last.records_out.values()) != copies * report.last.records_in or report.dead_letters:
        raise AssertionError(f"{topology.name} on {config}: {report.last.records_in} in, {report.last.records_out} out")
    span_s = last.at_s - first.at_s
    latency, emitted = last.latency.minus(first.latency), last.emit_latency.minus(first.emit_latency)
    steps = {name: last.steps[name].since(first.steps[name]) for name in last.steps if name != "source"}
    told = {
        name: {
            **{key: step.to_json()[key] for key in ("t_q_ms", "t_s_ms", "t_c_ms", "utilisation", "cost_us")},
            "in_hz": step.records_in / span_s,
        }
        for name, step in steps.items()
    }
    working = [step for name, step in steps.items() if not name.startswith(("sink", "meet"))]
    return Case(
        topology=topology.name,
        config=config,
        load=load,
        repeat=repeat,
        offered_hz=rate_hz,
        out_hz=(sum(last.records_out.values()) - sum(first.records_out.values())) / span_s / copies,
        p50_ms=latency.percentile(50) / 1e6,
        p99_ms=latency.percentile(99) / 1e6,
        emit_p99_ms=emitted.percentile(99) / 1e6,
        cv=variation([step.utilisation for step in working]),
        backpressure=(last.backpressure_s - first.backpressure_s) / span_s,
        steps=told,
        eq4_off=_eq4([step.busy_ns for step in working], topology),
        eq7_ratio=_eq7(told),
    )


def _eq4(busy_ns: list[int], topology: Topology) -> float:
    """Return half the sum of differences between the shares of time steps got and those that equation 4 calls best.

    Best is in proportion to q_i / r_i, a record's cost at the step times its records per input; 0 is equal, 1 is disjoint.
    """
    best = np.array(topology.costs_s) / sum(topology.costs_s)
    got = np.array(busy_ns, float)
    if len(got) != len(best) or not got.sum():
        return 1.0
    # steps come in another order than costs, so shares are compared sorted
    return float(np.abs(np.sort(got / got.sum()) - np.sort(best)).sum() / 2)


def _eq7(steps: dict[str, dict[str, float]]) -> float | None:
    """Return the median over steps of measured T_Q over ρ / (μ − λ), equation 7, with ρ = ρ_w and μ = λ / ρ_w."""
    ratios = []
    for step in steps.values():
        rho, arrivals = step["utilisation"], step["in_hz"]
        if 0.05 < rho < 0.99 and arrivals and step["t_q_ms"]:
            predicted_ms = rho / (arrivals / rho - arrivals) * 1e3
            ratios.append(step["t_q_ms"] / predicted_ms)
    return statistics.median(ratios) if ratios else None


def _answer(cases: list[Case], chosen: list[Topology]) -> dict[str, Any]:
    sustained = {t.name: {c: _sustained(cases, t.name, c) for c in CONFIGS} for t in chosen}

    def over_threads(config: str) -> list[float]:
        return [by[config] / by["threads"] for by in sustained.values() if by["threads"]]

    rates = {config: _median(over_threads(config)) for config in CONFIGS}
    ours = list(POLICIES)
    best = max(ours, key=lambda config: rates[config] or 0.0)
    return {
        "longest_queue_over_threads": rates["longest_queue"],
        "longest_queue_over_threads_spread": _spread(over_threads("longest_queue")),
        "best_over_threads": rates[best],
        "best": best,
        "over_threads": rates,
        "p99_ratio_at_70": _p99_ratio(cases, "longest_queue", 0.7),
        "p99_ratio_at_70_by_policy": {config: _p99_ratio(cases, config, 0.7) for config in ours},
        "p99_over_best_of_four": _p99_over_best(cases),
        "cv_at_capacity": {c: _median([k.cv for k in cases if k.config == c and k.load == 1.0]) for c in CONFIGS},
        "cv_by_load": {c: _by_load(cases, c, "cv") for c in CONFIGS},
        "p99_by_load": {c: _by_load(cases, c, "p99_ms") for c in CONFIGS},
        "eq4_off_at_capacity": {
            c: _median([k.eq4_off for k in cases if k.config == c and k.load == 1.0]) for c in CONFIGS
        },
        "eq7_ratio": {
            c: _median([k.eq7_ratio for k in cases if k.config == c and k.eq7_ratio is not None and k.load < 1])
            for c in CONFIGS
        },
        "sustained_of_capacity": sustained,
        "cases": [{name: getattr(case, name) for name in Case.__slots__} for case in cases],
    }


def _sustained(cases: list[Case], topology: str, config: str) -> float:
    """Return the highest load, as a share of capacity, that was sustained in the median of repeats, all lower ones too."""
    best = 0.0
    mine = [case for case in cases if case.topology == topology and case.config == config]
    for load in sorted({case.load for case in mine}):
        at = [case for case in mine if case.load == load]
        p99 = statistics.median(case.p99_ms for case in at)
        kept = statistics.median(case.out_hz / case.offered_hz for case in at)
        if p99 <= BOUND_MS and kept >= 0.97:
            best = load
    return best


def _p99_ratio(cases: list[Case], config: str, load: float) -> float | None:
    """Return the p99 of a configuration over that of threads, run by neighbouring run, the median over all."""
    ratios = []
    for case in cases:
        if case.config == config and case.load == load:
            rivals = [k for k in cases if k.config == "threads" and _same_turn(k, case)]
            ratios += [case.p99_ms / rival.p99_ms for rival in rivals if rival.p99_ms]
    return _median(ratios)


def _p99_over_best(cases: list[Case]) -> float | None:
    """Return the p99 of oldest_first over the best p99 of the paper's four policies, the geometric mean over all cases."""
    ratios = []
    four = ("longest_queue", "random", "min_latency", "min_memory")
    for case in cases:
        if case.config == "oldest_first" and 0.7 <= case.load <= 1.0:
            best = min((k.p99_ms for k in cases if k.config in four and _same_turn(k, case)), default=0.0)
            if best and case.p99_ms:  # 0 when no record reached a sink in time
                ratios.append(case.p99_ms / best)
    return round(float(np.exp(np.mean(np.log(ratios)))), 3) if ratios else None


def _same_turn(a: Case, b: Case) -> bool:
    return (a.topology, a.load, a.repeat) == (b.topology, b.load, b.repeat)


def _by_load(cases: list[Case], config: str, what: str) -> dict[str, float | None]:
    loads = sorted({case.load for case in cases})
    return {
        str(load): _median([getattr(k, what) for k in cases if k.config == config and k.load == load]) for load in loads
    }


def _median(values: list[float]) -> float | None:
    return round(statistics.median(values), 3) if values else None


def _spread(values: list[float]) -> list[float]:
    return [round(min(values), 3), round(max(values), 3)] if values else []


def table(answer: dict[str, Any]) -> str:
    """Return the answer for people."""
    lines = [f"{'configuration':15s} sustained/threads  p99/threads at 70 %  CV at 100 %  eq. 4 off  T_Q / eq. 7"]
    for config in CONFIGS:
        ratio = answer["over_threads"][config]
        p99 = answer["p99_ratio_at_70_by_policy"].get(config, 1.0)
        cv, off = answer["cv_at_capacity"][config], answer["eq4_off_at_capacity"][config]
        eq7 = answer["eq7_ratio"][config]
        lines.append(f"{config:15s} {ratio!s:>17}  {p99!s:>19}  {cv!s:>11}  {off!s:>9}  {eq7!s:>11}")
    lines.append(
        f"best: {answer['best']}; oldest_first's p99 over the best of the paper's four, case by case: "
        f"{answer['p99_over_best_of_four']}"
    )
    lines.append("sustained, as a share of capacity (p99 <= 100 ms):")
    for topology, by in answer["sustained_of_capacity"].items():
        lines.append(f"  {topology:14s} " + "  ".join(f"{config} {rate:.2f}" for config, rate in by.items()))
    return "\n".join(lines)


def _write(cases: list[Case], answer: dict[str, Any], output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    names = [name for name in Case.__slots__ if name != "steps"]
    with (output / "scheduler.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(names)
        rows.writerows([getattr(case, name) for name in names] for case in cases)
    (output / "scheduler.txt").write_text(table(answer) + "\n")
    from headwater.bench.plots import throughput_latency

    throughput_latency(
        [(c.topology, c.config, c.out_hz, c.p99_ms, c.load, c.cv) for c in cases], output / "scheduler.png"
    )
