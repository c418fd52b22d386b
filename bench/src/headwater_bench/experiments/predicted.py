"""Experiment `predicted`: what a plan expects of the engine, beside what the simulator plays and what the engine does.

Chains of steps on one device, from idle to nearly full: the latency that each model of time expects, the same in virtual
time, and measured. Records come at random moments, as the models have it. A busy machine makes the measured column longer,
never shorter; what the models differ by is far more than that.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from headwater import engine, sim
from headwater import net as nets
from headwater.engine.profiler import profile
from headwater.flow import Batch, Schema
from headwater.flow.profile import Profile
from headwater.io import Generate
from headwater.place.from_flow import problem_of
from headwater.place.problem import Model, Problem
from headwater.sim.predict import latency_s
from headwater_bench.experiments.batch_source import BatchSource
from headwater_bench.experiments.rows import write_rows
from headwater_bench.experiments.topologies import Topology

LOADS = (0.2, 0.5, 0.7, 0.8, 0.9)
CHAINS = (Topology("5 steps of 100 µs", "chain", (100e-6,) * 5), Topology("20 steps of 50 µs", "chain", (50e-6,) * 20))
MODELS = (Model.QUEUE, Model.SHARED, Model.ENGINE)
_TRIES = 5
_NUMBERS = Schema.of({"n": int})


def run(quick: bool = False, output: Path | None = None) -> dict[str, Any]:
    """Plan, play and measure each chain at each load; `quick` takes three loads."""
    rows = []
    for chain in CHAINS:
        problem = measured_problem(chain)
        for load in (0.2, 0.5, 0.8) if quick else LOADS:
            rows.append(_row(chain, problem, load, seconds=2.0 if quick else 5.0))
    worst = {m.value: max(_off(row[m.value], row["measured"]) for row in rows) for m in MODELS}
    answer = {"rows": rows, "off_by_at_most": worst}
    if output is not None:
        write_rows(rows, output / "predicted.csv")
    return answer


def measured_problem(chain: Topology) -> Problem:
    """A chain on one device at one record per second, with the least of what a few profiles saw."""
    batches = [Batch.of({"n": np.arange(250)}, _NUMBERS) for _ in range(2)]
    flow, net = chain.flow(BatchSource(batches, _NUMBERS)), nets.cloud_edge(1, 1, 1)
    tries = [profile(flow, records=500).steps for _ in range(_TRIES)]
    least = {
        name: dataclasses.replace(
            step, time_s=min(t[name].time_s for t in tries), overhead_s=min(t[name].overhead_s for t in tries)
        )
        for name, step in tries[0].items()
    }
    return problem_of(flow, net, Profile(flow.name, net.classes[int(net.class_of[0])].name, least), 1.0)


def _row(chain: Topology, problem: Problem, load: float, seconds: float) -> dict[str, Any]:
    rate_hz = load / float(problem.load[:, problem.net.class_of[0]].sum())
    loaded = dataclasses.replace(problem, rate_hz=problem.rate_hz * rate_hz, stream_hz=problem.stream_hz * rate_hz)
    device = np.zeros(len(loaded.steps), int)
    expected = {m.value: 1e3 * latency_s(dataclasses.replace(loaded, model=m), device) for m in MODELS}
    played = sim.run_engine(loaded, device, sim.EngineOptions(seconds=max(seconds, 5000 / rate_hz), workers=1))
    report = engine.run(chain.flow(_at_random(rate_hz, seconds)), workers=1)
    return (
        {"chain": chain.name, "load": load, "rate_hz": rate_hz}
        | expected
        | {"played": played.last.latency.mean() / 1e6, "measured": report.last.latency.mean() / 1e6}
    )


def _at_random(rate_hz: float, seconds: float) -> Generate:
    """A source whose records come at the moments of a Poisson process."""
    moments = sim.Poisson().times_s(rate_hz, seconds, np.random.default_rng(1))
    return Generate(lambda number: {"n": number}, {"n": int}, rate=_Moments(moments), count=len(moments), tick="0 ms")


class _Moments:
    """A rate by the moments at which records are due."""

    def __init__(self, moments_s: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
        self._moments_s = moments_s

    def when(self, number: Any) -> Any:
        """When the numbered records, counted from 1, are due."""
        return self._moments_s[np.minimum(np.asarray(number) - 1, len(self._moments_s) - 1)]

    def due(self, seconds: float) -> float:
        """How many records are due by then."""
        return float(np.searchsorted(self._moments_s, seconds, "right"))


def _off(expected: float, measured: float) -> float:
    return max(expected / measured, measured / expected)


def table(answer: dict[str, Any]) -> str:
    """Write the answer as a table, in milliseconds."""
    names = [m.value for m in MODELS]
    lines = [f"{'mean latency in ms':<20} {'load':>5} " + " ".join(f"{n:>9}" for n in (*names, "played", "measured"))]
    for row in answer["rows"]:
        numbers = " ".join(f"{row[n]:9.3f}" for n in (*names, "played", "measured"))
        lines.append(f"{row['chain']:<20} {row['load']:5.2f} {numbers}")
    worst = ", ".join(f"{name} {factor:.1f}" for name, factor in answer["off_by_at_most"].items())
    return "\n".join([*lines, f"off by a factor of at most: {worst}"])
