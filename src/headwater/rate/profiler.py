"""Measures what a promise needs: Storm-RTS's figures, and what each step costs when it runs cold, once a tick.

A loop that never rests finds code and data in the cache and predicts 5 to 56 % of what the engine really uses. So the
chain runs batch by batch and sleeps to each tick, timed by the thread's processor clock. A machine is now faster and now
slower for a second or two, by a third: what is compared is measured by turns, so that all of it has its share of either.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from headwater.engine import start
from headwater.engine.profiler import Samples, profile, sample_sources
from headwater.flow.contract import Contract
from headwater.flow.flow import DEAD_LETTERS, Flow
from headwater.flow.profile import Demand, Profile, StepDemand
from headwater.io import Discard, Generate
from headwater.rate.chain import Chain, Feed, TimedActivation, dry
from headwater.rate.estimate import LONGEST_S, WARM_S, tick_of

RECORDS = 3_000
"""How many records Storm-RTS's figures and selectivities are measured with: a second or two for a flow of ten steps."""

POINT_S = 1.0
"""How long the chain ticks at each of its batch sizes."""

_MANY = 3  #: ticks' worth of records of the second point of the line that gives the cost per record and per tick
_TURNS = 5  #: in which each point is measured; the first warms up
_FEWEST = 3  #: ticks of a turn, of which the first finds the caches as another point has left them
_EFFICIENT = 0.7  #: the share of an invocation's time that goes to its records, by which Storm-RTS chooses batches
_SLOWER = 1.2  #: how much longer an invocation may take by getting fewer cores, by which it chooses those
_LARGEST_BATCH = 1_000  #: what a source hands over at once while it is sampled: no invocation can be measured with more
_SETTLES_S = 0.1  #: after which a run that was started only ticks
_BEYOND = 1.5  #: times what a core can do: no lane is given more, so that more need not be tried, for minutes
_HOT = (10, 200)  #: batches from which the cost of an invocation and of a record are told apart


def demanding(flow: Flow, contract: Contract, *, records: int = RECORDS, point_s: float = POINT_S) -> Profile:
    """Return the flow's profile with its demand at the contract's rate and tick."""
    flow = dry(flow)
    samples = sample_sources(flow, records)
    usual = profile(flow, samples=samples)
    scales = scales_of(flow, usual)
    batches = _batches(flow, samples)
    papers = _invoked(flow, samples, batches)
    tick_s, tried_hz = tick_of(contract), min(contract.rate_hz, _BEYOND * _fullest_hz(scales, usual))
    other_s = max((WARM_S, LONGEST_S), key=lambda each: abs(math.log(each / tick_s)))
    few, many, elsewhere = (
        Point(flow, samples, max(1, round(times * tried_hz * each_s / len(samples))), each_s)
        for times, each_s in ((1, tick_s), (_MANY, tick_s), (1, other_s))
    )
    tick_by_turns((few, many, elsewhere), point_s)
    lines = {
        name: _line([each.mean(name) for each in (few, many) if name in each.spent]) for name in few.spent | many.spent
    }
    steps = {
        name: StepDemand(scale, batches.get(name, 1), *_limits(papers.get(name, [])), *lines.get(name, (0.0, 0.0)))
        for name, scale in scales.items()
    }
    demand = Demand(tried_hz, tick_s, engine_per_tick(tick_s, point_s), steps)
    cooling = _cooling(demand, elsewhere, engine_per_tick(other_s, point_s))
    return dataclasses.replace(usual, demand=dataclasses.replace(demand, rate_hz=contract.rate_hz, cooling=cooling))


def scales_of(flow: Flow, measured: Profile) -> dict[str, float]:
    """Return μ of every step: the records that come to it for each that the sources bring, which bring equally many."""
    sources = sum(step.is_source for step in flow.steps.values())
    scales: dict[str, float] = {}
    for step in flow.in_order():
        if step.is_source:
            scales[step.name] = 1 / sources
        elif step.name != DEAD_LETTERS:
            inputs = [each for each in step.inputs if each.step in scales]
            scales[step.name] = sum(scales[i.step] * _out(measured, i.step, i.port) for i in inputs)
    return scales


def _fullest_hz(scales: Mapping[str, float], measured: Profile) -> float:
    """Return the rate at which a core does nothing but this flow, its caches warm."""
    busy_s = sum(scale * measured.steps[name].time_s for name, scale in scales.items())
    return 1 / busy_s if busy_s else math.inf


def _out(measured: Profile, step: str, port: str) -> float:
    return measured.steps[step].selectivity.get(port, 1.0)


def _batches(flow: Flow, samples: Samples) -> dict[str, int]:
    """Return b of every step, the smallest batch at which 70 % of an invocation's time goes to its records."""
    timed = [(size, _invoked(flow, samples, dict.fromkeys(flow.steps, size))) for size in _HOT]
    (few, short), (many, long) = (
        (
            size,
            {
                name: _median([t.cpu_s for t in activations if t.records == size])
                for name, activations in by_step.items()
            },
        )
        for size, by_step in timed
    )
    batches = {}
    for name in long:
        per_record = max(0.0, long[name] - short.get(name, 0.0)) / (many - few)
        per_invocation = max(0.0, short.get(name, 0.0) - few * per_record)
        smallest = _EFFICIENT / (1 - _EFFICIENT) * per_invocation / per_record if per_record else _LARGEST_BATCH
        batches[name] = max(1, min(_LARGEST_BATCH, math.ceil(smallest)))
    return batches


def _median(values: list[float]) -> float:
    return float(np.median(values)) if values else 0.0


