"""The thread that makes checkpoints of a run: it asks, gathers, writes, and tells everybody when one is complete."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from headwater.data.batch import NO_WATERMARK
from headwater.data.jit import answering_at_once
from headwater.data.schema import Schema
from headwater.engine.checkpoint.chain import SMALL_BYTES, Chain, is_held
from headwater.engine.checkpoint.compatibility import Compatibility
from headwater.engine.checkpoint.coordinator import Coordinator
from headwater.engine.checkpoint.ledgers import Ledgers, writer_name, writers_of
from headwater.engine.checkpoint.recovery import Recovery, heading, identities
from headwater.engine.checkpoint.store import Store, refuse_others
from headwater.engine.checkpoint.watch import mend_deleted
from headwater.errors import RunError, SnapshotError
from headwater.flow.endpoints import Transaction
from headwater.io.lock import Lock
from headwater.io.move_marker import refuse_moved
from headwater.operators.execution_graph import ExecutionGraph, Instance
from headwater.operators.operator import FrozenState
from headwater.operators.queue import Control, Delivery
from headwater.operators.task import Task

if TYPE_CHECKING:
    from headwater.engine.run import EngineRun

log = logging.getLogger(__name__)

_LOOK_S = 0.05  #: how often it looks for tasks that have ended while a checkpoint waits for them
_NO_TASK = -1  #: stands for a task, where the thread is only to look


@dataclass
class CheckpointCounts:
    """What checkpoints were made in a run, for its report."""

    folder: str
    resumed: int | None = None  #: the checkpoint that the run went on from
    complete: int = 0
    failed: int = 0
    bytes: int = 0  #: of the last one
    seconds: float = 0.0  #: from its beginning until it was safe
    slowest_s: float = 0.0
    restored: dict[str, int] | None = None  #: records that were on their way to each step then

    def completed(self, nbytes: int, seconds: float) -> None:
        """Count one that is safe."""
        self.complete += 1
        self.bytes, self.seconds, self.slowest_s = nbytes, seconds, max(self.slowest_s, seconds)

    def give_up(self, coordinator: Coordinator, why: str, *, last: bool) -> None:
        """Count one that comes to nothing; raise where it is the last, since there is no next one that makes up for it."""
        self.failed += 1
        log.warning("checkpoint %s comes to nothing: %s", coordinator.number, why)
        coordinator.give_up()
        if last:
            raise RunError(
                f"the last checkpoint could not be made, and the one before is what a later run goes on from: {why}"
            )


class Checkpointer:
    """Makes a checkpoint every so often, and a last one when the run stops."""

    def __init__(
        self,
        graph: ExecutionGraph,
        store: Store,
        *,
        every_s: float,
        allow_dropped_state: bool = False,
        small_bytes: int = SMALL_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Look for a checkpoint to go on from; raises RunError when the flow cannot."""
        self.store, self._graph, self._clock = store, graph, clock
        checkpoint = store.latest()
        self.recovery: Recovery | None = None
        try:
            if checkpoint is not None:
                self.recovery = Compatibility(checkpoint, graph.flow, allow_dropped=allow_dropped_state).recovery(graph)
        except RunError as error:
            raise RunError(f"cannot go on from checkpoint {store.folder}: {error}") from None
        sinks = {instance.step.name: instance.step for instance in graph.instances if instance.step.is_sink}
        self.ledgers = Ledgers(store.folder, checkpoint, (name for step in sinks.values() for name in writers_of(step)))
        self.after = -1 if checkpoint is None else checkpoint.number  #: the checkpoint that the run goes on from
        self._lock: Lock | None = None
        self._sources = identities(graph.flow)
        self._chain = Chain(small_bytes)
        # what a bridge was given goes with a checkpoint: the other site has waited for long enough
        soon = checkpoint is not None and any(step.kind.timed for step in sinks.values())
        self._coordinator = Coordinator(len(graph.instances), self.after + 1, every_s, clock(), soon=soon)
        self._said: queue.SimpleQueue[tuple[int, int, Any]] = queue.SimpleQueue()
        self._stopping = False
        self._final: int | None = None  #: the last complete one, that sinks must still commit once all threads are gone
        self._began_s = 0.0
        self.made = CheckpointCounts(str(self.store.folder), None if checkpoint is None else checkpoint.number)

    @classmethod
    def open(
        cls, graph: ExecutionGraph, folder: str | Path, *, every_s: float, allow_dropped_state: bool = False
    ) -> Checkpointer:
        """Keep checkpoints in a folder that no other run uses."""
        refuse_others(Path(folder))
        refuse_moved(Path(folder))
        lock = Lock(Path(folder).absolute(), "checkpoint")
        try:
            checkpointer = cls(graph, Store(folder), every_s=every_s, allow_dropped_state=allow_dropped_state)
        except BaseException:
            lock.release()
            raise
        checkpointer._lock = lock
        return checkpointer

    # -- for the run --------------------------------------------------------------------------------------------------

    def transaction(self, instance: Instance, sink: Any, schema: Schema) -> Transaction:
        """Open a sink to be written in parts, each of which is there when its checkpoint is complete."""
        return self.ledgers.transaction(self._name(instance), instance.step.name, sink, schema)

    def received_folder(self, instance: Instance) -> Path:
        """Return where a source keeps what it was sent, for senders that wait until it is safe."""
        return Path(self.made.folder) / "sources" / quote(self._name(instance), safe=" ")

    def _name(self, instance: Instance) -> str:
        return writer_name(instance.step.name, instance.number, instance.step.instances)

    def attach(self, run: EngineRun) -> None:
        """Take up the work for a run: its tasks get their state, and tell when they have saved themselves."""
        self._run = run
        self._open_retired()
        for task in run.tasks:
            task.saver.saves_whole = self._chain.is_whole
            task.saver.on_saved = partial(self._hear, task.instance.index)
            task.saver.begun = self.after
            if self.recovery is not None:
                self.recovery.load(task)

    def _open_retired(self) -> None:
        self.ledgers.open_retired(self._graph.flow)

    def restore_queues(self) -> None:
        """Put back what was on its way when the checkpoint was made; before any thread runs."""
        if self.recovery is None:
            return
        deliveries = self.recovery.queues()
        restored: dict[str, int] = {}
        for each in deliveries:
            if each.batch is not None:
                name = self._run.tasks[each.to].name
                restored[name] = restored.get(name, 0) + each.size
        self.made.restored = restored
        self._run.put_back(deliveries)
        self.recovery = None  # it holds all that was saved

    def thread(self) -> threading.Thread:
        """Return the thread that makes checkpoints, not yet started."""
        return threading.Thread(target=self._loop, name="checkpoint", daemon=True)

    def finish(self) -> None:
        """Make the last checkpoint of a run that came to its end, and let sinks have theirs; no thread runs any more."""
        run = self._run
        if all(task.ended for task in run.tasks if task.operator is not None):
            self._stopping = True  # whatever goes wrong now is told: there is no next one
            self._coordinator.give_up()
            mend_deleted(self.store, self._chain, self._coordinator, self._lock)
            self._began_s = self._clock()
            number = self._coordinator.begin(self._began_s)
            self._chain.begin(number)
            self._gather_ended(number)
            results = self._coordinator.complete()
            assert results is not None
            self._make_safe(number, results)
            self._write(number, results)
            self._final = number
        if self._final is not None:
            self._commit_last(self._final)

    def _commit_last(self, number: int) -> None:
        """Let sinks and senders have the last checkpoint; no thread of the run is left."""
        run = self._run
        unseen = self._commit([task for task in run.tasks if task.operator is not None], number)
        for source in run.sources:
            source.commit(number)
        if unseen:
            raise RunError(f"{unseen}; it is safe in the checkpoint, and there once the flow is run again with it")

    def close(self) -> None:
        """Let others have the folder."""
        self.ledgers.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def to_json(self) -> dict[str, Any]:
        """Return what was made, for the report."""
        return asdict(self.made)

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _hear(self, task: int, number: int, result: Any) -> None:
        self._said.put((task, number, result))

    def saved_source(self, task: int, number: int, position: Any) -> None:
        """Take how far a source had read when it sent its barrier."""
        self._said.put((task, number, {"position": position}))

    def look_now(self) -> None:
        """Have the thread look at once whether something is to be done; any thread may call it."""
        self._said.put((_NO_TASK, -1, None))

    @answering_at_once()  # the end of the run waits for this thread
    def _loop(self) -> None:
        try:
            while not self._run.done.is_set():
                if not self.step():
                    self._wait()
        except RunError as error:
            self._run.fail(error)
        except BaseException as error:  # a bug of ours: better to stop with a message than to go on without checkpoints
            log.exception("checkpoints broke")
            self._run.fail(RunError(f"checkpoints broke: {error}"))

    def step(self) -> bool:
        """Decide and do one thing; return whether there was one. Nothing in here waits for another thread."""
        while not self._said.empty():
            self._take(*self._said.get())
        now, run, plan = self._clock(), self._run, self._coordinator
        if plan.number is None:
            mend_deleted(self.store, self._chain, plan, self._lock)
            if run.stopping.is_set() and not self._stopping:
                self._stopping = True
                self._begin(final=True)
                return True
            if plan.due(now) and not self._stopping:
                self._begin(final=False)
                return True
            return False
        number = plan.number
        self._gather_ended(number)
        urged = () if self._stopping else plan.urge(now)
        if urged:
            self._urge(number, urged)
        results = plan.complete()
        if results is not None:
            self._complete(number, results)
        return bool(urged) or results is not None

    def _wait(self) -> None:
        """Wait until a task says something, or something is to be decided."""
        with contextlib.suppress(queue.Empty):
            rest_s = self._coordinator.rest_s(self._clock())
            self._take(*self._said.get(timeout=min(_LOOK_S, rest_s) or 0.001))

    def _take(self, task: int, number: int, result: Any) -> None:
        if isinstance(result, Exception):
            self._fail(task, number, result)
        else:
            self._coordinator.saved(task, number, result)

    def _begin(self, *, final: bool) -> None:
        self._began_s = self._clock()
        number = self._coordinator.begin(self._began_s)
        self._chain.begin(number, held=is_held(self.store.folder))
        with self._run.lock:
            for source in self._run.sources:
                source.ask(number, final=final)
            self._run.room.notify_all()

    def _gather_ended(self, number: int) -> None:
        """Save those who have ended before they heard of the checkpoint: nobody else is there any more."""
        for index in sorted(self._coordinator.waiting):
            task = self._run.tasks[index]
            if task.operator is None:
                source = next(each for each in self._run.sources if each.task is task)
                if source.ended:
                    self._coordinator.saved(index, number, {"position": source.handed})
            elif task.ended and task.saver.begun < number:
                try:
                    self._coordinator.saved(index, number, task.saver.save_ended(number))
                except Exception as error:
                    self._fail(index, number, error)
                    return

    def _urge(self, number: int, tasks: Any) -> None:
        """Have tasks save themselves now, ahead of what waits in their queues."""
        run = self._run
        slow = [
            index for index in tasks if run.tasks[index].operator is not None and run.tasks[index].saver.begun < number
        ]
        control = Control("snapshot", number)
        run.put_back([Delivery(index, 0, None, NO_WATERMARK, 1, control) for index in slow], first=True)

    def _fail(self, task: int, number: int, error: Exception) -> None:
        if number != self._coordinator.number:
            return
        name = self._run.tasks[task].name
        if isinstance(error, SnapshotError):  # it will not be otherwise next time
            raise RunError(f"step {name!r} cannot be saved: {error}", step=name)
        self._give_up(f"step {name!r} could not be saved: {error}")

    def _give_up(self, why: str) -> None:
        self.made.give_up(self._coordinator, why, last=self._stopping)

    def _make_safe(self, number: int, results: dict[int, Any]) -> bool:
        """Have what sinks wrote safe on disk, here where no record waits for it; return whether it is."""
        for index, result in results.items():
            safe = result.pop("safe", None)
            if safe is not None:
                try:
                    safe()
                except Exception as error:  # as if the task could not have been saved
                    self._coordinator.number = number
                    self._fail(index, number, error)
                    return False
        return True

    def _complete(self, number: int, results: dict[int, Any]) -> None:
        if not self._make_safe(number, results):
            return
        try:
            self._write(number, results)
        except OSError as error:
            self._coordinator.number = number
            self._give_up(f"cannot write to {self.store.folder}: {error.strerror}")
            return
        if self._stopping:
            self._final = number
            self._run.halt()
            return
        self._let_be_seen(number)

    def _let_be_seen(self, number: int) -> None:
        """Let sources and sinks know, in their own threads, that a checkpoint is complete."""
        for source in self._run.sources:
            source.commit_later(number)
        sinks = [task for task in self._run.tasks if task.instance.step.is_sink]
        ended = [task for task in sinks if task.ended]
        control = Control("commit", number)
        self._run.put_back(
            [Delivery(t.instance.index, 0, None, NO_WATERMARK, 1, control) for t in sinks if t not in ended]
        )
        self._commit(ended, number)

    def _commit(self, tasks: list[Task], number: int) -> str:
        """Let a checkpoint be seen at tasks where no worker comes any more; return what could not be."""
        problem = ""
        for task in tasks:
            assert task.operator is not None
            try:
                task.operator.commit(number)
            except Exception as error:  # what is prepared is safe, and the next commit is one of it too
                problem = f"sink {task.name!r} could not let checkpoint {number} be seen: {error}"
                log.warning(problem)
        return problem

    def encoded(self, instance: Instance, state: FrozenState) -> bytes:
        """Return the state of an instance as bytes, and have its task know how many they are, with what they build on."""
        task, data = self._run.tasks[instance.index], state.encode()
        task.state_bytes = len(data) + (0 if state.whole else task.state_bytes)
        return data

    def _write(self, number: int, results: dict[int, Any]) -> None:
        positions: dict[str, list[Any]] = {}
        tasks: dict[str, list[Any]] = {}
        states: list[bytes] = []
        for instance in self._graph.instances:
            result = results[instance.index]
            if instance.step.is_source:
                positions.setdefault(instance.step.name, []).append(result["position"])
            else:
                state = result["state"]
                entry = {**result, "ports": list(instance.channel_ports), "state": len(states), "whole": state.whole}
                states.append(self.encoded(instance, state))
                tasks.setdefault(instance.step.name, []).append(entry)
        self.ledgers.keep_name()
        self.store.write(
            number,
            heading(self._graph.flow, self._sources)
            | {"positions": positions, "tasks": tasks, "retired": self.ledgers.retired},
            states,
            since=self._chain.base(number),
        )
        self._chain.complete(number, sum(map(len, states)))
        self.made.completed(self.store.written_bytes, self._clock() - self._began_s)
