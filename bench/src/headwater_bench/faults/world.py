"""The engine's tasks and its checkpointer, moved by a seeded schedule: one thing at a time, in any order that could be."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random
from typing import Any

from headwater.data.batch import END, Batch
from headwater.engine.checkpoint import Checkpointer
from headwater.engine.checkpoint.store import Store
from headwater.engine.checkpointed_source import CheckpointedSource
from headwater.errors import HeadwaterError, RunError
from headwater.operators import build
from headwater.operators.execution_graph import ExecutionGraph, Instance
from headwater.operators.queue import Delivery
from headwater.operators.task import Task
from headwater_bench.faults.sinks import SinkContents, parts_of


class SimulatedSource(CheckpointedSource):
    """A source at work, as `engine.source.SourceThread` is one, which does one thing at a time."""

    def __init__(self, world: World, task: Task, records: Batch, position: int | None) -> None:
        super().__init__(task, world.checkpointer)
        self.world, self._records = world, records
        self.handed, self._at = position, position or 0

    def _send_barrier(self, deliveries: list[Delivery]) -> None:
        self.world.deliver(deliveries)

    def _commit_reader(self, position: int | None) -> None:
        self.world.forget(self.task.name, position or 0)

    @property
    def idle(self) -> bool:
        """Whether there is nothing that it could do now."""
        waits = self._to_commit < 0 and not self._is_asked
        return self.ended or (self.world.stopping.is_set() and waits)

    @property
    def _is_asked(self) -> bool:
        return self._is_barrier_due(final=False) or self._is_barrier_due(final=True)

    def move(self) -> None:
        """Do one thing that is due: commit, send a barrier, hand records over, or say that there are no more."""
        if self._to_commit >= 0:
            self._heed_commit()
        elif self._is_asked:
            self._heed_barrier(at_end=True)
        elif not self.world.stopping.is_set():
            self._read()

    def _read(self) -> None:
        end = min(self._records.length, self._at + self.world.random.choice([1, 3, 8, 20]))
        if end == self._at:
            self.ended = True
            deliveries: list[Delivery] = []
            self.task.router.send_watermark(END, deliveries)
            self.world.later.append(deliveries)  # a moment passes between the one and the other
            return
        batch = self._records.slice(self._at, end)
        self._at = end
        self.world.deliver(self.task.emit(batch))
        self.handed = end


class World:
    """A run in progress, as a checkpointer sees one; `checkpoints` is None for a run without them."""

    def __init__(
        self,
        random: Random,
        graph: ExecutionGraph,
        records: dict[str, Batch],
        sinks: dict[str, SinkContents],
        store: Store | None,
        fails: Callable[[str], bool] = lambda call: False,
    ) -> None:
        self.random, self.sinks, self._fails = random, sinks, fails
        self.lock = threading.Lock()
        self.room = threading.Condition(self.lock)
        self.stopping, self.done = threading.Event(), threading.Event()
        self.halted = False
        self.now_s = 0.0
        self.forgotten: dict[str, int] = {}
        self.later: list[list[Delivery]] = []
        self.before_move: Callable[[], None] = lambda: None  #: crashes or stops the run, now and then
        self.checkpointer = None
        if store is not None:
            every_s = random.choice([0.05, 0.2, 2.0])
            small = random.choice([0, 0, 2**20])  # whether there are checkpoints of changes
            self.checkpointer = Checkpointer(graph, store, every_s=every_s, small_bytes=small, clock=lambda: self.now_s)
        after = -1 if self.checkpointer is None else self.checkpointer.after
        self.tasks = [self._task(instance, after) for instance in graph.instances]
        recovery = None
        if self.checkpointer is not None:
            self.checkpointer.attach(self)  # type: ignore[arg-type]
            recovery = self.checkpointer.recovery
        self.sources = [
            SimulatedSource(
                self, task, records[task.name], None if recovery is None else recovery.position(task.instance)
            )
            for task in self.tasks
            if task.operator is None
        ]
        if self.checkpointer is not None:
            self.checkpointer.restore_queues()

    def _task(self, instance: Instance, after: int) -> Task:
        if instance.step.is_source:
            return Task(instance, None, measure=False)
        contents = (
            self.sinks.setdefault(f"{instance.step.name}.{instance.number}", SinkContents())
            if instance.step.is_sink
            else SinkContents()
        )
        return Task(instance, build(instance.step, parts_of(contents, after, self._fails)), measure=False)

    def run(self, *, most: int) -> None:
        """Move until all have ended or the last checkpoint is made; AssertionError after too many moves."""
        for _ in range(most):
            if self.halted or all(task.ended for task in self.tasks if task.operator is not None):
                if self.later:
                    self.deliver(self.later.pop(0))
                    continue
                self._finish()
                return
            self.before_move()
            self._move()
        raise AssertionError(f"nothing ends after {most} moves")

    def _finish(self) -> None:
        if self.checkpointer is not None:
            try:
                self.checkpointer.finish()
            except (OSError, HeadwaterError) as error:  # as `EngineRun` tells it
                raise RunError(f"the last checkpoint could not be made: {error}") from error

    def _move(self) -> None:
        chance = self.random.random()
        if self.checkpointer is not None and chance < 0.15:
            self.now_s += self.random.choice([0.0, 0.01, 0.3, 2.0])
            self.checkpointer.step()
            return
        if self.later and chance < 0.3:
            self.deliver(self.later.pop(0))
            return
        able: list[Any] = [task for task in self.tasks if task.queue.entries]
        able += [source for source in self.sources if not source.idle]
        if not able:
            return
        actor = self.random.choice(able)
        if isinstance(actor, SimulatedSource):
            actor.move()
        else:
            self._activate(actor)

    def _activate(self, task: Task) -> None:
        size = sum(entry.size for entry in task.queue.entries)
        entries = task.queue.take(self.random.choice([1, min(size, 4), size]))
        self.deliver(task.run(entries)[0])

    def deliver(self, deliveries: list[Delivery]) -> None:
        """Put into queues, or run on at once where the engine may: one sender, and nothing waits there."""
        for delivery in deliveries:  # grows while we walk along it
            task = self.tasks[delivery.to]
            if len(task.instance.channel_ports) == 1 and not task.queue.entries and self.random.random() < 0.3:
                task.run_inline(delivery, deliveries)
            else:
                task.put(delivery.entry(0, 0))

    # -- for the checkpointer -----------------------------------------------------------------------------------------

    def put_back(self, deliveries: list[Delivery], *, first: bool = False) -> None:
        """Put entries into queues."""
        for delivery in deliveries:
            self.tasks[delivery.to].put(delivery.entry(0, 0), first=first)

    def halt(self) -> None:
        """End, since the last checkpoint is made."""
        self.halted = True

    def fail(self, error: RunError) -> None:
        """Only the thread of a checkpointer calls it, which is not there."""
        raise AssertionError("no thread is here") from error

    def forget(self, source: str, position: int) -> None:
        """Take note that a reader was told to forget what is before a position."""
        self.forgotten[source] = max(position, self.forgotten.get(source, 0))
