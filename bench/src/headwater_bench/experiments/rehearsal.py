"""Experiment `rehearsal`: does the simulator rank policies as the engine does?

Every policy and the thread-per-step baseline run for real and in virtual time, on the same topologies at the same rates,
real runs interleaved. The simulator is told what each step costs, what an activation costs on this machine and how often it
stands still, nothing about policies.
"""

from __future__ import annotations

import csv
import dataclasses
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from headwater import engine, sim
from headwater import net as nets
from headwater.errors import RunError, listed
from headwater.flow import Batch, Schema
from headwater.flow.profile import Profile, StepProfile
from headwater.metrics import Report, Sample
from headwater.operators import Operator, build
from headwater.place.from_flow import problem_of
from headwater.place.problem import Problem
from headwater_bench.experiments.batch_source import BatchSource
from headwater_bench.experiments.scheduler import measure
from headwater_bench.experiments.topologies import Topology, Work, topologies
from headwater_bench.experiments.trial import BOUND_MS, CONFIGS, Trial

LOADS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
TAKE, TICK_S = 50, 1e-3
_WARM_UP = 0.4  #: of the measured time, that a run is given before it, as `trial` does
_TRIES = 7
_GAP_S = 5e-4
#: Every machine stands still at times, if only because Python's lock may be kept for its switch interval of 5 ms.
LEAST_STALLS = sim.Stalls(every_s=0.1, length_s=0.005)
_NUMBERS = Schema.of({"n": int})


@dataclasses.dataclass(frozen=True, slots=True)
class Pair:
    """One configuration at one rate on one topology, measured and simulated."""

    topology: str
    config: str
    load: float
    repeat: int
    real_p99_ms: float
    real_kept: float
    """Records out over records offered."""
    sim_p99_ms: float
    sim_kept: float


def run(
    quick: bool = False,
    output: Path | None = None,
    *,
    seconds: float | None = None,
    repeats: int | None = None,
    only: list[str] | None = None,
) -> dict[str, Any]:
    """Measure and simulate; `quick` takes two topologies and three rates."""
    seconds, repeats = seconds or (0.6 if quick else 1.0), repeats or (1 if quick else 2)
    few = (
        ("chain of 10", "fan-out of 20") if quick else ("chain of 10", "diamond of 20", "fan-out of 20", "chain of 40")
    )
    names = [t.name for t in topologies()]
    if unknown := set(only or ()) - set(names):
        raise RunError(f"there is no topology {min(unknown)!r}; there are {listed(names)}")
    cases = [t for t in topologies() if t.name in (only or few)]
    workers = engine.Options().workers
    costs, (stalls, share) = calibrated(workers), stalls_here(workers)
    pairs: list[Pair] = []
    for topology in cases:
        problem = problem_of_topology(topology)
        for load in (0.6, 0.8, 0.95) if quick else LOADS:
            rate_hz = load * topology.capacity_hz(workers)
            for repeat in range(repeats):
                for config in CONFIGS:
                    real = measure(topology, config, rate_hz, seconds, repeat)
                    played = simulated(problem, config, rate_hz, seconds, workers, costs[_runner(config)], stalls).last
                    pairs.append(_pair(load, real, played, seconds, topology.copies_out()))
    answer = _answer(pairs) | {"seconds": seconds, "repeats": repeats, "topologies": [t.name for t in cases]}
    answer["stalls_ms"] = {"every": 1e3 * stalls.every_s, "length": 1e3 * stalls.length_s}
    answer["share_of_cores"] = round(share, 3)
    answer["costs_us"] = {k: {"activation": 1e6 * c.activation_s, "inline": 1e6 * c.inline_s} for k, c in costs.items()}
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        with (output / "rehearsal.csv").open("w", newline="") as file:
            rows = csv.DictWriter(file, list(Pair.__slots__))
            rows.writeheader()
            rows.writerows(dataclasses.asdict(pair) for pair in pairs)
        (output / "rehearsal.txt").write_text(table(answer) + "\n")
    return answer


