"""What a flow does at one rate, and whether it keeps it.

A flow is measured when it is warm. STATS says nothing of a sensor before ten of its observations; as long as some are that
young, there are fewer results to a message than later, and a flow that keeps up looks like one that does not. So the
messages, made once and repeated, are first given as often as it takes, and all that comes of them is worked off; only then
does time begin.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from typing import NamedTuple

from headwater import engine
from headwater.data.column import Text
from headwater.data.jit import wait_until_compiled
from headwater.engine import EngineRun
from headwater.flow import Flow
from headwater.flow.endpoints import Source
from headwater_bench.experiments.surroundings import Watch
from headwater_bench.experiments.trial import BOUND_MS
from headwater_bench.experiments.warmed import Warmed, copies_of, when_done_with
from headwater_bench.riot.etl import etl
from headwater_bench.riot.generate import messages, stream
from headwater_bench.riot.pred import pred
from headwater_bench.riot.sources import generated, repeated
from headwater_bench.riot.stats import stats

ROUND = 2**14  #: messages that are made, and repeated
_KEPT = 0.99  #: of what is offered, that is delivered at a sustained rate
_SETTLE, _LONGEST_S = 0.3, 0.7  #: of the measured time, at the rate before it, and how long that is at most
_LOOKS, _LOOK_S = 15, 0.002  #: how often, and how far apart, results are counted for one count of them


class Subject(NamedTuple):
    """A flow, and how often it must have had each message before its results are as many as they will be."""

    make: Callable[[Source], Flow]
    rounds: int = 1


#: the regression of STATS takes ten observations of a sensor, of which some have one in a round
FLOWS: dict[str, Subject] = {
    "etl": Subject(etl),
    "etl_wide": Subject(partial(etl, wide=True)),
    "stats": Subject(stats, rounds=10),
    "stats_wide": Subject(partial(stats, wide=True), rounds=10),
    "pred": Subject(pred),
}


@dataclass(frozen=True, slots=True)
class Point:
    """What a flow did at one rate."""

    flow: str
    on: str
    load: float  #: offered, of the highest sustained rate; 0 in search of it
    offered_hz: float
    out_hz: float  #: messages taken into the flow and out again, per second
    p50_ms: float
    p99_ms: float
    cpu_us: float  #: processor time per message
    # what tells why: whether the flow was late or its source, and what else went on
    emit_p99_ms: float = 0.0  #: since the source handed a message over: less than `p99_ms` by what it waited before
    batch: float = 0.0  #: messages that the first step was given at once, in the mean
    held: float = 0.0  #: share of the time in which the source was held back by a full queue
    others: float = 0.0  #: processors that other programs had
    stolen: float = 0.0  #: processors that the host of a virtual machine gave to others
    gc_ms: float = 0.0  #: the longest pause of the garbage collector

    @property
    def delivered(self) -> float:
        """The share of what was offered that came out."""
        return self.out_hz / self.offered_hz

    @property
    def is_kept(self) -> bool:
        """Say whether the rate was sustained."""
        return self.delivered >= _KEPT and self.p99_ms <= BOUND_MS


_GIVEN = ("flow", "on", "load", "offered_hz")  #: what of a point is not measured


def together(points: Sequence[Point]) -> Point:
    """Return what a flow did at one rate in several visits: all that came out, and the median of the rest.

    What others on the machine did during one visit is not the flow's; but what it did not deliver then, it did not deliver.
    """
    names = [field.name for field in fields(Point) if field.name not in _GIVEN]
    medians = {name: statistics.median(getattr(point, name) for point in points) for name in names}
    return replace(points[0], **medians | {"out_hz": statistics.fmean(point.out_hz for point in points)})


def compile_kernels(subject: Subject) -> None:
    """Run a flow for a moment, and wait until what it needs is compiled."""
    engine.run(subject.make(generated("CITY", 500)), seconds=0.5)
    wait_until_compiled()


def measured(name: str, on: str, load: float, rate_hz: float, subject: Subject, seconds: float) -> Point:
    """Warm a flow up, run it at a rate, measure, and check that nothing was lost."""
    source = Warmed(repeated(_texts(ROUND), rate_hz), subject.rounds * ROUND)
    running = engine.start(subject.make(source), on=on)
    warm = when_done_with(running, source.first)
    source.go.set()
    time.sleep(min(_SETTLE * seconds, _LONGEST_S))
    began, watch = _counted(running), Watch()
    first, began_s = running.sample(), time.process_time()
    time.sleep(seconds)
    last, spent_s = running.sample(), time.process_time() - began_s
    around, ended = watch.report(), _counted(running)
    running.stop()  # what is in the queues, bounded, is still worked off
    report = running.wait()
    assert report is not None
    out_hz = (ended.results - began.results) / (ended.at_s - began.at_s) / copies_of(report, warm)
    span = last.since(first)
    first_step = next(step.name for step in running.flow.in_order() if not step.is_source)
    return Point(
        name,
        on,
        load,
        rate_hz,
        out_hz,
        p50_ms=span.latency.percentile(50) / 1e6,
        p99_ms=span.latency.percentile(99) / 1e6,
        cpu_us=1e6 * spent_s / max(1.0, out_hz * span.at_s),
        emit_p99_ms=span.emit_latency.percentile(99) / 1e6,
        batch=span.steps[first_step].records_in / max(1, span.steps[first_step].activations),
        held=span.backpressure_s / span.at_s,
        **around._asdict(),
    )


@cache
def _texts(count: int) -> Text:
    return messages(stream("CITY"), 0, count)


class _Count(NamedTuple):
    at_s: float
    results: float


def _counted(running: EngineRun) -> _Count:
    """Count results, as the mean of looks: they come by batches, and where among these a single look falls is chance."""
    sinks = [task.counters for task in running.tasks if task.instance.step.is_sink]
    looks = []
    for _ in range(_LOOKS):
        looks.append((time.perf_counter(), sum(each.records_out for each in sinks)))
        time.sleep(_LOOK_S)
    return _Count(*(statistics.fmean(values) for values in zip(*looks, strict=True)))
