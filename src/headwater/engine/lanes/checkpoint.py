"""Checkpoints of a run in lanes: each lane saves what it runs, and the process that forked them makes one of it.

Sources are read in lane 0 alone, so that a checkpoint begins there: barriers travel with the records, between lanes as
messages in the rings, and an inlet passes one on when it has come by all its paths. A lane whose tasks have all saved
themselves, and whose sinks have their parts safe, tells lane 0's process, which writes one file as any run does; then all
lanes are told, and let their sinks' parts be seen.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import numpy as np

from headwater.data.batch import NO_WATERMARK
from headwater.data.codec import decode, encode
from headwater.engine.checkpoint.chain import Chain, is_held
from headwater.engine.checkpoint.checkpointer import CheckpointCounts, Checkpointer
from headwater.engine.checkpoint.compatibility import Compatibility
from headwater.engine.checkpoint.coordinator import Coordinator
from headwater.engine.checkpoint.distribution import Distribution
from headwater.engine.checkpoint.ledgers import Ledgers, writer_name
from headwater.engine.checkpoint.recovery import Recovery, heading, identities
from headwater.engine.checkpoint.store import Checkpoint, Store, refuse_others
from headwater.engine.checkpoint.watch import mend_deleted
from headwater.engine.lanes.wiring import Wiring
from headwater.engine.options import Options
from headwater.errors import RunError, SnapshotError
from headwater.flow.endpoints import is_inner
from headwater.flow.flow import Flow
from headwater.flow.steps import Read
from headwater.io.lock import Lock
from headwater.io.move_marker import refuse_moved
from headwater.operators.execution_graph import ExecutionGraph, Instance

log = logging.getLogger(__name__)

Word = Literal["begin", "last", "commit", "final"]  #: what lanes are told of a checkpoint
Say = Callable[[dict[str, Any]], None]
_LOOK_S = 0.05
_FROM_ABOVE = -2  #: stands for a task, where a word comes from the process that forked the lane


class Kinds:
    """Which checkpoint holds changes alone, as all lanes must know before its barriers reach them; made before they part."""

    def __init__(self) -> None:
        self._changes = np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE), np.int64, 1)
        self._changes[0] = -1

    def put(self, number: int, *, whole: bool) -> None:
        """Say of a checkpoint that is about to begin what it holds."""
        self._changes[0] = -1 if whole else number

    def is_whole(self, number: int) -> bool:
        """Say whether a checkpoint holds all state."""
        return number != int(self._changes[0])


class LaneCheckpointer(Checkpointer):
    """Has the tasks of one lane saved, and does what it is told of checkpoints; who decides is in another process."""

    def __init__(
        self, graph: ExecutionGraph, ledgers: Ledgers, lane: int, kinds: Kinds, folder: Path, recovery: Recovery | None
    ) -> None:
        self._graph, self.ledgers, self._lane, self._clock = graph, ledgers, lane, time.monotonic
        self.recovery = recovery
        self.after = -1 if recovery is None else recovery.number
        self._chain = kinds  # type: ignore[assignment]  # of a chain, tasks ask this alone
        self._coordinator = Coordinator(len(graph.instances), self.after + 1, float("inf"), self._clock())
        self._said = queue.SimpleQueue()
        self._begun, self._final = self.after, None
        self.made = CheckpointCounts(str(folder))
        self.say: Say = lambda message: None  #: to who decides

    def _name(self, instance: Instance) -> str:
        return writer_name(instance.step.name, instance.number, instance.step.instances, self._lane)

    def _open_retired(self) -> None:
        """Leave to one lane what writers have left that are no more, those of other lanes among them."""
        if not self._lane:
            super()._open_retired()

    def tell(self, word: Word, number: int) -> None:
        """Take a word of who decides, from any thread."""
        self._said.put((_FROM_ABOVE, number, word))

    def step(self) -> bool:
        """Do one thing; return whether there was one."""
        while not self._said.empty():
            self._take(*self._said.get())
        number = self._coordinator.number
        if number is None:
            return False
        self._gather_ended(number)
        results = self._coordinator.complete()
        if results is not None:
            self._complete(number, results)
        return results is not None

    def _wait(self) -> None:
        """Wait until somebody says something; there is nothing to decide here."""
        with contextlib.suppress(queue.Empty):
            self._take(*self._said.get(timeout=_LOOK_S))

    def _take(self, task: int, number: int, result: Any) -> None:
        if task == _FROM_ABOVE:
            self._obey(result, number)
            return
        if number > self._begun:  # a barrier may come by a ring before the word that a checkpoint has begun
            self._start(number)
        super()._take(task, number, result)

    def _obey(self, word: Word, number: int) -> None:
        if word == "commit":
            self._let_be_seen(number)
        elif word == "final":
            self._final = number
            self._run.halt()
        else:
            if number > self._begun:
                self._start(number)
            with self._run.lock:
                for source in self._run.sources:
                    if not source.inner:  # who takes what other lanes send has barriers from there
                        source.ask(number, final=word == "last")
                self._run.room.notify_all()

    def _start(self, number: int) -> None:
        self._coordinator.give_up()
        self._begun = self._coordinator.begin(self._clock(), number)

    def _give_up(self, why: str) -> None:
        number = self._coordinator.number
        self._coordinator.give_up()
        self.say({"unsaved": [number, why, False]})

    def _fail(self, task: int, number: int, error: Exception) -> None:
        if isinstance(error, SnapshotError):
            name = self._run.tasks[task].name
            self.say({"unsaved": [number, f"step {name!r} cannot be saved: {error}", True]})
        else:
            super()._fail(task, number, error)

    def _complete(self, number: int, results: dict[int, Any]) -> None:
        """Tell what all tasks have saved, once sinks have their parts safe."""
        if not self._make_safe(number, results):
            return
        positions: dict[str, list[Any]] = {}
        tasks: dict[str, list[Any]] = {}
        for instance in self._graph.instances:
            result = results[instance.index]
            if instance.step.is_source:
                if not _is_inner(instance):
                    positions.setdefault(instance.step.name, []).append(result["position"])
                continue
            state = result["state"]
            data = self.encoded(instance, state)
            task_state = {**result, "ports": list(instance.channel_ports), "lane": self._lane}
            tasks.setdefault(instance.step.name, []).append({**task_state, "state": data, "whole": state.whole})
        self.say({"saved": [number, encode({"positions": positions, "tasks": tasks})]})

    def finish(self) -> None:
        """Wait until the last checkpoint of all lanes is made, then let sinks have theirs; no thread of the run is left."""
        run = self._run
        if self._final is None:
            self.say({"ended": self._lane})
        while self._final is None and not run.aborted:
            if not self.step():
                self._wait()
        if self._final is not None:
            self._commit_last(self._final)

    def close(self) -> None:
        """Leave the folder to who decides."""
        self.ledgers.close()


class LanesCheckpointer:
    """Makes the checkpoints of all lanes; in the process that forked them."""

    def __init__(self, flow: Flow, lanes: int, wiring: Wiring, options: Options) -> None:
        """Look for a checkpoint to go on from; raises RunError when the flow, in so many lanes, cannot."""
        assert options.checkpoint is not None
        folder = Path(options.checkpoint).absolute()
        refuse_others(folder)
        refuse_moved(folder)
        self._flow, self._lanes, self._wiring, self._options = flow, lanes, wiring, options
        self._blocks, self._outlets = wiring.taking_blocks(), wiring.outlets()
        self._distribution = wiring.distribution()
        self._kinds = Kinds()
        self._heard: queue.SimpleQueue[tuple[int, dict[str, Any]]] = queue.SimpleQueue()
        self._began_s = 0.0
        self._lock = Lock(folder, "checkpoint")
        try:
            self.store = Store(folder)
            self.look()
        except BaseException:
            self._lock.release()
            raise
        self.made = CheckpointCounts(str(folder), None if self._latest is None else self._latest.number)
        self.made.restored = None if self._latest is None else _waiting(self._latest)

    def look(self) -> None:
        """Look for the last checkpoint, for lanes that are about to begin; none is at work."""
        latest = self._latest = self.store.latest()
        self._then: Distribution | None = None  # None where each lane has what it had
        if latest is not None:
            self._fit(latest, allow_dropped=self._options.allow_dropped_state)
        self.ledgers = Ledgers(self.store.folder, latest, self._wiring.writers())
        self.ledgers.choose_name()  # here, before lanes could do so at once
        self.after = -1 if self._latest is None else self._latest.number
        self._chain = Chain()
        self._kinds.put(-1, whole=True)
        # what a bridge was given goes with a checkpoint: the other site has waited for long enough
        soon = latest is not None and any(step.is_sink and step.kind.timed for step in self._flow.steps.values())
        self._coordinator = Coordinator(self._lanes, self.after + 1, self._options.every_s, time.monotonic(), soon=soon)
        self._ended: set[int] = set()  #: lanes that have nothing left to do
        self._final = False  #: whether the last one has begun

    def look_again(self) -> None:
        """Look for the last checkpoint, from which lanes start again within a run."""
        while not self._heard.empty():
            self._heard.get()
        self.look()
        self.made.restored = {} if self._latest is None else _waiting(self._latest)

    def forget(self) -> None:
        """Let go of what was found, once lanes have it."""
        self._latest = None

    def _fit(self, checkpoint: Checkpoint, *, allow_dropped: bool) -> None:
        try:
            fitting = Compatibility(checkpoint, self._flow, self._distribution, allow_dropped=allow_dropped)
            if not fitting.goes_on_as_it_was():
                self._latest, self._then = fitting.at_rest(), fitting.then
        except RunError as error:
            raise RunError(f"cannot go on from checkpoint {self.store.folder}: {error}") from None

    def of_lane(self, lane: int, graph: ExecutionGraph) -> LaneCheckpointer:
        """Return what saves one lane, to be called where that runs."""
        return LaneCheckpointer(graph, self.ledgers, lane, self._kinds, self.store.folder, self._recovery(lane, graph))

    def _recovery(self, lane: int, graph: ExecutionGraph) -> Recovery | None:
        checkpoint = self._latest
        if checkpoint is None:
            return None
        if self._then is not None:
            return Recovery(checkpoint, graph, self._then, self._distribution, lane)
        tasks = {
            name: [self._anew(name, each) for each in states if each["lane"] == lane]
            for name, states in checkpoint.content["tasks"].items()
        }
        return Recovery(Checkpoint(checkpoint.number, {**checkpoint.content, "tasks": tasks}), graph)

    def _anew(self, name: str, state: dict[str, Any]) -> dict[str, Any]:
        """Return what was saved of a task without what every run begins anew.

        Blocks are counted from 0, and what ended tells the other lanes so once more: they are others than then.
        """
        if name not in self._blocks and name not in self._outlets:
            return state
        anew = {**state, "watermarks": [NO_WATERMARK] * len(state["watermarks"]), "watermark": NO_WATERMARK}
        return {**anew, "ended": state["ended"] and name not in self._outlets}

    def begin(self, tell: Callable[[Word, int], None], fail: Callable[[RunError], None]) -> None:
        """Take up the work, once all lanes run; `tell` tells all of them, `fail` ends the run."""
        self._tell, self._fail = tell, fail
        self.forget()

    def hear(self, lane: int, message: dict[str, Any]) -> None:
        """Take what a lane says of a checkpoint, from any thread."""
        self._heard.put((lane, message))

    def loop(self, stopping: Callable[[], bool], over: threading.Event) -> None:
        """Make checkpoints until these lanes are over, the last one when the run is stopping."""
        try:
            while not over.is_set():
                self._step(stopping)
        except RunError as error:
            self._fail(error)
        except BaseException as error:  # a bug of ours: better to stop with a message than to go on without checkpoints
            log.exception("checkpoints broke")
            self._fail(RunError(f"checkpoints broke: {error}"))

    def close(self) -> None:
        """Let others have the folder."""
        self._lock.release()

    def to_json(self) -> dict[str, Any]:
        """Return what was made, for the report."""
        return asdict(self.made)

    # -- the thread -------------------------------------------------------------------------------------------------------

    def _step(self, stopping: Callable[[], bool]) -> None:
        plan, now_s = self._coordinator, time.monotonic()
        over, stopped = len(self._ended) == self._lanes, stopping()
        if plan.number is None:
            mend_deleted(self.store, self._chain, plan, self._lock)
        if plan.number is None and not self._final and (over or stopped or plan.due(now_s)):
            self._final = over or stopped
            self._began_s = now_s
            number = plan.begin(now_s)
            self._chain.begin(number, held=is_held(self.store.folder))
            self._kinds.put(number, whole=self._chain.is_whole(number))
            self._tell("last" if stopped else "begin", number)
        try:
            self._take(*self._heard.get(timeout=_LOOK_S))
        except queue.Empty:
            return
        number_, results = plan.number, plan.complete()
        if number_ is not None and results is not None:
            self._complete(number_, results)

    def _take(self, lane: int, message: dict[str, Any]) -> None:
        if "ended" in message:
            self._ended.add(lane)
        elif "saved" in message:
            number, content = message["saved"]
            self._coordinator.saved(lane, number, content)
        else:
            number, why, fatal = message["unsaved"]
            if fatal:
                raise RunError(why)
            if number == self._coordinator.number:
                self._give_up(why)

    def _complete(self, number: int, results: dict[int, bytes]) -> None:
        try:
            self._write(number, [decode(results[lane]) for lane in range(self._lanes)])
        except OSError as error:
            self._coordinator.number = number
            self._give_up(f"cannot write to {self.store.folder}: {error.strerror}")
            return
        self._tell("final" if self._final else "commit", number)

    def _give_up(self, why: str) -> None:
        self.made.give_up(self._coordinator, why, last=self._final)

    def _write(self, number: int, of_lanes: list[dict[str, Any]]) -> None:
        tasks: dict[str, list[Any]] = {}
        states: list[bytes] = []
        for each in of_lanes:
            for name, task_states in each["tasks"].items():
                for task in task_states:
                    tasks.setdefault(name, []).append({**task, "state": len(states)})
                    states.append(task["state"])
        self.ledgers.keep_name()
        self.store.write(
            number,
            heading(self._flow, identities(self._flow))
            | {"lanes": self._lanes, "layout": self._distribution.to_plain(), "retired": self.ledgers.retired}
            | {"positions": of_lanes[0]["positions"], "tasks": tasks},
            states,
            since=self._chain.base(number),
        )
        self._chain.complete(number, sum(map(len, states)))
        self.made.completed(self.store.written_bytes, time.monotonic() - self._began_s)


def _waiting(checkpoint: Checkpoint) -> dict[str, int]:
    """Return how many records were on their way to each step."""
    counts = {
        name: sum(batch.length for task in states for _, batch, *_ in task["queue"] if batch is not None)
        for name, states in checkpoint.content["tasks"].items()
    }
    return {name: count for name, count in counts.items() if count}


def _is_inner(instance: Instance) -> bool:
    kind = instance.step.kind
    return isinstance(kind, Read) and is_inner(kind.source)
