"""What the placement's own model expects: the mean age of a record at every step and sink."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from headwater.net.arrays import Floats, Ints
from headwater.place.problem import Problem
from headwater.place.score import step_times, stream_times


def ages_s(problem: Problem, device: Ints) -> Floats:
    """The mean age of a record as it leaves each step, windows left out."""
    step_s, stream_s = step_times(problem, device), stream_times(problem, device)
    age = np.zeros(len(problem.steps))
    for step in problem.order:
        streams = list(problem.inputs[step])
        flow = problem.stream_hz[streams]
        if len(streams) and flow.sum() > 0:
            age_in = np.array([age[problem.stream_from[e]] + stream_s[e] for e in streams])
            age[step] = float(flow @ age_in / flow.sum())
        age[step] += step_s[step]
    return age


def by_sink(
    problem: Problem, device: Ints, simulated_s: Mapping[str, float], records: Mapping[str, int]
) -> dict[str, dict[str, float | None]]:
    """For each sink, what was expected of it beside what was played; None is expected where a queue grows without end."""
    expected = {problem.steps[s]: float(age) for s, age in enumerate(ages_s(problem, device))}
    return {
        name: {
            "predicted_s": expected[name] if math.isfinite(expected[name]) else None,
            "simulated_s": simulated_s[name],
            "records": records[name],
        }
        for name in (problem.steps[s] for s in problem.sinks)
    }


def latency_s(problem: Problem, device: Ints) -> float:
    """The mean latency over all records that reach a sink."""
    age = ages_s(problem, device)
    sinks = [s for s in problem.sinks if problem.rate_hz[s] > 0]
    rates = problem.rate_hz[sinks]
    return float(rates @ age[sinks] / rates.sum()) if rates.sum() > 0 else 0.0
