"""What a plan expects of the engine, against the engine's own machine in virtual time: loosely, over loads and shapes."""

import dataclasses

import numpy as np
import pytest

from headwater import net as nets
from headwater import sim
from headwater.place.problem import Model, Problem

NET = nets.cloud_edge(1, 1, 2)
#: steps, seconds per record, seconds per activation
CHAINS = [(20, 50e-6, 0.0), (5, 100e-6, 0.0), (10, 20e-6, 20e-6), (5, 10e-6, 100e-6)]


def chain(steps: int, work_s: float, overhead_s: float, busy: float) -> Problem:
    """A chain on one device, at a rate that keeps it so busy when turns are full."""
    n, rate = steps + 1, busy / (steps * (work_s + overhead_s / 50))

    def cost(seconds: float) -> np.ndarray:
        return np.repeat(np.array([0.0] + [seconds] * steps)[:, None], 3, axis=1)

    return Problem(
        "chain",
        NET,
        Model.ENGINE,
        tuple(f"s{i}" for i in range(n)),
        cost(work_s),
        np.full(n, rate),
        np.arange(steps),
        np.arange(1, n),
        np.full(steps, rate),
        np.zeros(steps),
        np.full(n, -1),
        overhead_s=cost(overhead_s),
    )


@pytest.mark.parametrize("busy", [0.1, 0.5, 0.8, 0.9])
@pytest.mark.parametrize("shape", CHAINS)
def test_a_plan_expects_what_the_engines_machine_does(shape, busy):
    steps, work_s, overhead_s = shape
    problem = chain(steps, work_s, overhead_s, busy)
    seconds = float(np.clip(15_000 / problem.rate_hz[0], 1, 20))
    device = np.zeros(len(problem.steps), int)
    row = sim.run_engine(problem, device, sim.EngineOptions(seconds=seconds, workers=1)).extra["sinks"]
    ((_, played),) = row.items()
    assert 0.5 < played["predicted_s"] / played["simulated_s"] < 2


def test_the_papers_queues_expect_far_too_little_of_one_device():
    # 20 steps that fill 95 % of a device: 1.05 ms if each had a processor of its own
    problem = chain(20, 50e-6, 0.0, 0.95)
    device = np.zeros(len(problem.steps), int)
    options = sim.EngineOptions(seconds=20, workers=1)
    expected = {}
    for model in (Model.QUEUE, Model.ENGINE):
        (row,) = sim.run_engine(dataclasses.replace(problem, model=model), device, options).extra["sinks"].values()
        expected[model] = row["predicted_s"] / row["simulated_s"]
    assert expected[Model.QUEUE] < 0.15
    assert 0.5 < expected[Model.ENGINE] < 2
