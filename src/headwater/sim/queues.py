"""Plays a placement in virtual time with the model that it was planned by.

Under `queue` and `round-robin`, every step and used link is a queue of its own; under `shared`, see `sharing`. The model
`engine` is not made of such queues: `engine.run` plays it.

The graph runs one way, so each queue is played from start to end before the next: arrays in, arrays out, no
list of events. What a step puts out is thinned, doubled or split at random to the rate of each stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from headwater.errors import RunError
from headwater.histogram import Histogram
from headwater.metrics import Report, Sample, StepMetrics
from headwater.net.arrays import Floats, Ints
from headwater.place.problem import Model, Problem
from headwater.place.score import step_times, stream_times
from headwater.sim.arrivals import Arrivals, Poisson
from headwater.sim.predict import by_sink


class Service(StrEnum):
    """How long a record takes: exponential about its mean, as M/M/1 has it, or always the same."""

    EXPONENTIAL = "exponential"
    CONSTANT = "constant"


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """How a placement is played."""

    seconds: float = 60.0
    seed: int = 0
    arrivals: Mapping[str, Arrivals] | Arrivals = field(default_factory=Poisson)
    """One kind for all sources, or one per source."""
    service: Service | None = None
    """None takes what the problem's model assumes: exponential for queues, constant for round-robin."""
    warm_up: float = 0.1
    """The first part of the run that latency leaves out."""

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise RunError(f"a simulation must last longer than 0 s; got {self.seconds}")
        if not 0 <= self.warm_up < 1:
            raise RunError(f"warm_up must be a part of the run, from 0 to below 1; got {self.warm_up}")


RecordTimes = tuple[Floats, Floats]
"""Times, and when each record was created."""


def run(problem: Problem, device: Ints, options: QueueOptions | None = None) -> Report:
    """Play a placed flow; the report's `extra` has the predicted and the simulated mean latency by sink."""
    from headwater.sim.lindley import merge

    options = options or QueueOptions()
    random = np.random.default_rng(options.seed)
    if problem.model is Model.ENGINE:
        raise RunError(
            f"'{problem.name}' is reckoned by what the engine does; play it with run_engine, or plan it with the model "
            "'queue', 'shared' or 'round-robin'"
        )
    player = Player(problem, device, options, random)
    if problem.model is Model.SHARED:
        from headwater.sim.sharing import play

        play(player)
        return player.report()
    nothing: RecordTimes = (np.zeros(0), np.zeros(0))
    flowing: dict[int, RecordTimes] = {}
    for step in problem.order:
        records = nothing
        for number, e in enumerate(problem.inputs[step]):
            records = flowing.pop(e) if number == 0 else merge(*records, *flowing.pop(e))
        if not problem.inputs[step]:
            times = player.source(step)
            records = (times, times.copy())
        times, created = player.step(step, records)
        for e, copies in player.route(step, len(times)):
            flowing[e] = player.stream(e, *_copy(times, created, copies))
        if not problem.outputs[step]:
            player.sink(step, times, created)
    return player.report()


def _copy(times: Floats, created: Floats, copies: Ints | None) -> RecordTimes:
    return (times, created) if copies is None else (np.repeat(times, copies), np.repeat(created, copies))


