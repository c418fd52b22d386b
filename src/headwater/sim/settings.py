"""What can be chosen when a flow is played with the engine's own scheduler."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from headwater.engine.policy import DEFAULT, policy_named
from headwater.engine.scheduler import Take
from headwater.errors import RunError, listed, suggestion
from headwater.net.arrays import Floats
from headwater.sim.arrivals import Arrivals, Poisson

RUNNERS = ("engine", "threads")


@dataclass(frozen=True, slots=True)
class Costs:
    """What the engine takes beside the steps' own work; `headwater bench rehearsal` measures it."""

    activation_s: float = 0.0
    """Per activation: deciding, queueing, waking; one worker at a time."""
    inline_s: float = 0.0
    """Per step and batch: calling it and counting."""

    def __post_init__(self) -> None:
        for name in ("activation_s", "inline_s"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise RunError(f"costs: {name} must be 0 or more seconds; got {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class Stalls:
    """A device that stands still now and then: other programs, a hypervisor, an interpreter that tidies up."""

    every_s: float
    """Seconds between two stalls, on average."""
    length_s: float

    def __post_init__(self) -> None:
        if not (self.every_s > self.length_s >= 0):
            raise RunError(
                f"stalls of {self.length_s} s cannot come every {self.every_s} s; they must be shorter than that"
            )

    def times_s(self, until_s: float, random: np.random.Generator) -> tuple[Floats, Floats]:
        """Return when stalls begin and end, one after the other."""
        gaps = random.standard_exponential(int(2 * until_s / self.every_s) + 10) * (self.every_s - self.length_s)
        begin = np.cumsum(gaps + self.length_s) - self.length_s
        return begin, begin + self.length_s


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How devices schedule, and how long the flow is played."""

    seconds: float = 10.0
    seed: int = 0
    arrivals: Arrivals = field(default_factory=Poisson)
    policy: str = DEFAULT
    take: Take = "all"
    workers: int = 2
    queue_records: int = 10_000
    costs: Costs = field(default_factory=Costs)
    warm_up: float = 0.1
    tick_s: float = 0.0
    """A source that sleeps this long hands over at once what came meanwhile; 0 is record by record."""
    chunk: int = 256
    """Records that a source hands over at once, at most."""
    drain: bool = True
    """Whether to go on until nothing is left. If not, latency counts what arrived in time, as a look at a run does."""
    stalls: Stalls | None = None
    runner: str = "engine"
    """Or `threads`: a thread per step on `workers` cores; whoever has been ready longest runs."""

    def __post_init__(self) -> None:
        policy_named(self.policy)
        if self.workers < 1 or not self.seconds > 0:
            raise RunError(
                f"a device needs at least 1 worker and more than 0 s; got {self.workers} and {self.seconds} s"
            )
        if not 0 <= self.warm_up < 1:
            raise RunError(f"warm_up must be a part of the run, from 0 to below 1; got {self.warm_up}")
        if self.runner not in RUNNERS:
            raise RunError(
                f"there is no runner {self.runner!r} to play; runners are {listed(RUNNERS)}"
                f"{suggestion(self.runner, RUNNERS)}"
            )
