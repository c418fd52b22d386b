"""Which policy would serve a flow best? Each one plays it in virtual time at rising load."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from headwater.engine.policy import POLICIES
from headwater.net.arrays import Ints
from headwater.place.explain import slower
from headwater.place.problem import Problem
from headwater.sim.engine import run
from headwater.sim.settings import EngineOptions


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """One policy at one load."""

    policy: str
    load: float
    """Rates relative to the problem's own."""
    p50_ms: float
    p99_ms: float
    late_s: float
    """How long after the last record came the last one left."""

    def sustained(self, bound_ms: float) -> bool:
        """Whether the flow kept up within a latency bound."""
        return self.p99_ms <= bound_ms


def rehearse(
    problem: Problem,
    device: Ints,
    loads: Iterable[float],
    *,
    policies: Sequence[str] = tuple(POLICIES),
    options: EngineOptions | None = None,
) -> list[Rehearsal]:
    """Play a placed flow with every policy at every load; all of them meet the same records."""
    options, out = options or EngineOptions(), []
    for load in loads:
        loaded = slower(problem, load)
        for policy in policies:
            report = run(loaded, device, dataclasses.replace(options, policy=policy))
            latency = report.last.latency
            late = report.seconds - options.seconds
            out.append(Rehearsal(policy, load, latency.percentile(50) / 1e6, latency.percentile(99) / 1e6, late))
    return out


def ranking(rehearsals: Sequence[Rehearsal], *, bound_ms: float = 100.0) -> list[str]:
    """Policies from best to worst: by the highest load they sustain, then by p99 over all loads."""

    def worth(policy: str) -> tuple[float, float]:
        own = [r for r in rehearsals if r.policy == policy]
        kept = max((r.load for r in own if r.sustained(bound_ms)), default=0.0)
        return -kept, float(np.exp(np.mean(np.log([max(r.p99_ms, 1e-6) for r in own]))))

    return sorted({r.policy for r in rehearsals}, key=worth)
