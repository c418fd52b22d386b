"""Figure 12 of EdgeWise: steps are spread over machines, and the highest rate is one below which all were kept."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from headwater.sim import Costs
from headwater_bench.experiments import nodes
from headwater_bench.experiments.nodes import SHARES, bound_hz, highest, spread_over


def problem(work):
    """A source and steps that take so many seconds of each message."""
    costs = np.array([0.0, *work])
    steps = tuple(f"step {i}" for i in range(len(costs)))
    return SimpleNamespace(steps=steps, service_s=costs[:, None], rate_hz=np.ones(len(costs)), sources=[0])


def test_the_dearest_steps_are_on_machines_of_their_own():
    device = spread_over(problem([3.0, 1.0, 2.0, 2.0]), 2)
    assert device[0] == 0
    assert device[1] != device[3]
    assert sorted(np.bincount(device[1:], weights=[3.0, 1.0, 2.0, 2.0])) == [4.0, 4.0]


def test_a_step_has_one_worker_at_a_time_however_many_machines_there_are():
    asked = problem([0.5, 0.25, 0.25])
    assert bound_hz(asked, spread_over(asked, 8)) == 2.0
    spread_out = problem([0.1] * 8)
    assert bound_hz(spread_out, spread_over(spread_out, 1)) == pytest.approx(1 / 0.8)


def test_the_highest_rate_does_not_jump_over_one_that_was_not_kept():
    found, p99_ms = highest(lambda rate_hz: (0.5 if 45 < rate_hz < 60 else 1.0, 10.0), 100.0)
    assert found == 40
    assert p99_ms == 10
    assert highest(lambda rate_hz: (1.0, 500.0), 100.0) == (0.0, 0.0)
    assert list(SHARES) == sorted(SHARES)


@pytest.mark.thorough
def test_machines_and_lanes_are_tried_told_and_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(nodes, "SHARES", (0.2,))
    monkeypatch.setattr(nodes, "calibrated", lambda workers, tries: {"engine": Costs(50e-6), "threads": Costs(100e-6)})
    answer = nodes.run(quick=True, output=tmp_path, seconds=0.1)
    assert {path.name for path in tmp_path.iterdir()} == {"nodes.csv", "nodes.txt", "figure12.png"}
    assert set(answer["simulated_hz"]["threads"]) == {"1", "2", "4", "8"}
    assert len(answer["cases"]) == 2 * 4 + len(answer["lanes_hz"])
    assert "1" in answer["lanes_hz"]
    assert "eight machines over one" in nodes.table(answer)