class Player:
    """Holds what one run counts."""

    def __init__(self, problem: Problem, device: Ints, options: QueueOptions, random: np.random.Generator) -> None:
        self.problem, self.device, self.options, self.random = problem, device, options, random
        robin = problem.model is Model.ROUND_ROBIN
        self.exponential = (options.service or (Service.CONSTANT if robin else Service.EXPONENTIAL)) == "exponential"
        kinds = problem.net.class_of[device]
        # under round-robin a record takes one turn of all steps on its device
        self.mean_s = step_times(problem, device) if robin else problem.service_s[np.arange(len(device)), kinds]
        if not np.isfinite(self.mean_s).all():
            step = problem.steps[int(np.flatnonzero(~np.isfinite(self.mean_s))[0])]
            raise RunError(f"step '{step}' cannot run where it is placed", step=step)
        # measured times per stream hold its sending as well
        self.propagation_s = stream_times(problem, device) if robin or problem.hop_s is not None else self._latency()
        self.steps: dict[str, StepMetrics] = {}
        self.latency = Histogram()
        self.out: dict[str, int] = {}
        self.mean_age: dict[str, float] = {}
        self.records_in = self.events = 0

    def _latency(self) -> Floats:
        a, b = self.device[self.problem.stream_from], self.device[self.problem.stream_to]
        return self.problem.net.latency_s(a, b)

    def source(self, step: int) -> Floats:
        """When a source's records come."""
        arrivals, name = self.options.arrivals, self.problem.steps[step]
        kind = arrivals if not isinstance(arrivals, Mapping) else arrivals.get(name)
        if kind is None:
            raise RunError(f"source '{name}' has no arrivals", step=name)
        if self.problem.rate_hz[step] == 0:
            return np.zeros(0)
        times = kind.times_s(float(self.problem.rate_hz[step]), self.options.seconds, self.random)
        self.records_in += len(times)
        return times

    def step(self, step: int, records: RecordTimes) -> RecordTimes:
        """Let records wait for a step and pass it."""
        from headwater.sim.lindley import serve

        times, created = records
        mean, count = float(self.mean_s[step]), len(times)
        busy = 0.0
        leave = times
        if mean > 0:
            leave = np.empty(count)
            busy = serve(times, self.durations(mean, count), leave)
        self.count(step, count, float((leave - times).sum()), busy, float(leave[-1]) if count else 0.0)
        return leave, created

    def count(self, step: int, count: int, inside_s: float, busy_s: float, last_s: float) -> None:
        """Count a step's records: the seconds that they were in it, those that it worked, and when the last one left."""
        name, mean = self.problem.steps[step], float(self.mean_s[step])
        self.events += 2 * count if mean > 0 else 0
        wait_s, busy, span = inside_s - busy_s, busy_s, last_s if count else self.options.seconds
        self.steps[name] = StepMetrics(
            name,
            count,
            count,
            count,
            0,
            int(wait_s * 1e9),
            0,
            int(busy * 1e9),
            int(busy * 1e9),
            int(max(0.0, span - busy) * 1e9),
            1,
            int(span * 1e9),
        )

    def route(self, step: int, count: int) -> list[tuple[int, Ints | None]]:
        """Per outgoing stream how many copies of each record it carries; None is one of each.

        Outputs that together are no more than the input go each their own way, as a splitter's do; else every
        stream has its own draw.
        """
        problem, rate = self.problem, self.problem.rate_hz[step]
        ratios = [(e, float(problem.stream_hz[e] / rate) if rate > 0 else 0.0) for e in problem.outputs[step]]
        if len(ratios) > 1 and sum(ratio for _, ratio in ratios) <= 1 + 1e-9:
            draws, edges = self.random.random(count), np.cumsum([0.0, *(ratio for _, ratio in ratios)])
            return [
                (e, ((draws >= edges[i]) & (draws < edges[i + 1])).astype(np.int64)) for i, (e, _) in enumerate(ratios)
            ]
        return [
            (e, None if ratio == 1.0 else int(ratio) + (self.random.random(count) < ratio % 1.0)) for e, ratio in ratios
        ]

    def stream(self, e: int, times: Floats, created: Floats) -> RecordTimes:
        """Let a step's output wait for a link and travel; inside a device it is there at once."""
        from headwater.sim.lindley import serve

        problem = self.problem
        if self.device[problem.stream_from[e]] == self.device[problem.stream_to[e]]:
            return times, created
        send = self.send_s(e)
        if send > 0:
            leave = np.empty(len(times))
            serve(times, self.durations(send, len(times)), leave)
            times = leave
            self.events += 2 * len(times)
        return times + self.propagation_s[e], created

    def send_s(self, e: int) -> float:
        """Seconds that a link sends one record of a stream; 0 inside a device, and where a model has no queues on links."""
        problem = self.problem
        a, b = int(self.device[problem.stream_from[e]]), int(self.device[problem.stream_to[e]])
        bits = float(problem.stream_bytes[e] * problem.bits_per_byte)
        if problem.model is Model.ROUND_ROBIN or problem.hop_s is not None or bits == 0 or a == b:
            return 0.0
        speed = float(problem.net.bandwidth_bps(a, b))
        if speed == 0:
            raise RunError(f"stream {problem.stream_name(e)} has no link to go by")
        return bits / speed

    def sink(self, step: int, times: Floats, created: Floats) -> None:
        """Count what arrived, its first part left out of latency."""
        name = self.problem.steps[step]
        self.out[name] = len(times)
        ages = (times - created)[created >= self.options.warm_up * self.options.seconds]
        self.latency.add((ages * 1e9).astype(np.int64))
        self.mean_age[name] = float(ages.mean()) if len(ages) else 0.0

    def durations(self, mean: float, count: int) -> Floats:
        """How long each of some records takes."""
        return self.random.standard_exponential(count) * mean if self.exponential else np.full(count, mean)

    def report(self) -> Report:
        """Sum the run up."""
        problem, seconds = self.problem, self.options.seconds
        sample = Sample(seconds, self.steps, self.latency, self.latency, self.records_in, self.out)
        sinks = by_sink(problem, self.device, self.mean_age, self.out)
        extra = {"mode": "queues", "events": self.events, "sinks": sinks, "seed": self.options.seed}
        return Report(problem.name, "sim", seconds, sample, extra=extra)
