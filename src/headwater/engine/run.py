"""A run in progress: what the two runners share. Sources, the throttle that holds them, the end, samples, the report."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from headwater.data.batch import Batch
from headwater.data.jit import answering_at_once, being_compiled
from headwater.engine import closing
from headwater.engine.checks import check_endpoints
from headwater.engine.closing import close_within_grace, text_of
from headwater.engine.hanging import Hanging
from headwater.engine.measuring import accounts_of, in_hand_of, watermarks_of
from headwater.engine.options import Options
from headwater.engine.scheduler import Activation, Throttle
from headwater.engine.source import SourceThread
from headwater.engine.timekeeper import Timekeeper
from headwater.engine.warm import kernels_of, load_kernels
from headwater.errors import RunError, one_line
from headwater.flow.endpoints import Reader, Source, is_remote
from headwater.flow.flow import Flow
from headwater.flow.steps import Step, Write
from headwater.histogram import Histogram
from headwater.metrics import Report, Sample, StepMetrics
from headwater.operators import Operator, build
from headwater.operators.execution_graph import ExecutionGraph
from headwater.operators.queue import Delivery
from headwater.operators.task import Task
from headwater.operators.write import WriteOperator
from headwater.run import outcome

if TYPE_CHECKING:
    from headwater.engine.checkpoint import Checkpointer
    from headwater.operators.write import Begin

log = logging.getLogger(__name__)

_EXAMPLES = 5
_AGAIN_S = 0.02  #: before it is looked again whether time is up: a clock that is stopped puts that off
_QUIET_S = 60.0  #: between two warnings that a sink has little room
_WAITS = "; with a checkpoint (--checkpoint DIR), or --forward DIR, records wait on disk for such a sink"


class EngineRun(ABC):
    """A flow at work in this process, as `headwater.run.Run` has it.

    A subclass moves records: it owns the workers and the queues' locks.
    """

    runner = ""
    most = 2000  #: records that a source with a backlog hands over at once, unless `chunk` is more

    def __init__(self, flow: Flow, options: Options) -> None:
        self.flow, self.options = flow, options
        self.grace_s = options.grace_s  #: after an abort; who needs the threads to be gone gives them longer
        self.graph = ExecutionGraph.of(flow)
        self._kernels = kernels_of(self.graph)
        self._kernels.load()
        load_kernels(self.graph)
        self.lock = threading.Lock()  #: guards the throttle, the end and, in the worker pool, all queues
        self.room = threading.Condition(self.lock)  #: sources wait here for queues to drain
        self.throttle = Throttle(self.graph.downstream(), self.graph.sources(), self.graph.dead_letters())
        self.aborted = False
        self.stopping = threading.Event()
        self._stopped_s: float | None = None  #: when it was told to stop
        self.done = threading.Event()
        self.error: RunError | None = None
        self.dead: deque[dict[str, str]] = deque(maxlen=_EXAMPLES)
        self.samples: deque[Sample] = deque(maxlen=3600)
        self.shed: dict[str, int] = {}
        self._backpressure_ns = 0
        self._throttled_since = 0
        self._warned_s = -_QUIET_S
        self.halted = False  #: the last checkpoint is made, and nothing is to be processed any more
        check_endpoints(flow, in_parts=options.checkpoint is not None)
        self.checkpointer = self.make_checkpointer()
        self.tasks = self._build()
        self.limits = [options.queue_records] * len(self.tasks)
        self._puts = [0] * len(self.tasks)
        self._to_end = sum(1 for task in self.tasks if task.operator is not None)
        self._ended: set[int] = set()
        for task in self.tasks:
            if isinstance(task.operator, WriteOperator):
                self.throttle.extend(task.instance.index, len(self.tasks) + task.instance.index)
                task.operator.hold_by(partial(self._throttle_for_sink, len(self.tasks) + task.instance.index))
        self.sources = [SourceThread(self, s) for s in self.tasks if s.instance.step.is_source]
        self._threads: list[threading.Thread] = []
        self._closed = False

    def _build(self) -> list[Task]:
        """Make the running form of every instance; what cannot open says so before anything has started."""
        tasks: list[Task] = []
        try:
            for instance in self.graph.instances:
                begin = None if self.checkpointer is None else partial(self.checkpointer.transaction, instance)
                operator = None if instance.step.is_source else self.make_operator(instance.step, begin)
                task = Task(instance, operator, measure=self.options.measure)
                task.on_dead = partial(self._note_dead, instance.index)
                tasks.append(task)
        except Exception:
            for task in tasks:
                if task.operator is not None:
                    task.operator.close()
            if self.checkpointer is not None:
                self.checkpointer.close()
            raise
        return tasks

    def make_checkpointer(self) -> Checkpointer | None:
        """Return what makes checkpoints; None for a run that keeps none."""
        if self.options.checkpoint is None:
            return None
        from headwater.engine.checkpoint import Checkpointer

        return Checkpointer.open(
            self.graph,
            self.options.checkpoint,
            every_s=self.options.every_s,
            allow_dropped_state=self.options.allow_dropped_state,
        )

    def make_operator(self, step: Step, begin: Begin | None) -> Operator:
        """Make the running form of one instance of a step; `begin` opens sinks of a run that keeps checkpoints."""
        return build(step, begin)

    def read_through(self, reader: Reader, source: Source) -> Reader:
        """Return what a source is read through: its reader itself, or what a subclass puts before it."""
        return reader

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start workers, sources and the sampling of measurements; return at once."""
        checkpointer = self.checkpointer
        try:
            if checkpointer is not None:
                checkpointer.attach(self)
            for source in self.sources:
                recovery = None if checkpointer is None else checkpointer.recovery
                source.open(None if recovery is None else recovery.position(source.task.instance))
        except Exception:
            self._close()
            raise
        now = time.perf_counter_ns()
        for task in self.tasks:
            task.counters.started_ns = task.counters.empty_since_ns = now
        self._began_ns = now
        self._threads = self.make_threads()
        self._threads += [threading.Thread(target=s.loop, name=s.thread_name, daemon=True) for s in self.sources]
        self._threads.append(threading.Thread(target=self._watch, name="watch", daemon=True))
        timekeeper = self.make_timekeeper()
        if timekeeper.has_work:
            self._threads.append(threading.Thread(target=timekeeper.loop, name="time", daemon=True))
        if checkpointer is not None:
            checkpointer.restore_queues()
            self._threads.append(checkpointer.thread())
        for thread in self._threads:
            thread.start()
        return self

    def make_timekeeper(self) -> Timekeeper:
        """Return who sees to what has to happen although no record comes."""
        return Timekeeper(self)

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
    def put_back(self, deliveries: list[Delivery], *, first: bool = False) -> None:
        """Put entries into queues, however full, at the end or before all others; called without the lock."""

    @abstractmethod
    def wake_all(self) -> None:
        """Wake every thread that waits for something; called with the lock held."""

    def add_worker(self) -> None:  # noqa: B027  where every step has a thread, none is in the way of another
        """Look, now and then, whether steps that do not come back hold up others; called without the lock."""

    def stop(self) -> None:
        """Stop reading; what is in the queues is still processed, but for what a full disk has no room for in time."""
        self.stopping.set()
        self._stopped_s = self._stopped_s or time.monotonic()
        for source in self.sources:
            source.let_go()
        if self.checkpointer is not None:
            self.checkpointer.look_now()

    @property
    def gives_up_room(self) -> bool:
        """Whether it was told to stop so long ago that a full disk is not waited for any more."""
        return self._stopped_s is not None and time.monotonic() > self._stopped_s + closing.ROOM_S

    def abort(self) -> None:
        """Stop at once; what is in the queues stays there and is counted as left."""
        self.stopping.set()
        with self.lock:
            self.aborted = True
            self.wake_all()
            self.room.notify_all()
        self.done.set()

    def halt(self) -> None:
        """End now that the last checkpoint is made: nothing is left that a later run would not have."""
        with self.lock:
            self.halted = True
            self.done.set()
            self.wake_all()
            self.room.notify_all()

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
            with answering_at_once():  # on a busy machine the compiler, which gives way to all others, takes minutes
                if self.checkpointer is not None and not self.aborted:
                    self._finish_checkpoints(self.checkpointer)
                self._close()
        return outcome(self.report(), self.error)

    def _finish_checkpoints(self, checkpointer: Checkpointer) -> None:
        try:
            checkpointer.finish()
        except Exception as error:
            message = (
                f"the last checkpoint could not be made: {text_of(error)}; a later run goes on from the one before"
            )
            failure = error if isinstance(error, RunError) else RunError(message)  # the checkpointer says it itself
            self.error = self.error or failure

    def _join(self) -> None:
        """Wait for all threads; once aborted, not for ever."""
        began_s = time.monotonic()
        for thread in self._threads:
            while thread.is_alive() and not (self.aborted and time.monotonic() > began_s + self.grace_s):
                left_s = began_s + self.grace_s - time.monotonic()
                thread.join(min(1.0, max(0.01, left_s)) if self.aborted else 1.0)
        hanging = self._hanging()
        if hanging:
            names = " and ".join(f"{'source' if s.operator is None else 'step'} {s.name!r}" for s in hanging)
            message = f"{names} did not come back within {self.grace_s:g} s of being told to stop"
            log.error(message)
            self.error = self.error or RunError(message, step=hanging[0].name)

    def _hanging(self) -> list[Task]:
        """Return those whose thread, or a worker, has not come back; none but after an abort."""
        alive = {thread.name for thread in self._threads if thread.is_alive()}
        at_work = [task for task in self.tasks if task.in_hand is not None] if alive else []
        # a source's thread that is alive hangs in a step that it runs inline, or in its reader
        return at_work or [source.task for source in self.sources if source.thread_name in alive]

    def _close(self) -> None:
        """Close what was opened, but for what a thread still is in; once aborted, wait for none of it for ever."""
        self._closed = True
        self._kernels.save()
        if self.checkpointer is not None:
            self.checkpointer.close()
        hanging = self._hanging()
        for source in self.sources:
            if source.task not in hanging:
                error = close_within_grace(self, source.task, source.close)
                self.error = self.error or error
        for task in self.tasks:
            if task.operator is not None and task not in hanging:
                error = close_within_grace(self, task, task.operator.close)
                self.error = self.error or error

    def ended(self, task: Task) -> None:
        """Take note that an instance has seen its last record, however often it is said; called with the lock held."""
        if task.instance.index in self._ended:
            return
        self._ended.add(task.instance.index)
        self._to_end -= 1
        if self._to_end == 0:
            self.done.set()
            self.wake_all()
            self.room.notify_all()

    def finished(self) -> bool:
        """Say whether workers should go home."""
        return self.aborted or self.halted or self._to_end == 0

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
        if self._throttled_since:
            self._backpressure_ns += now - self._throttled_since
        self._throttled_since = now if self.throttle.held else 0
        self.room.notify_all()

    def queue_name(self, number: int) -> str:
        """Return whose queue it is that the throttle knows by a number; behind those of tasks are what their sinks keep."""
        return self.tasks[number % len(self.tasks)].name

    def _throttle_for_sink(self, number: int, share: float) -> None:
        """Hold the sources of a sink that has little room left, or let them go; called without the lock."""
        permille = round(share * 1000)
        with self.lock:
            was_full = number in self.throttle.full
            if self.throttle.grew(number, permille, 1000) or self.throttle.shrank(number, permille, 1000):
                self.heed_throttle()
            is_new = number in self.throttle.full and not was_full
        now_s = time.monotonic()
        if is_new and now_s - self._warned_s > _QUIET_S:
            self._warned_s = now_s
            log.warning(
                "the flow is held: of the room for what waits for sink %s, %d %% are taken",
                self.queue_name(number),
                permille // 10,
            )

    # -- measurements -------------------------------------------------------------------------------------------------

    def _note_dead(self, instance: int, batch: Batch) -> None:
        with self.lock:
            if self.throttle.broke(instance):
                self.heed_throttle()
        if len(self.dead) < _EXAMPLES:
            self.dead += batch.rows()[: _EXAMPLES - len(self.dead)]
            letter, kind = self.dead[-1], self.tasks[instance].instance.step.kind
            cut_off = isinstance(kind, Write) and is_remote(kind.sink) and letter["error"].startswith("InputError")
            hint = _WAITS if cut_off and self.checkpointer is None else ""
            log.warning("dead letter from step %s: %s%s", letter["step"], one_line(letter["error"]), hint)

    def _watch(self) -> None:
        """Keep a sample now and then, and end the run when its time is up."""
        end = self.options.seconds
        hanging = Hanging(self.options.hang_s)
        next_s = time.monotonic() + self._look_s
        while not self.done.wait(self._until_next(next_s, end)):
            is_over = end is not None and self._reading_s() >= end
            if not is_over and time.monotonic() < next_s:
                continue
            next_s = time.monotonic() + self._look_s
            self.samples.append(self.sample())
            self._kernels.save()  # now too, and not at the end alone: its steps may be about to run elsewhere
            self.add_worker()
            self._tell_hanging(hanging.look(self.tasks))
            self._look_for_room()
            if is_over:
                self.stop()
                end = None

    def _tell_hanging(self, hanging: Iterable[tuple[Task, str]]) -> None:
        """Say that steps have been at it for too long; or stop, where that is asked for."""
        for task, message in hanging:
            if self.options.on_hang == "stop":
                self.fail(RunError(f"step {task.name!r} {message}, and on_hang is 'stop'", step=task.name))
                return
            log.warning("step %s %s; does it hang?", task.name, message)

    def _look_for_room(self) -> None:
        """End a run that was told to stop and cannot drain, since a disk is full."""
        full = [task.name for task in self.tasks if task.failures.finds_no_room] if self.gives_up_room else []
        if full:
            message = f"sink {full[0]!r} found its disk full, and no room for {closing.ROOM_S:g} s after the run"
            message += " was told to stop"
            self.fail(RunError(f"{message}; what it has not written is counted as left", step=full[0]))

    @property
    def _look_s(self) -> float:
        return min(self.options.sample_s, self.options.hang_s)

    def _until_next(self, next_s: float, end: float | None) -> float:
        """Return for how long to wait for the next look, or for the end, if that comes first."""
        look_s = max(0.001, next_s - time.monotonic())
        return look_s if end is None else min(look_s, max(_AGAIN_S, end - self._reading_s()))

    def _reading_s(self) -> float:
        """Return for how long sources were read: while one waits for the compiler, that does not count."""
        waited_s = max((source.compiling_s() for source in self.sources), default=0.0)
        return (time.perf_counter_ns() - self._began_ns) / 1e9 - waited_s

    def is_idle(self) -> bool:
        """Say whether nothing is on its way between sources and sinks; senders come first, so that nothing is missed."""
        return not any(task.queue.entries or task.in_hand is not None or task.in_transit for task in self.tasks)

    def being_compiled(self) -> int:
        """Return how many kernels that records need are asked for and not there yet."""
        return being_compiled()

    def status_line(self) -> str:
        """Say in a line what it is at."""
        compiling = being_compiled()
        message = f"running {self.flow.name}"
        return f"{message}; kernels still being compiled, once on this machine: {compiling}" if compiling else message

    def sample(self) -> Sample:
        """Return all measurements as they are now."""
        now = time.perf_counter_ns()
        steps: dict[str, StepMetrics] = {}
        latency, emit_latency = Histogram(), Histogram()
        out: dict[str, int] = {}
        with self.lock:
            queued = [self.waiting(index) for index in range(len(self.tasks))]
            in_hand = in_hand_of(self.tasks)
            backpressure = self._backpressure_ns + (now - self._throttled_since if self._throttled_since else 0)
        for task, queue, hand in zip(self.tasks, queued, in_hand, strict=True):
            metrics = task.metrics(now)
            metrics.queue, metrics.in_hand = queue, hand
            steps[task.name] = steps[task.name].plus(metrics) if task.name in steps else metrics
            if self.is_output(task):
                since_created, since_emitted = task.latencies.histograms()
                latency.merge(since_created)
                emit_latency.merge(since_emitted)
                out[task.name] = steps[task.name].records_out
        for source in self.sources:
            steps[source.task.name].queue = source.held
        records_in = sum(s.task.counters.records_in for s in self.sources)
        at_s = (now - self._began_ns) / 1e9
        return Sample(
            at_s, steps, latency, emit_latency, records_in, out, backpressure / 1e9, watermarks_of(self.tasks)
        )

    def is_output(self, task: Task) -> bool:
        """Say whether records that come here have come out of the flow."""
        return task.instance.step.is_sink

    def waiting(self, index: int) -> int:
        """Return how many records are in the queue of an instance; called with the lock held."""
        return self.tasks[index].queue.records()

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
            dead_letters=sum(task.counters.dead for task in self.tasks),
            shed=dict(self.shed),
            left=sum(step.left for step in last.steps.values()),
            error=None if self.error is None else str(self.error),
            examples=list(self.dead),
            extra=self._extra(),
        )

    def _extra(self) -> dict[str, Any]:
        """Return what writers tell of records that they have taken, by step, and what checkpoints were made."""
        accounts = accounts_of(self.tasks)
        extra: dict[str, Any] = {"sinks": accounts} if accounts else {}
        return extra if self.checkpointer is None else {**extra, "checkpoints": self.checkpointer.to_json()}