def _invoked(flow: Flow, samples: Samples, batches: Mapping[str, int]) -> dict[str, list[TimedActivation]]:
    """Run the samples with each step's own batch; return its activations, but for the first, which warm up."""
    chain = Chain(flow, batches)
    for source, (source_batches, _) in samples.items():
        for batch in source_batches:
            chain.push(source, batch)
    chain.close()
    return {name: activations[len(activations) // 4 :] for name, activations in chain.activations.items()}


def _limits(activations: list[TimedActivation]) -> tuple[float, float]:
    """Return s and tmax: fewer cores stretch the part of an activation that computes, until that takes 20 % longer.

    Reckoned, which needs no quota, from its processor time, which one in twenty may exceed, and from what it
    waits, which is what nearly all activations do: the others' waiting is for a processor that someone else had.
    """
    if not activations:
        return 0.0, 0.0
    cpu_s = float(np.percentile([each.cpu_s for each in activations], 95))
    waits_s = max(0.0, float(np.percentile([each.wall_s - each.cpu_s for each in activations], 10)))
    computing = cpu_s / (cpu_s + waits_s) if cpu_s else 1.0
    return computing / (computing + _SLOWER - 1), _SLOWER * (cpu_s + waits_s)


class Point:
    """A flow that runs so many records of each source at every tick, some ticks at a time."""

    def __init__(self, flow: Flow, samples: Samples, count: int, tick_s: float) -> None:
        self.count, self.tick_s = count, tick_s
        self.spent: dict[str, list[tuple[int, float]]] = defaultdict(list)  #: by step, records and processor seconds
        self._flow, self._began, self._counted = flow, False, 0
        self._feeds = {source: Feed(flow, source, samples) for source in samples}
        self._chain = Chain(flow)

    def tick(self, ticks: int, *, warm: bool) -> None:
        """Run so many ticks; one that warms up is not counted, nor is the first."""
        due_s = time.monotonic()
        for tick in range(ticks):
            for source, feed in self._feeds.items():
                batch, activation, again = feed.take(self.count)
                if again and self._began:
                    self._chain.close()
                    self._chain = Chain(self._flow)  # event time would go back
                self._chain.activations.clear()
                self._chain.push(source, batch)
                if tick and not warm:
                    self._note(source, activation)
            self._began = True
            self._counted += bool(tick and not warm)
            due_s = max(due_s + self.tick_s, time.monotonic())
            time.sleep(max(0.0, due_s - time.monotonic()))

    def _note(self, source: str, activation: TimedActivation) -> None:
        self.spent[source].append((activation.records, activation.cpu_s))
        for name, activations in self._chain.activations.items():
            self.spent[name].append(
                (sum(each.records for each in activations), sum(each.cpu_s for each in activations))
            )

    def mean(self, step: str) -> tuple[float, float]:
        """Return mean records and seconds of a tick; the few dearest count as the dearest of the others do."""
        activations = self.spent[step]
        cpu_s = np.array([each for _, each in activations])
        cpu_s = np.minimum(cpu_s, np.percentile(cpu_s, 97))
        return sum(records for records, _ in activations) / self._counted, float(cpu_s.sum()) / self._counted

    def close(self) -> None:
        """Close the flow's steps and sources."""
        self._chain.close()
        for feed in self._feeds.values():
            feed.close()


def tick_by_turns(points: Sequence[Point], seconds: float) -> None:
    """Have each of some points tick for so many seconds, all by turns."""
    for turn in range(_TURNS):
        for point in points:
            point.tick(max(_FEWEST, round(seconds / point.tick_s / _TURNS)), warm=not turn)
    for point in points:
        point.close()


def _cooling(demand: Demand, there: Point, engine_s: float) -> float:
    """Return how what a tick costs changes with its length, by a look at another one: the power of the length.

    A promise at another latency than that of the profile would else be reserved too much for, or too little.
    """
    means = {name: there.mean(name) for name in there.spent}
    records_s = sum(
        records * demand.steps[name].record_s for name, (records, _) in means.items() if name in demand.steps
    )
    there_s = sum(spent_s for _, spent_s in means.values()) - records_s + engine_s
    here_s = sum(step.tick_s for step in demand.steps.values()) + demand.engine_s
    if there_s <= 0 or here_s <= 0:
        return 0.0
    return min(1.0, max(0.0, math.log(there_s / here_s) / math.log(there.tick_s / demand.tick_s)))


def _line(points: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the cost per record and per tick of a line through points of records and seconds, neither below 0."""
    (few, least), (many, most) = min(points), max(points)
    if many <= few or most <= least:
        return 0.0, max(least, most)
    per_record = min((most - least) / (many - few), least / few if few else math.inf)
    return per_record, max(0.0, least - per_record * few)


def engine_per_tick(tick_s: float, seconds: float = POINT_S) -> float:
    """Return e, what a tick costs the engine itself on this machine: threads that wake, and a queue between them.

    To start and to end a run costs as much as hundreds of ticks, which is none of it: a promise is for longer than that.
    """
    flow = Flow("nothing")
    source = Generate(lambda n: {"x": n}, {"x": int}, rate=2 / tick_s, tick="1 ms")
    flow.read("numbers", source).write("out", Discard())
    running = start(flow, workers=1, linger=f"{tick_s * 1e3:.3f} ms", measure=True)
    time.sleep(_SETTLES_S)
    before, before_s = running.sample(), time.process_time()
    time.sleep(seconds)
    spent_s, after = time.process_time() - before_s, running.sample()
    running.stop()
    running.wait()
    return spent_s / max(1, after.since(before).steps["out"].activations)
