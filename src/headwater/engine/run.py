"""A run in progress: what the two runners share. Sources, the throttle that holds them, the end, samples, the report."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from functools import partial

from headwater.engine.options import Options
from headwater.engine.plan import Plan
from headwater.engine.scheduler import Activation
from headwater.engine.source import SourceThread
from headwater.engine.station import Delivery, Station
from headwater.engine.warm import load_kernels
from headwater.errors import RunError
from headwater.flow.batch import Batch
from headwater.flow.flow import Flow
from headwater.metrics import Histogram, Report, Sample, StepMetrics
from headwater.operators import build

log = logging.getLogger(__name__)

_EXAMPLES = 5
_LONG_S = 10.0  #: a turn that takes longer is spoken of


class Run(ABC):
    """A flow at work. `start` it, then `wait` for its report; `stop` ends it in order, `abort` at once.

    A subclass moves records: it owns the workers and the queues' locks.
    """

    runner = ""

    def __init__(self, flow: Flow, options: Options) -> None:
        self.flow, self.options = flow, options
        self.plan = Plan.of(flow)
        load_kernels(self.plan)
        self.lock = threading.Lock()  #: guards the throttle, the end and, in the worker pool, all queues
        self.room = threading.Condition(self.lock)  #: sources wait here for queues to drain
        self.throttle = self.plan.throttle()
        self.aborted = False
        self.stopping = threading.Event()
        self.done = threading.Event()
        self.error: RunError | None = None
        self.dead: deque[dict[str, str]] = deque(maxlen=_EXAMPLES)
        self.samples: deque[Sample] = deque(maxlen=3600)
        self.shed: dict[str, int] = {}
        self._backpressure_ns = 0
        self._held_since = 0
        self.stations = self._build()
        self.limits = [options.queue_records] * len(self.stations)
        self._puts = [0] * len(self.stations)
        self._to_end = sum(1 for station in self.stations if station.operator is not None)
        self.sources = [SourceThread(self, s) for s in self.stations if s.instance.step.is_source]
        self._threads: list[threading.Thread] = []
        self._closed = False

    def _build(self) -> list[Station]:
        """Make the running form of every instance; what cannot open says so before anything has started."""
        stations: list[Station] = []
        try:
            for instance in self.plan.instances:
                operator = None if instance.step.is_source else build(instance.step)
                station = Station(instance, operator, measure=self.options.measure)
                station.on_dead = partial(self._note_dead, instance.index)
                stations.append(station)
        except Exception:
            for station in stations:
                if station.operator is not None:
                    station.operator.close()
            raise
        return stations

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> Run:
        """Start workers, sources and the sampling of measurements; return at once."""
        try:
            for source in self.sources:
                source.open()
        except Exception:
            self._close()
            raise
        now = time.perf_counter_ns()
        for station in self.stations:
            station.counters.started_ns = station.counters.empty_since_ns = now
        self._began_ns = now
        self._threads = self.make_threads()
        self._threads += [threading.Thread(target=s.loop, name=s.thread_name, daemon=True) for s in self.sources]
        self._threads.append(threading.Thread(target=self._watch, name="watch", daemon=True))
        for thread in self._threads:
            thread.start()
        return self

    @abstractmethod
    def make_threads(self) -> list[threading.Thread]:
        """Return the threads that run steps, not yet started."""

    @abstractmethod
    def admit(self, source: int, count: int) -> Activation | None:
        """Let a source hand over records, or return None while it is held."""

    @abstractmethod
    def emitted(self, activation: Activation, deliveries: list[Delivery], created_ns: int) -> None:
        """Take what an admitted source made."""

    @abstractmethod
    def deliver(self, deliveries: list[Delivery], now_ns: int, created_ns: int) -> None:
        """Put watermarks and dead letters of a source into queues, whether it is held or not; called without the lock."""

    @abstractmethod
    def wake_all(self) -> None:
        """Wake every thread that waits for something; called with the lock held."""

    def stop(self) -> None:
        """Stop reading; what is in the queues is still processed."""
        self.stopping.set()

    def abort(self) -> None:
        """Stop at once; what is in the queues stays there and is counted as left."""
        self.stopping.set()
        with self.lock:
            self.aborted = True
            self.wake_all()
            self.room.notify_all()
        self.done.set()

    def fail(self, error: RunError) -> None:
        """Stop because going on makes no sense; `wait` raises the first such error. Called without the lock."""
        if self.error is None:
            self.error = error
        self.abort()

    def wait(self, timeout_s: float | None = None) -> Report | None:
        """Wait for the end and return the report; None when the time was up first.

        What ended the run too early is raised, with the report. A step that does not come back after an abort is one such
        reason: its thread is left behind, and what it had in hand is counted as left.
        """
        if not self.done.wait(timeout_s):
            return None
        if not self._closed:
            self._join()
            self._ended_ns = time.perf_counter_ns()
            self._close()
        report = self.report()
        if self.error is not None:
            self.error.report = report
            raise self.error
        return report

    def _join(self) -> None:
        """Wait for all threads; once aborted, not for ever."""
        until = time.monotonic() + self.options.grace_s
        for thread in self._threads:
            while thread.is_alive() and not (self.aborted and time.monotonic() > until):
                thread.join(max(0.01, until - time.monotonic()) if self.aborted else 1.0)
        hanging = self._hanging()
        if hanging:
            names = " and ".join(f"{'source' if s.operator is None else 'step'} {s.name!r}" for s in hanging)
            said = f"{names} did not come back within {self.options.grace_s:g} s of being told to stop"
            log.error(said)
            self.error = self.error or RunError(said, step=hanging[0].name)

    def _hanging(self) -> list[Station]:
        """Return those whose thread, or a worker, has not come back; none but after an abort."""
        alive = {thread.name for thread in self._threads if thread.is_alive()}
        at_work = [station for station in self.stations if station.in_hand is not None] if alive else []
        # a source's thread that is alive hangs in a step that its records rode into, or in its reader
        return at_work or [source.station for source in self.sources if source.thread_name in alive]

    def _close(self) -> None:
        """Close what was opened, but for what a thread still is in."""
        self._closed = True
        hanging = self._hanging()
        for source in self.sources:
            if source.station not in hanging:
                source.close()
        for station in self.stations:
            if station.operator is not None and station not in hanging:
                try:
                    station.operator.close()
                except Exception as error:
                    station.lost(getattr(error, "records", 0))
                    if self.error is None:
                        self.error = RunError(f"step {station.name!r} could not finish: {error}", step=station.name)

    def ended(self, station: Station) -> None:
        """Take note that an instance has seen its last record; called with the lock held."""
        self._to_end -= 1
        if self._to_end == 0:
            self.done.set()
            self.wake_all()
            self.room.notify_all()

    def finished(self) -> bool:
        """Say whether workers should go home."""
        return self.aborted or self._to_end == 0

    # -- the throttle -------------------------------------------------------------------------------------------------

    def learn_limit(self, instance: int, batch: Batch | None) -> int:
        """Return the bound of a queue in records, from time to time worked out anew from the size of its records."""
        puts = self._puts[instance]
        self._puts[instance] = puts + 1
        if batch is not None and puts & 63 == 0 and batch.length:
            per_record = max(1, batch.nbytes // batch.length)
            self.limits[instance] = max(1, min(self.options.queue_records, self.options.queue_bytes // per_record))
        return self.limits[instance]

    def heed_throttle(self) -> None:
        """Do what the throttle has decided: let go who is held no longer, and keep the time; called with the lock held."""
        now = time.perf_counter_ns()
        if self._held_since:
            self._backpressure_ns += now - self._held_since
        self._held_since = now if self.throttle.held else 0
        self.room.notify_all()

    # -- measurements -------------------------------------------------------------------------------------------------

    def _note_dead(self, instance: int, batch: Batch) -> None:
        with self.lock:
            if self.throttle.broke(instance):
                self.heed_throttle()
        if len(self.dead) < _EXAMPLES:
            self.dead += batch.rows()[: _EXAMPLES - len(self.dead)]
            log.warning("dead letter from step %s: %s", self.dead[-1]["step"], self.dead[-1]["error"])

    def _watch(self) -> None:
        """Keep a sample now and then, and end the run when its time is up."""
        end = self.options.seconds
        seen: dict[Station, tuple[int, float]] = {}  #: the turn that each is at, and since when
        while not self.done.wait(self._until_next(end)):
            self.samples.append(self.sample())
            self._warn_of_hanging(seen)
            if end is not None and self._elapsed_s() >= end:
                self.stop()
                end = None

    def _warn_of_hanging(self, seen: dict[Station, tuple[int, float]]) -> None:
        """Say, once for each turn, that a step has been at it for long."""
        now = time.monotonic()
        for station in self.stations:
            turn, since = seen.get(station, (-1, now))
            if station.in_hand is None or station.turn != turn:
                seen[station] = station.turn, now
            elif now - since >= _LONG_S:
                log.warning(
                    "step %s has been at the same %d records for %.0f s; does it hang?",
                    station.name, station.in_hand, now - since,
                )  # fmt: skip
                seen[station] = station.turn, float("inf")

    def _until_next(self, end: float | None) -> float:
        return self.options.sample_s if end is None else max(0.001, min(self.options.sample_s, end - self._elapsed_s()))

    def _elapsed_s(self) -> float:
        return (time.perf_counter_ns() - self._began_ns) / 1e9

    def sample(self) -> Sample:
        """Return all measurements as they are now."""
        now = time.perf_counter_ns()
        steps: dict[str, StepMetrics] = {}
        latency, emit_latency = Histogram(), Histogram()
        out: dict[str, int] = {}
        with self.lock:
            queued = [self.waiting(index) for index in range(len(self.stations))]
            in_hand = self._in_hand()
            backpressure = self._backpressure_ns + (now - self._held_since if self._held_since else 0)
        for station, queue, hand in zip(self.stations, queued, in_hand, strict=True):
            metrics = station.metrics(now)
            metrics.queue, metrics.in_hand = queue, hand
            steps[station.name] = steps[station.name].plus(metrics) if station.name in steps else metrics
            if station.instance.step.is_sink:
                since_created, since_emitted = station.latencies.histograms()
                latency.merge(since_created)
                emit_latency.merge(since_emitted)
                out[station.name] = steps[station.name].records_out
        for source in self.sources:
            steps[source.station.name].queue = source.held
        read = sum(s.station.counters.records_in for s in self.sources)
        at_s = (now - self._began_ns) / 1e9
        return Sample(at_s, steps, latency, emit_latency, read, out, backpressure / 1e9)

    def waiting(self, index: int) -> int:
        """Return how many records are in the queue of an instance; called with the lock held."""
        return self.stations[index].waiting()

    def _in_hand(self) -> list[int]:
        """Return, for each instance, the records that a worker has in hand for it or carries to it."""
        found = [(station.in_hand or 0) + station.given_up for station in self.stations]
        for station in self.stations:
            for to, _, batch, _, count in list(station.carried):
                if batch is not None:
                    found[to] += count
        return found

    def report(self) -> Report:
        """Return what the run has done so far, or in all when it is over."""
        last = self.sample()
        ended = getattr(self, "_ended_ns", None)
        return Report(
            flow=self.flow.name,
            runner=self.runner,
            seconds=((ended or time.perf_counter_ns()) - self._began_ns) / 1e9,
            last=last,
            samples=list(self.samples),
            dead_letters=sum(station.counters.dead for station in self.stations),
            shed=dict(self.shed),
            left=sum(step.left for step in last.steps.values()),
            error=None if self.error is None else str(self.error),
            examples=list(self.dead),
        )
