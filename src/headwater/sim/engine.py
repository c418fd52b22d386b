"""Plays a placement in virtual time with the engine's own scheduler on every device.

The scheduler and its policies are those that ship; only threads and clocks are replaced by a list of
events. `site` is a device at work, `inlet` a source; this file has the list, the links and the sinks.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from headwater.errors import RunError
from headwater.histogram import Histogram
from headwater.metrics import Report, Sample, StepMetrics
from headwater.net.arrays import Floats, Ints
from headwater.place.problem import Problem
from headwater.sim.inlet import Inlet
from headwater.sim.predict import by_sink
from headwater.sim.settings import EngineOptions
from headwater.sim.site import Site, Transfer


def run(problem: Problem, device: Ints, options: EngineOptions | None = None) -> Report:
    """Play a placed flow and report it like a run; sources and links take no worker."""
    simulation = Simulation(problem, device, options or EngineOptions())
    simulation.play()
    return simulation.report()


class Simulation:
    """All devices and links of one run, and the list of events between them.

    `stopping` and `aborted` may be set by another thread while it plays.
    """

    def __init__(self, problem: Problem, device: Ints, options: EngineOptions) -> None:
        self.problem, self.device, self.options = problem, device, options
        self.now = 0.0
        self.stopping = self.aborted = False
        self.counts = [StepMetrics(name) for name in problem.steps]
        rows, kinds = np.arange(len(device)), problem.net.class_of[device]
        self.work_s = problem.service_s[rows, kinds]
        self.start_s = problem.overhead_s[rows, kinds]
        if not np.isfinite(self.work_s).all():
            step = problem.steps[int(np.flatnonzero(~np.isfinite(self.work_s))[0])]
            raise RunError(f"step '{step}' cannot run where it is placed", step=step)
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = problem.stream_hz / problem.rate_hz[problem.stream_from]
        self._ratio = np.where(np.isfinite(ratio), ratio, 0.0).tolist()
        self.random = np.random.default_rng(options.seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._link_free_s = dict.fromkeys(np.unique(device).tolist(), 0.0)
        """When the access link of each device is free; all its streams share it, both ways."""
        self._arrived: dict[int, list[tuple[float, Floats]]] = {step: [] for step in problem.sinks}
        self.sites = {int(d): self._site(int(d)) for d in np.unique(device)}
        self._inlets = [
            Inlet(self, step, self.sites[int(device[step])]) for step in problem.sources if problem.rate_hz[step] > 0
        ]

    def _site(self, device: int) -> Site:
        problem, ends = self.problem, zip(self.problem.stream_from, self.problem.stream_to, strict=True)
        steps = [s for s in problem.order if self.device[s] == device]
        streams = {e for e, (a, b) in enumerate(ends) if self.device[a] == self.device[b] == device}
        return Site(self, steps, streams)

    def at(self, time_s: float, act: Callable[[], None]) -> None:
        """Do something at a moment; what was put first comes first."""
        self._number += 1
        heapq.heappush(self._events, (time_s, self._number, act))

    def play(self) -> None:
        """Open all sources, then let events follow until none is left or the time is up."""
        for inlet in self._inlets:
            inlet.open()
        end = math.inf if self.options.drain else self.options.seconds
        while self._events and self._events[0][0] <= end and not self.aborted:
            self.now, _, act = heapq.heappop(self._events)
            act()
        if not (self.stopping or self.aborted):
            self.now = max(self.now, self.options.seconds)

    def outputs_of(self, step: int, created: Floats, at_s: float) -> list[Transfer]:
        """Return what a step makes of records, stream by stream; what a sink takes has arrived."""
        outputs = self.problem.outputs[step]
        if not outputs:
            self._arrived[step].append((at_s, created))
            self.counts[step].records_out += len(created)
            return []
        transfers = []
        for e in outputs:
            ratio = self._ratio[e]
            share = created if ratio == 1.0 else self._thin(created, ratio)
            if len(share):
                transfers.append((e, share))
                self.counts[step].records_out += len(share)
        return transfers

    def _thin(self, created: Floats, ratio: float) -> Floats:
        return np.repeat(created, int(ratio) + (self.random.random(len(created)) < ratio % 1.0))

    def travel(self, transfer: Transfer) -> None:
        """Let records wait for the access links of both devices, be sent, and arrive."""
        problem, (e, created) = self.problem, transfer
        to = int(problem.stream_to[e])
        a, b = int(self.device[problem.stream_from[e]]), int(self.device[to])
        bits = len(created) * problem.stream_bytes[e] * problem.bits_per_byte
        speed = float(problem.net.bandwidth_bps(a, b))
        departs_s = self.now
        if bits and np.isfinite(speed):
            departs_s = max(self.now, self._link_free_s[a], self._link_free_s[b]) + bits / speed
            self._link_free_s[a] = self._link_free_s[b] = departs_s
        if problem.hop_s is not None:
            across = int(problem.net.zone_of(a) != problem.net.zone_of(b))
            latency = float(problem.hop_s[e, across])
        else:
            latency = float(problem.net.latency_s(a, b))
        self.counts[to].in_hand += len(created)
        self.at(departs_s + latency, lambda: self.sites[b].receive(to, created))

    def sample(self) -> Sample:
        """Everything counted up to now; safe to ask from another thread, which may see an event half done."""
        steps = {counts.name: replace(counts) for counts in self.counts}
        for site in self.sites.values():
            steps.update((counts.name, counts) for counts in site.metrics())
        for counts in steps.values():
            counts.span_ns = int(self.now * 1e9)
        latency, out = Histogram(), {}
        for step in self.problem.sinks:
            ages = self._ages(step)
            latency.add((ages * 1e9).astype(np.int64))
            out[self.problem.steps[step]] = steps[self.problem.steps[step]].records_out
        records = sum(inlet.records for inlet in self._inlets)
        return Sample(self.now, steps, latency, latency, records, out)

    def _ages(self, step: int) -> Floats:
        """Seconds from the birth of records to their arrival at a sink, those of the warm-up left out."""
        parts, options = list(self._arrived[step]), self.options
        created = np.concatenate([b for _, b in parts]) if parts else np.zeros(0)
        when = np.repeat([at for at, _ in parts], [len(b) for _, b in parts])
        since = created if options.drain else when
        return np.asarray((when - created)[since >= options.warm_up * options.seconds])

    def report(self) -> Report:
        """Sum the run up."""
        problem, options, last = self.problem, self.options, self.sample()
        means = {}
        for step in problem.sinks:
            ages = self._ages(step)
            means[problem.steps[step]] = float(ages.mean()) if len(ages) else 0.0
        extra = {"mode": "engine", "runner": options.runner, "policy": options.policy, "seed": options.seed}
        extra["mean_latency_s"] = means
        extra["sinks"] = by_sink(problem, self.device, means, last.records_out)
        decisions = sum(site.scheduler.decisions for site in self.sites.values())
        waiting = sum(step.left for step in last.steps.values())
        return Report(problem.name, "sim", self.now, last, left=waiting, decisions=decisions, extra=extra)
