"""Plays a placement in virtual time with the engine's own decision machine on every device.

The machine and its policies are those that ship; only worker threads and clocks are replaced by a list of
events. A turn takes the step's overhead and its time per record; between devices batches wait for a link,
are sent and travel.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from headwater.engine.machine import Machine, Take
from headwater.engine.policy import policy_named
from headwater.errors import RunError
from headwater.metrics import Histogram, Report, Sample, StepMetrics
from headwater.net.arrays import Floats, Ints
from headwater.place.problem import Problem
from headwater.sim.arrivals import Arrivals, Poisson


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How devices schedule, and how long the flow is played."""

    seconds: float = 10.0
    seed: int = 0
    arrivals: Arrivals = field(default_factory=Poisson)
    policy: str = "longest_queue"
    take: Take = 50
    workers: int = 2
    queue_records: int = 10_000
    overhead_s: float = 0.0
    """Seconds per turn, whatever the number of records."""
    warm_up: float = 0.1
    tick_s: float = 0.0
    """A source that sleeps this long hands over at once what came meanwhile; 0 is record by record."""

    def __post_init__(self) -> None:
        policy_named(self.policy)
        if self.workers < 1 or not self.seconds > 0:
            raise RunError(f"a device needs at least 1 worker and 0 s; got {self.workers} and {self.seconds} s")


def run(problem: Problem, device: Ints, options: EngineOptions | None = None) -> Report:
    """Play a placed flow and report it like a run; sources and links take no worker."""
    world = _World(problem, device, options or EngineOptions())
    world.play()
    return world.report()


@dataclass(slots=True)
class _Site:
    """One device at work: its machine, idle workers, and the numbers of its steps in the machine."""

    machine: Machine
    idle: int
    steps: list[int]
    local: dict[int, int]


