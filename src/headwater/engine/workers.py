"""The worker pool: a fixed number of threads that do what the scheduler says."""

from __future__ import annotations

import logging
import threading
import time

import numpy as np

from headwater.data.batch import CREATED, NO_WATERMARK
from headwater.data.jit import COMPILED, answering_at_once, uncompiled_answers
from headwater.engine.options import Options
from headwater.engine.policy import policy_named
from headwater.engine.run import EngineRun
from headwater.engine.scheduler import Activation, Scheduler
from headwater.errors import RunError
from headwater.flow.flow import Flow
from headwater.metrics import Report
from headwater.operators.failures import ExitError
from headwater.operators.fault_isolation import error_text
from headwater.operators.queue import Delivery

log = logging.getLogger(__name__)

_TIME_EVERY = 256  #: one decision of so many is timed
#: takes the place of what was run inline, in the list of what a worker carries
_GONE = Delivery(-1, 0, None, NO_WATERMARK, 0)


class WorkerPool(EngineRun):
    """Runs a flow on a few workers that move from step to step; one lock guards the scheduler and all queues."""

    runner = "engine"

    def __init__(self, flow: Flow, options: Options) -> None:
        super().__init__(flow, options)
        self.scheduler = Scheduler(
            self.graph.downstream(),
            policy_named(options.policy),
            take=options.take,
            workers=options.workers,
            limits=self.limits,
            single=[len(instance.channel_ports) == 1 for instance in self.graph.instances],
            throttle=self.throttle,
            uncompiled=COMPILED,  # nobody knows before a step has run
        )
        self.limits = self.scheduler.limits
        self._work = threading.Condition(self.lock)
        self._sleeping = 0
        self._watching = 0  #: those of them that look again by themselves
        self._heeded = self.throttle.held  #: the decision of the throttle that was last heeded
        self._decision_ns = 0

    def make_threads(self) -> list[threading.Thread]:
        """Return the workers."""
        return [self._new_worker(number) for number in range(self.options.workers)]

    def _new_worker(self, number: int) -> threading.Thread:
        return threading.Thread(target=self._worker, name=f"worker {number}", daemon=True)

    # -- sources ------------------------------------------------------------------------------------------------------

    def admit(self, source: int, count: int) -> Activation | None:
        """Let a source hand over records, or return None while it is held."""
        with self.lock:
            return self.scheduler.admit(source, count, time.perf_counter_ns())

    def emitted(self, activation: Activation, deliveries: list[Delivery], created_ns: int) -> None:
        """Run on inline what a source made, as far as it was admitted to; put the rest into queues."""
        if activation.inline:
            deliveries = self._run_inline(activation.inline, deliveries)
        now_ns = time.perf_counter_ns()
        with self.lock:
            self._rest_postponed(activation.inline)
            self._put(deliveries, now_ns, created_ns)
            self._finished(activation)
            self._wake(now_ns)

    def deliver(self, deliveries: list[Delivery], now_ns: int, created_ns: int) -> None:
        """Put watermarks and dead letters of a source into queues and wake a worker for them."""
        with self.lock:
            self._put(deliveries, now_ns, created_ns)
            self._wake(now_ns)

    def put_back(self, deliveries: list[Delivery], *, first: bool = False) -> None:
        """Put entries into queues, however full, at the end or before all others."""
        now_ns = time.perf_counter_ns()
        with self.lock:
            for delivery in deliveries:
                self.tasks[delivery.to].put(delivery.entry(now_ns, _created_ns(delivery)), first=first)
                self.scheduler.arrived(delivery.to, delivery.size, _created_ns(delivery))
                if first:
                    self.scheduler.wake(delivery.to)
            self._heed_throttle()
            self._wake(now_ns)

    # -- workers ------------------------------------------------------------------------------------------------------

    def is_idle(self) -> bool:
        """Say whether nothing is on its way between sources and sinks."""
        with self.lock:
            return self.scheduler.idle()

    def wake_all(self) -> None:
        """Wake every worker."""
        self._work.notify_all()

    def _wake(self, now_ns: int) -> None:
        """Wake a worker if there is something for it to do, or for one that looks again if what runs does not come back."""
        if not self._sleeping:
            return
        to_watch = self.scheduler.ready or self.scheduler.resting
        unwatched = to_watch and not self._watching and self.scheduler.rest_ns(now_ns) is not None
        if unwatched or self.scheduler.wants_worker(now_ns):
            self._work.notify()

    def add_worker(self) -> None:
        """Have one worker more at it where none comes back."""
        with self.lock:
            if not self.scheduler.add_worker(time.perf_counter_ns()):
                return
            number = self.scheduler.workers - 1
        log.info("no worker has come back for a while, so there is one more: %d", number + 1)
        worker = self._new_worker(number)
        self._threads.append(worker)
        worker.start()

    def _worker(self) -> None:
        np.seterr(all="ignore")
        with self.lock, answering_at_once():
            try:
                self._work_till_the_end()
            except ExitError as error:
                self._fail_unlocked(error)
            except BaseException as error:  # a bug of ours: better to stop with a message than to wait for ever
                log.exception("worker broke")
                self._fail_unlocked(RunError(f"worker broke: {error_text(error)}"))

    def _fail_unlocked(self, error: RunError) -> None:
        self.lock.release()
        try:
            self.fail(error)
        finally:
            self.lock.acquire()

    def _work_till_the_end(self) -> None:
        now_ns = time.perf_counter_ns()
        while not self.finished():
            activation = self._next(now_ns)
            if activation is None:
                self._sleep()
                now_ns = time.perf_counter_ns()
            else:
                now_ns = self._activate(activation, now_ns)

    def _next(self, now_ns: int) -> Activation | None:
        if self.scheduler.decisions % _TIME_EVERY:
            return self.scheduler.next(now_ns)
        start_ns = time.perf_counter_ns()
        activation = self.scheduler.next(now_ns)
        if activation is not None:
            self._decision_ns += (time.perf_counter_ns() - start_ns) * _TIME_EVERY
        return activation

    def _activate(self, activation: Activation, now_ns: int) -> int:
        """Run a step on what it is given, without the lock, and carry what it made to where it goes."""
        task = self.tasks[activation.instance]
        entries = task.queue.take(activation.records)
        self._heed_throttle()
        if activation.long:
            self._wake(now_ns)
        self.lock.release()
        try:
            answers = uncompiled_answers()
            start_ns = time.perf_counter_ns()
            deliveries, out = task.run(entries)
            elapsed_ns = time.perf_counter_ns() - start_ns
            uncompiled = uncompiled_answers() != answers
            if activation.inline:
                deliveries = self._run_inline(activation.inline, deliveries)
        finally:
            self.lock.acquire()
        now_ns = time.perf_counter_ns()
        self._rest_postponed((activation.instance, *activation.inline))
        self._put(deliveries, now_ns, entries[0].created_ns)
        task.in_transit = []
        task.rest(now_ns)
        self._finished(activation, elapsed_ns, out, uncompiled=uncompiled)
        if task.ended:
            self.ended(task)
        return now_ns

    def _run_inline(self, inline: tuple[int, ...], deliveries: list[Delivery]) -> list[Delivery]:
        """Run records on through the steps that are reserved for them; return what is left to be put into queues."""
        remaining: list[Delivery] = []
        for i, delivery in enumerate(deliveries):  # grows while we walk along it
            to = delivery.to
            if to not in inline or self.tasks[to].postponed:
                remaining.append(delivery)
                continue
            deliveries[i] = _GONE
            elapsed_ns = self.tasks[to].run_inline(delivery, deliveries)
            if elapsed_ns:
                self.scheduler.learn(to, delivery.size, elapsed_ns)
        return remaining

    def _rest_postponed(self, instances: tuple[int, ...]) -> None:
        """Put back what a step failed at, and let it rest until that is tried again; the others go on."""
        for instance in instances:
            task = self.tasks[instance]
            if task.postponed:
                created_ns = task.postponed[0].created_ns
                self.scheduler.arrived(instance, task.put_back(), created_ns)
                if task.queue.entries[0].control is None:  # a word about a checkpoint does not wait
                    self.scheduler.rest(instance, task.resting_ns)

    def _put(self, deliveries: list[Delivery], now_ns: int, created_ns: int) -> None:
        tasks, arrived = self.tasks, self.scheduler.arrived
        for delivery in deliveries:
            to = delivery.to
            self.learn_limit(to, delivery.batch)
            tasks[to].put(delivery.entry(now_ns, created_ns))
            arrived(to, delivery.size, created_ns)
        self._heed_throttle()

    def _finished(self, activation: Activation, elapsed_ns: int = 0, out: int = 0, *, uncompiled: bool = False) -> None:
        head_ns = self.tasks[activation.instance].queue.head_created_ns()
        self.scheduler.finished(activation, elapsed_ns, out, head_ns, uncompiled)
        for each in activation.inline:
            if self.tasks[each].ended:
                self.ended(self.tasks[each])

    def _heed_throttle(self) -> None:
        if self.throttle.held is not self._heeded:
            self._heeded = self.throttle.held
            self.heed_throttle()

    def _sleep(self) -> None:
        rest_ns = self.scheduler.rest_ns(time.perf_counter_ns())
        watches = rest_ns is not None
        self._sleeping += 1
        self._watching += watches
        self._work.wait(None if rest_ns is None else rest_ns / 1e9)
        self._watching -= watches
        self._sleeping -= 1

    def report(self) -> Report:
        """Return what the run has done, the scheduler's own work included."""
        report = super().report()
        report.decisions, report.decision_s = self.scheduler.decisions, self._decision_ns / 1e9
        return report


def _created_ns(delivery: Delivery) -> int:
    return 0 if delivery.batch is None else int(delivery.batch.stamps[0, CREATED])