def calibrated(workers: int, tries: int = _TRIES) -> dict[str, sim.Costs]:
    """Measure what an activation costs each runner here beside the steps' work, and a cheap step that runs inline.

    Processor time counts, since a busy machine stretches the clock but not that. Threads also lose time by waiting for
    each other, so for them the clock counts as well, as a ratio to the engine's: with `s` seconds that threads cannot
    share and `c` that they can, an activation takes max(s, (s + c) / workers) when there is always work.
    """
    cost_s = 10e-6  # so much that it does not run inline
    work_s = TAKE * cost_s
    activations = Topology("activations", "chain", (cost_s,) * 4)
    took = {name: _Spent() for name in ("engine", "threads", "few inline", "many inline")}
    few, many = (Topology("inline", "chain", (cost_s, *(0.1e-6,) * n)) for n in (4, 20))
    for _ in range(tries):
        took["engine"].add(activations, "engine", workers, steps=4)
        took["threads"].add(activations, "threads", workers, steps=4)
        took["few inline"].add(few, "engine", 1, steps=1)
        took["many inline"].add(many, "engine", 1, steps=1)
    inline_s = max(0.0, (took["many inline"].processor_s - took["few inline"].processor_s) / 16 - TAKE * 0.1e-6)
    activation_s = max(0.0, took["engine"].processor_s - work_s)
    clock_s = max(activation_s, (activation_s + work_s) / workers) * took["threads"].clock_s / took["engine"].clock_s
    shared_s = workers * clock_s - work_s
    switch_s = shared_s if shared_s * (workers - 1) <= work_s else clock_s
    switch_s = max(switch_s, took["threads"].processor_s - work_s, 0.0)
    return {"engine": sim.Costs(max(0.0, activation_s - inline_s), inline_s), "threads": sim.Costs(switch_s)}


class _Spent:
    """The least time that an activation took in several runs of a chain at full speed."""

    def __init__(self) -> None:
        self.processor_s = self.clock_s = float("inf")

    def add(self, topology: Topology, runner: str, workers: int, *, steps: int) -> None:
        """Run once more and share the time out to the activations of the first steps."""
        batches = [Batch.of({"n": np.arange(250)}, _NUMBERS) for _ in range(100)]
        flow, start_s = topology.flow(BatchSource(batches, _NUMBERS)), time.process_time()
        report = engine.run(flow, on=runner, take=TAKE, workers=workers)
        activations = sum(report.last.steps[f"step {i}"].records_in for i in range(steps)) / TAKE
        self.processor_s = min(self.processor_s, (time.process_time() - start_s) / activations)
        self.clock_s = min(self.clock_s, report.seconds / activations)