class _World:
    """All devices and links of one run, and the list of events between them."""

    def __init__(self, problem: Problem, device: Ints, options: EngineOptions) -> None:
        self.problem, self.device, self.options = problem, device, options
        self.random = np.random.default_rng(options.seed)
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self.queues: list[deque[tuple[float, float]]] = [deque() for _ in problem.steps]
        """Per step (born, arrived) of every waiting record."""
        self.counts = [StepMetrics(name) for name in problem.steps]
        self.latency = Histogram()
        self.out = {problem.steps[s]: 0 for s in problem.sinks}
        self.age_sum = dict.fromkeys(self.out, 0.0)
        self.aged = dict.fromkeys(self.out, 0)
        self._link_free = [0.0] * len(problem.stream_from)
        self.records_in = self.decisions = 0
        kinds = problem.net.class_of[device]
        self.mean_s = problem.service_s[np.arange(len(device)), kinds]
        self.sites = {d: self._site(d) for d in np.unique(device).tolist()}

    def _site(self, device: int) -> _Site:
        problem, options = self.problem, self.options
        steps = [s for s in problem.order if self.device[s] == device and problem.solid[s]]
        local = {s: i for i, s in enumerate(steps)}
        downstream = [
            [local[int(problem.stream_to[e])] for e in problem.outputs[s] if int(problem.stream_to[e]) in local]
            for s in steps
        ]
        limits = [options.queue_records] * len(steps)
        return _Site(
            Machine(downstream, policy_named(options.policy), options.take, limits),
            options.workers,
            steps,
            local,
        )

    def at(self, time_s: float, act: Callable[[], None]) -> None:
        """Do something at a moment; what was put first comes first."""
        self._number += 1
        heapq.heappush(self._events, (time_s, self._number, act))

    def play(self) -> None:
        """Bring all records in, then let events follow until none is left."""
        for source in self.problem.sources:
            rate = float(self.problem.rate_hz[source])
            if rate > 0:
                times = self.options.arrivals.times_s(rate, self.options.seconds, self.random)
                self.records_in += len(times)
                self._feed(source, self._handed_over(times), 0)
        while self._events:
            self.now, _, act = heapq.heappop(self._events)
            act()

    def _handed_over(self, times: Floats) -> list[tuple[float, list[float]]]:
        """When a source hands records over, and which."""
        tick = self.options.tick_s
        if tick <= 0:
            return [(born, [born]) for born in times.tolist()]
        ends = np.ceil(times / tick)
        cuts = np.flatnonzero(np.diff(ends)) + 1
        return [(float(np.ceil(part[0] / tick)) * tick, part.tolist()) for part in np.split(times, cuts) if len(part)]

    def _feed(self, source: int, parts: list[tuple[float, list[float]]], at: int) -> None:
        """Let a source's records come one part after the other; only the next one is on the list."""
        if at < len(parts):
            when, born = parts[at]

            def come() -> None:
                self.deliver(source, born)
                self._feed(source, parts, at + 1)

            self.at(when, come)

    def deliver(self, step: int, born: list[float]) -> None:
        """Hand records to a step: into its queue, or straight through if it takes no time."""
        if not self.problem.solid[step]:
            self.counts[step].records_in += len(born)
            self.send(step, born)
            return
        site = self.sites[int(self.device[step])]
        self.queues[step].extend((b, self.now) for b in born)
        site.machine.arrived(site.local[step], len(born), int(self.queues[step][0][0] * 1e9))
        self._wake(site)

    def _wake(self, site: _Site) -> None:
        while site.idle:
            command = site.machine.next()
            if command is None:
                return
            site.idle -= 1
            self.decisions += 1
            self._start(site, *command)

    def _start(self, site: _Site, instance: int, count: int) -> None:
        step = site.steps[instance]
        taken = [self.queues[step].popleft() for _ in range(count)]
        took = self.options.overhead_s + count * float(self.mean_s[step])
        counted, began = self.counts[step], self.now
        counted.t_q_ns += int(sum(began - arrived for _, arrived in taken) * 1e9)
        counted.t_c_ns += int(took * count * 1e9)
        counted.busy_ns += int(took * 1e9)
        counted.records_in += count
        counted.activations += 1

        def finish() -> None:
            head = int(self.queues[step][0][0] * 1e9) if self.queues[step] else 0
            site.machine.finished(instance, count, int(took * 1e9), self.send(step, [b for b, _ in taken]), head)
            site.idle += 1
            self._wake(site)

        self.at(self.now + took, finish)

    def send(self, step: int, born: list[float]) -> int:
        """Put out what a step made of records; return how many went on, per stream on average."""
        problem = self.problem
        if not problem.outputs[step]:
            self._arrive(step, born)
            return len(born)
        out = 0
        for e in problem.outputs[step]:
            rate = problem.rate_hz[step]
            ratio = float(problem.stream_hz[e] / rate) if rate > 0 else 0.0
            kept = born if ratio == 1.0 else self._thinned(born, ratio)
            out += len(kept)
            if kept:
                self._travel(e, kept)
        self.counts[step].records_out += out
        return out // len(problem.outputs[step])

    def _thinned(self, born: list[float], ratio: float) -> list[float]:
        copies = int(ratio) + (self.random.random(len(born)) < ratio % 1.0)
        return [b for b, times in zip(born, copies.tolist(), strict=True) for _ in range(times)]

    def _travel(self, e: int, born: list[float]) -> None:
        problem, to = self.problem, int(self.problem.stream_to[e])
        a, b = int(self.device[problem.stream_from[e]]), int(self.device[to])
        if a == b:
            self.deliver(to, born)
            return
        bits = len(born) * problem.stream_bytes[e] * problem.bits_per_byte
        speed = float(problem.net.bandwidth_bps(a, b))
        self._link_free[e] = max(self.now, self._link_free[e]) + (bits / speed if np.isfinite(speed) else 0.0)
        if problem.hop_s is not None:
            across = int(problem.net.zone_of(a) != problem.net.zone_of(b))
            latency = float(problem.hop_s[e, across])
        else:
            latency = float(problem.net.latency_s(a, b))
        self.at(self._link_free[e] + latency, lambda: self.deliver(to, born))

    def _arrive(self, step: int, born: list[float]) -> None:
        name = self.problem.steps[step]
        self.out[name] += len(born)
        after = [b for b in born if b >= self.options.warm_up * self.options.seconds]
        if after:
            ages = self.now - np.array(after)
            self.latency.add((ages * 1e9).astype(np.int64))
            self.age_sum[name] += float(ages.sum())
            self.aged[name] += len(after)

    def report(self) -> Report:
        """Sum the run up."""
        span = max(self.now, self.options.seconds)
        for step in self.counts:
            step.span_ns = int(span * 1e9)
            step.t_empty_ns = max(0, step.span_ns - step.busy_ns)
        sample = Sample(span, {c.name: c for c in self.counts}, self.latency, self.latency, self.records_in, self.out)
        means = {name: self.age_sum[name] / max(1, self.aged[name]) for name in self.out}
        extra = {
            "mode": "engine",
            "policy": self.options.policy,
            "seed": self.options.seed,
            "mean_latency_s": means,
        }
        return Report(self.problem.name, "sim", span, sample, decisions=self.decisions, extra=extra)
