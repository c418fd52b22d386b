"""The worker pool: a fixed number of threads that do what the decision machine says."""

from __future__ import annotations

import logging
import threading
import time

import numpy as np

from headwater.engine.crew import Crew
from headwater.engine.machine import Machine
from headwater.engine.options import Options
from headwater.engine.policy import policy_named
from headwater.engine.run import Run
from headwater.engine.station import Delivery, ExitError
from headwater.engine.thread_time import ThreadTime
from headwater.errors import RunError
from headwater.flow.batch import NO_WATERMARK
from headwater.flow.flow import Flow
from headwater.metrics import Report
from headwater.operators.broken import told

log = logging.getLogger(__name__)

#: takes the place of what rode on, in the list of what a worker carries
_GONE: Delivery = (-1, 0, None, NO_WATERMARK, 0)
_TIME_EVERY = 256  #: one decision of so many is timed
_WATCH_EVERY = 16  #: one turn of so many tells the crew how it went
_PATIENCE_S = 0.02  #: how long the crew's number is kept when those at work do not come back


class WorkerPool(Run):
    """Runs a flow on a few workers that move from step to step; one lock guards the machine and all queues."""

    runner = "engine"

    def __init__(self, flow: Flow, options: Options) -> None:
        super().__init__(flow, options)
        self.machine = Machine(self.plan.downstream(), policy_named(options.policy), options.take, self.limits)
        self.limits = self.machine.limits
        self._work = threading.Condition(self.lock)
        self._crew = Crew(options.workers)
        self._sleeping = 0
        self._spare = False  #: whether a worker had nothing to do since the crew last took stock
        self._running = 0
        self._started_ns = 0  #: when a worker last began a turn
        self._decision_ns = 0

    def make_threads(self) -> list[threading.Thread]:
        """Return the workers."""
        return [
            threading.Thread(target=self._worker, name=f"worker {i}", daemon=True) for i in range(self.options.workers)
        ]

    def deliver(self, deliveries: list[Delivery], now_ns: int, born_ns: int) -> None:
        """Put what a source made into queues and wake a worker for it."""
        with self.lock:
            self._put(deliveries, now_ns, born_ns)
            if self._sleeping and self.machine.ready and self._running < self._crew.size:
                self._work.notify()

    def wake_all(self) -> None:
        """Wake every worker."""
        self._work.notify_all()

    def _put(self, deliveries: list[Delivery], now_ns: int, born_ns: int) -> None:
        stations, arrived, waiting = self.stations, self.machine.arrived, self.machine.waiting
        for to, channel, batch, watermark, count in deliveries:
            limit = self.learn_limit(to, batch)
            stations[to].put((channel, batch, watermark, now_ns, count, born_ns))
            arrived(to, count, born_ns)
            if self.gate.grew(to, waiting[to], limit):
                self.heed_gate()

    def _worker(self) -> None:
        np.seterr(all="ignore")
        clock = ThreadTime()
        with self.lock:
            try:
                self._work_till_the_end(clock)
            except ExitError as error:
                self._fail_unlocked(error)
            except BaseException as error:  # a bug of ours: better to stop with a message than to wait for ever
                log.exception("worker broke")
                self._fail_unlocked(RunError(f"worker broke: {told(error)}"))
            finally:
                clock.close()

    def _fail_unlocked(self, error: RunError) -> None:
        self.lock.release()
        try:
            self.fail(error)
        finally:
            self.lock.acquire()

    def _work_till_the_end(self, clock: ThreadTime) -> None:
        machine, stations, lock = self.machine, self.stations, self.lock
        while not self.finished():
            if self._running >= self._crew.size and not self._stuck():
                self._sleep(_PATIENCE_S if machine.ready else None)
                continue
            command = self._timed_next() if machine.decisions % _TIME_EVERY == 0 else machine.next()
            if command is None:
                self._spare = True
                self._sleep(None)
                continue
            index, count = command
            station = stations[index]
            entries = station.queue.take(count)
            if self.gate.crowded and self.gate.shrank(index, machine.waiting[index], self.limits[index]):
                self.heed_gate()
            self._running += 1
            if self._sleeping and machine.ready and self._running < self._crew.size:
                self._work.notify()
            company = self._running if machine.decisions % _WATCH_EVERY == 0 else 0
            lock.release()
            able_ns = clock.able_ns() if company else 0
            start = self._started_ns = time.perf_counter_ns()
            try:
                deliveries, out = station.run(entries)
                deliveries = self.ride(deliveries)
            finally:
                if company:
                    self._crew.turned(company, time.perf_counter_ns() - start, clock.able_ns() - able_ns)
                lock.acquire()
                self._running -= 1
            now_ns = time.perf_counter_ns()
            if now_ns >= self._crew.due_ns:
                self._muster(now_ns)
            if deliveries:
                self._put(deliveries, now_ns, entries[0][5])
            station.carried = []
            station.rest(now_ns)
            machine.finished(index, count, now_ns - start, out, station.queue.head_born_ns())
            if station.ended:
                self.ended(station)

    def _sleep(self, timeout_s: float | None) -> None:
        self._sleeping += 1
        self._work.wait(timeout_s)
        self._sleeping -= 1

    def _stuck(self) -> bool:
        """Say whether those at work have been at it for long: they wait for something, and another may go ahead."""
        return time.perf_counter_ns() - self._started_ns > _PATIENCE_S * 1e9

    def _muster(self, now_ns: int) -> None:
        """Let the crew take stock; wake everyone if more of them may work now."""
        before = self._crew.size
        unknown = self._spare or not self.options.measure
        done = None if unknown else sum(station.counters.records_in for station in self.stations)
        self._crew.look(now_ns, done)
        self._spare = False
        if self._crew.size > before:
            self._work.notify_all()

    def ride(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Run records on through cheap steps that nobody else is at; return what is left to be put into queues."""
        left: list[Delivery] = []
        behind: set[int] = set()  # who has something left: what follows must not overtake it
        stations, may_ride = self.stations, self.machine.may_ride
        for i, delivery in enumerate(deliveries):  # grows while we walk along it
            to, _, batch, watermark, count = delivery
            may = watermark == NO_WATERMARK and to not in behind and may_ride(to)
            if batch is not None and may and stations[to].has_one_sender:
                deliveries[i] = _GONE
                elapsed_ns = stations[to].ride(batch, deliveries)
                if elapsed_ns:
                    self.machine.learn(to, count, elapsed_ns)
            else:
                left.append(delivery)
                behind.add(to)
        return left

    def _timed_next(self) -> tuple[int, int] | None:
        start = time.perf_counter_ns()
        command = self.machine.next()
        if command is not None:
            self._decision_ns += (time.perf_counter_ns() - start) * _TIME_EVERY
        return command

    def report(self) -> Report:
        """Return what the run has done, the scheduler's own work included."""
        report = super().report()
        report.decisions, report.decision_s = self.machine.decisions, self._decision_ns / 1e9
        report.extra["workers"] = {"most": self.options.workers, "now": self._crew.size}
        return report