def stalls_here(workers: int) -> tuple[sim.Stalls, float]:
    """Watch threads that only compute for a second: how often and how long do they stand still, and what share is left?"""
    gaps: list[list[float]] = [[] for _ in range(workers)]
    work = Work(10e-6)
    batch = Batch.of({"n": np.arange(1)}, _NUMBERS)

    def watch(own: list[float]) -> None:
        last, end = time.perf_counter(), time.perf_counter() + 1.0
        while last < end:
            work.process(batch, 0)
            now = time.perf_counter()
            if now - last > _GAP_S:
                own.append(now - last)
            last = now

    threads = [threading.Thread(target=watch, args=(own,)) for own in gaps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lengths_s = [gap for own in gaps for gap in own]
    share = max(0.0, 1 - sum(lengths_s) / workers)
    if sum(lengths_s) / workers <= LEAST_STALLS.length_s / LEAST_STALLS.every_s:
        return LEAST_STALLS, share
    return sim.Stalls(every_s=workers / len(lengths_s), length_s=sum(lengths_s) / len(lengths_s)), share


def problem_of_topology(topology: Topology) -> Problem:
    """Put a topology's flow on one device; it brings one record per second."""
    flow, net = topology.flow(BatchSource([], _NUMBERS)), nets.cloud_edge(1, 1, 1)
    steps = {step.name: StepProfile(0.0 if step.is_source else _cost_s(build(step))) for step in flow.in_order()}
    return problem_of(flow, net, Profile(topology.name, net.classes[net.class_of[0]].name, steps), 1.0)


def _cost_s(operator: Operator) -> float:
    """Return an operator's seconds per record; even a sink takes some, and so do activations and a queue."""
    return operator.cost_s if isinstance(operator, Work) else 1e-9


def simulated(
    problem: Problem,
    config: str,
    rate_hz: float,
    seconds: float,
    workers: int,
    costs: sim.Costs,
    stalls: sim.Stalls,
) -> Report:
    """Play a flow on one device as long, and look at the same stretch of it, as a measurement does."""
    loaded = dataclasses.replace(problem, rate_hz=problem.rate_hz * rate_hz, stream_hz=problem.stream_hz * rate_hz)
    policy = engine.Options().policy if config == "threads" else config
    options = sim.EngineOptions(
        seconds=(1 + _WARM_UP) * seconds,
        warm_up=_WARM_UP / (1 + _WARM_UP),
        arrivals=sim.Constant(),
        policy=policy,
        take="all",
        workers=workers,
        costs=costs,
        tick_s=TICK_S,
        drain=False,
        stalls=stalls,
        runner=_runner(config),
    )
    return sim.run_engine(loaded, np.zeros(len(problem.steps), int), options)


def _runner(config: str) -> str:
    return "threads" if config == "threads" else "engine"


def _pair(load: float, real: Trial, played: Sample, seconds: float, copies: int) -> Pair:
    span_s = (1 + _WARM_UP) * seconds
    never_ms = 1e3 * span_s  # where no record arrived in time, p99 is at least the whole run
    return Pair(
        topology=real.subject,
        config=real.config,
        load=load,
        repeat=real.repeat,
        real_p99_ms=real.p99_ms or never_ms,
        real_kept=real.out_hz / real.offered_hz,
        sim_p99_ms=played.latency.percentile(99) / 1e6 or never_ms,
        sim_kept=sum(played.records_out.values()) / (copies * span_s * real.offered_hz),
    )


def _answer(pairs: list[Pair]) -> dict[str, Any]:
    by_config = {config: _of(pairs, config) for config in CONFIGS}
    figures = {name: {c: by_config[c][name] for c in CONFIGS} for name in next(iter(by_config.values()))}
    ours = [config for config in CONFIGS if config != "threads"]
    agreement = {}
    for what in ("p99_ms", "sustained"):
        real, simulated = figures[f"real_{what}"], figures[f"sim_{what}"]
        agreement[what] = rank_correlation([real[c] for c in CONFIGS], [simulated[c] for c in CONFIGS])
        agreement[f"{what}, policies alone"] = rank_correlation([real[c] for c in ours], [simulated[c] for c in ours])
    cases = [(p.real_p99_ms, p.sim_p99_ms) for p in pairs]
    return {
        "rank_correlation": agreement["p99_ms"],
        "rank_correlation_sustained": agreement["sustained"],
        "rank_correlation_policies_alone": agreement["p99_ms, policies alone"],
        "rank_correlation_sustained_policies_alone": agreement["sustained, policies alone"],
        "rank_correlation_of_cases": rank_correlation(*(list(column) for column in zip(*cases, strict=True))),
        "pairs_in_order": _in_order(pairs),
        "by_config": by_config,
        "cases": [dataclasses.asdict(pair) for pair in pairs],
    }


def _of(pairs: list[Pair], config: str) -> dict[str, float]:
    """Return a configuration's p99, the geometric mean over all cases, and the share of capacity that it sustains."""
    own = [pair for pair in pairs if pair.config == config]
    out = {}
    for kind in ("real", "sim"):
        p99 = np.array([getattr(pair, f"{kind}_p99_ms") for pair in own])
        out[f"{kind}_p99_ms"] = round(float(np.exp(np.log(np.maximum(p99, 1e-3)).mean())), 3)
        out[f"{kind}_sustained"] = round(float(np.mean(_sustained(own, kind))), 3)
    return out


def _sustained(own: list[Pair], kind: str) -> list[float]:
    """Return the highest load that was kept within the bound, for each topology; medians over repeats."""
    highest = []
    for topology in dict.fromkeys(pair.topology for pair in own):
        best = 0.0
        for load in sorted({pair.load for pair in own}):
            at = [pair for pair in own if (pair.topology, pair.load) == (topology, load)]
            p99 = np.median([getattr(pair, f"{kind}_p99_ms") for pair in at])
            share = np.median([getattr(pair, f"{kind}_kept") for pair in at])
            best = load if p99 <= BOUND_MS and share >= 0.97 else best
        highest.append(best)
    return highest


def _in_order(pairs: list[Pair]) -> float | None:
    """Return the share of clear differences that the simulator has the right way round.

    Clear is a p99 that differs by a quarter or more, in the median of repeats, between two configurations in one place.
    """
    right = clear = 0
    cells = {(p.topology, p.load) for p in pairs}
    for topology, load in cells:
        at = [p for p in pairs if (p.topology, p.load) == (topology, load)]
        real = {c: float(np.median([p.real_p99_ms for p in at if p.config == c])) for c in CONFIGS}
        played = {c: float(np.median([p.sim_p99_ms for p in at if p.config == c])) for c in CONFIGS}
        for i, a in enumerate(CONFIGS):
            for b in CONFIGS[i + 1 :]:
                if max(real[a], real[b]) > 1.25 * min(real[a], real[b]):
                    clear += 1
                    right += (real[a] < real[b]) == (played[a] < played[b])
    return round(right / clear, 3) if clear else None


def rank_correlation(a: list[float], b: list[float]) -> float | None:
    """Return Spearman's correlation of two lists; equal values share their mean rank. None if either is constant.

    >>> rank_correlation([1.0, 2.0, 3.0], [10.0, 30.0, 20.0])
    0.5
    """
    ranks = []
    for values in (np.array(a), np.array(b)):
        below, up_to = ((values[:, None] > values).sum(axis=1), (values[:, None] >= values).sum(axis=1))
        ranks.append((below + up_to) / 2)
    if not all(np.ptp(rank) for rank in ranks):
        return None
    return round(float(np.corrcoef(*ranks)[0, 1]), 3)


def table(answer: dict[str, Any]) -> str:
    """Return the answer for people."""
    lines = [f"{'configuration':15s} p99 ms, real  simulated   sustained, real  simulated"]
    for config, row in answer["by_config"].items():
        lines.append(
            f"{config:15s} {row['real_p99_ms']:12.2f}  {row['sim_p99_ms']:9.2f}   {row['real_sustained']:15.2f}  "
            f"{row['sim_sustained']:9.2f}"
        )
    lines += [
        f"rank correlation by configuration: p99 {answer['rank_correlation']}, sustained rate "
        f"{answer['rank_correlation_sustained']}",
        f"the same without threads: p99 {answer['rank_correlation_policies_alone']}, sustained rate "
        f"{answer['rank_correlation_sustained_policies_alone']}",
        f"rank correlation of p99 over all cases {answer['rank_correlation_of_cases']}; of the clear differences between "
        f"two configurations the simulator has {answer['pairs_in_order']} the right way round",
        f"this process had {answer['share_of_cores']:.0%} of its cores; below 90 % the real figures say little",
        f"stalls: {answer['stalls_ms']['length']:.1f} ms every {answer['stalls_ms']['every']:.0f} ms; costs, µs: "
        + "; ".join(
            f"{k}: activation {c['activation']:.1f}, inline step {c['inline']:.1f}"
            for k, c in answer["costs_us"].items()
        ),
    ]
    return "\n".join(lines)
