"""The baseline: one thread per step instance and bounded queues, scheduled by the operating system.

It is what Storm and Flink do. Steps, queues, batches and measurements are the worker pool's own, so that the two runners
differ in scheduling alone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import numpy as np

from headwater.data.jit import COMPILED, answering_at_once, uncompiled_answers
from headwater.engine.options import Options
from headwater.engine.run import EngineRun
from headwater.engine.scheduler import Activation, batch_size
from headwater.engine.scheduler.throttle import HIGH, LOW
from headwater.errors import RunError
from headwater.flow.flow import Flow
from headwater.operators.failures import ExitError
from headwater.operators.fault_isolation import error_text
from headwater.operators.queue import Delivery, QueueEntry
from headwater.operators.task import Task

log = logging.getLogger(__name__)


class ThreadPerStep(EngineRun):
    """Runs each instance of each step in a thread of its own; a full queue makes its writers wait."""

    runner = "threads"

    def __init__(self, flow: Flow, options: Options) -> None:
        super().__init__(flow, options)
        self._boxes = [_Box() for _ in self.tasks]

    def make_threads(self) -> list[threading.Thread]:
        """Return a thread for each instance that has an operator."""
        return [
            threading.Thread(target=self._loop, args=(i, task), name=task.name, daemon=True)
            for i, task in enumerate(self.tasks)
            if task.operator is not None
        ]

    def wake_all(self) -> None:
        """Wake every thread; it looks at the run's state itself."""
        # the run's lock is held here; nobody who holds a box's lock waits for it
        for box in self._boxes:
            box.wake()

    def waiting(self, index: int) -> int:
        """Return how many records are in a queue."""
        with self._boxes[index].lock:
            return super().waiting(index)

    def admit(self, source: int, count: int) -> Activation | None:
        """Let a source hand over records, or return None while it is held; nothing runs inline."""
        return None if source in self.throttle.held else Activation(source, count, (), long=False, by_source=True)

    def emitted(self, activation: Activation, deliveries: list[Delivery], created_ns: int) -> None:
        """Put what a source made into queues."""
        self.deliver(deliveries, time.perf_counter_ns(), created_ns)

    def deliver(self, deliveries: list[Delivery], now_ns: int, created_ns: int) -> None:
        """Put entries into their queues, waiting while one is full."""
        for delivery in deliveries:
            to = delivery.to
            limit = self.learn_limit(to, delivery.batch)
            box, task = self._boxes[to], self.tasks[to]
            with box.lock:
                while box.waiting >= limit and not self.aborted and not task.ended:
                    box.room.wait()
                task.put(delivery.entry(now_ns, created_ns))
                box.waiting += delivery.size
                box.work.notify()
                full = box.waiting >= HIGH * limit and to not in self.throttle.full
            if full:
                self._ask_throttle(self.throttle.grew, to)

    def put_back(self, deliveries: list[Delivery], *, first: bool = False) -> None:
        """Put entries into queues, however full, at the end or before all others."""
        now_ns = time.perf_counter_ns()
        for delivery in deliveries:
            box = self._boxes[delivery.to]
            with box.lock:
                self.tasks[delivery.to].put(delivery.entry(now_ns, 0), first=first)
                box.waiting += delivery.size
                box.work.notify()

    def _ask_throttle(self, update: Callable[[int, int, int], bool], index: int) -> None:
        """Tell the throttle how long a queue is, and do what it decides; nobody may take or put meanwhile."""
        with self.lock, self._boxes[index].lock:
            if update(index, self._boxes[index].waiting, self.limits[index]):
                self.heed_throttle()

    def _loop(self, index: int, task: Task) -> None:
        np.seterr(all="ignore")
        try:
            with answering_at_once():
                self._run_to_the_end(index, task)
        except ExitError as error:
            self.fail(error)
        except BaseException as error:  # a bug of ours: better to stop with a message than to wait for ever
            log.exception("step %s broke", task.name)
            self.fail(RunError(f"step {task.name!r} broke: {error_text(error)}", step=task.name))

    def _run_to_the_end(self, index: int, task: Task) -> None:
        uncompiled = COMPILED  # nobody knows before it has run
        while not task.ended:
            entries = self._take(index, task, uncompiled)
            if not entries:
                return
            answers = uncompiled_answers()
            deliveries, _ = task.run(entries)
            uncompiled = uncompiled_answers() != answers
            now_ns = time.perf_counter_ns()
            if deliveries:
                self.deliver(deliveries, now_ns, entries[0].created_ns)
            task.in_transit = []
            with self._boxes[index].lock:
                self._boxes[index].waiting += task.put_back()
                task.rest(now_ns)
        with self.lock:
            self.ended(task)

    def _take(self, index: int, task: Task, uncompiled: bool) -> list[QueueEntry]:
        box = self._boxes[index]
        with box.lock:
            while not box.waiting or (rest_s := _rest_s(task)):
                if self.aborted or self.halted:
                    return []
                box.work.wait(rest_s if box.waiting else None)
            if self.aborted or self.halted:
                return []
            count = batch_size(self.options.take, box.waiting, uncompiled=uncompiled)
            task.in_hand = 0  # from now on it is at work, and not idle
            entries = task.queue.take(count)
            box.waiting -= count
            box.room.notify_all()
            released = index in self.throttle.full and box.waiting < LOW * self.limits[index]
        if released:
            self._ask_throttle(self.throttle.shrank, index)
        return entries


def _rest_s(task: Task) -> float:
    """Return how long a task is to wait before it tries again what it failed at; a word about a checkpoint does not wait."""
    if not task.resting_ns or task.queue.entries[0].control is not None:
        return 0.0
    return max(0, task.resting_ns - time.perf_counter_ns()) / 1e9


class _Box:
    """The lock of one queue, and those who wait at it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.work = threading.Condition(self.lock)
        self.room = threading.Condition(self.lock)
        self.waiting = 0

    def wake(self) -> None:
        with self.lock:
            self.work.notify_all()
            self.room.notify_all()
