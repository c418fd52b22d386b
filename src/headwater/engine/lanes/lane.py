"""A lane: one process with one worker that runs its part of a flow, as the engine runs any flow."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from headwater.data.batch import Batch
from headwater.engine.lanes.compiling import SharedCompiling
from headwater.engine.lanes.outlet import Outlet, Sender
from headwater.engine.options import Options
from headwater.engine.timekeeper import Timekeeper
from headwater.engine.workers import WorkerPool
from headwater.errors import RunError
from headwater.flow.flow import Flow
from headwater.flow.steps import Step, Write
from headwater.operators import Operator, Output
from headwater.operators.execution_graph import ExecutionGraph
from headwater.operators.saving import Saver
from headwater.operators.task import Task
from headwater.operators.write import Begin

if TYPE_CHECKING:
    from headwater.engine.lanes.checkpoint import LaneCheckpointer

Keeping = Callable[[ExecutionGraph], "LaneCheckpointer"]  #: makes what has a lane saved for checkpoints of all lanes


class LaneRun(WorkerPool):
    """The part of a run that one lane does; what goes to other lanes does not count as come out."""

    most = 16_000  # a block is cut into a part for each lane wherever it moves: its parts should still be large

    def __init__(
        self,
        part: Flow,
        options: Options,
        keeping: Keeping | None = None,
        compiling: tuple[int, SharedCompiling] | None = None,
    ) -> None:
        """`keeping` returns what has the lane saved for checkpoints of all lanes.

        `compiling` is the lane's number, and where lanes say what they wait for; without, its sources heed its own alone.
        """
        self._keeping, self._compiling = keeping, compiling
        self.checkpointer: LaneCheckpointer | None
        super().__init__(part, options)
        self._senders: dict[
            int, tuple[Task, Sender]
        ] = {}  #: by the number under which the throttle knows what they keep
        for task in self.tasks:
            if isinstance(task.operator, OutletOperator):
                number = len(self.tasks) + task.instance.index
                sender = task.operator.sender
                self._senders[number] = task, sender
                self.throttle.extend(task.instance.index, number)
                sender.throttle = partial(self._throttle, number)
                sender.aborted = self._is_aborted
                sender.fail = partial(self._cannot_send, task)
                task.operator.saver = task.saver

    def make_checkpointer(self) -> LaneCheckpointer | None:
        """Return what has the lane saved; None for a run that keeps no checkpoints."""
        return None if self._keeping is None else self._keeping(self.graph)

    def being_compiled(self) -> int:
        """Return how many kernels this lane or another waits for, and have the others know."""
        own = super().being_compiled()
        if self._compiling is None:
            return own
        lane, shared = self._compiling
        shared.tell(lane, own)
        return shared.most()

    def make_timekeeper(self) -> Timekeeper:
        """Return who sees to what has to happen although no record comes, and tells other lanes of a source's silence."""
        timekeeper = super().make_timekeeper()
        for task in self.tasks:
            activity = task.operator.activity if isinstance(task.operator, OutletOperator) else None
            if activity is not None:
                timekeeper.tell_busy(task, activity.idle_s, activity.busy)
        return timekeeper

    def make_operator(self, step: Step, begin: Begin | None) -> Operator:
        """Make the running form of a step; an outlet is told how far time has come."""
        if isinstance(step.kind, Write) and isinstance(step.kind.sink, Outlet):
            return OutletOperator(step.kind.sink, step)
        return super().make_operator(step, begin)

    def is_output(self, task: Task) -> bool:
        """Say whether records that come here have come out of the flow."""
        return super().is_output(task) and not isinstance(task.operator, OutletOperator)

    def queue_name(self, number: int) -> str:
        """Return whose queue it is that the throttle knows by a number."""
        return self._senders[number][0].name if number in self._senders else super().queue_name(number)

    def backlog(self) -> dict[str, int]:
        """Return how many records outlets keep, or have handed to this very lane, by the names of their steps."""
        return {task.name: sender.waiting() for task, sender in self._senders.values()}

    def _is_aborted(self) -> bool:
        return self.aborted

    def _throttle(self, number: int, records: int) -> None:
        with self.lock:
            limit = self.options.queue_records
            if self.throttle.grew(number, records, limit) or self.throttle.shrank(number, records, limit):
                self._heed_throttle()

    def _cannot_send(self, task: Task, error: Exception) -> None:
        self.fail(RunError(f"{task.name}: records cannot go from lane to lane: {error}", step=task.name))


class OutletOperator(Operator):
    """Hands batches to an open outlet, and tells it how far time has come."""

    stateless = False

    def __init__(self, outlet: Outlet, step: Step) -> None:
        self.sender = outlet.open(step.inputs[0].schema)
        self.activity = outlet.activity  #: told how far a source is handed out; None at other places
        self.saver: Saver | None = None

    def process(self, batch: Batch, port: int) -> Output:
        """Send the records."""
        if batch.length:
            self.sender.write(batch)
        return None

    def advance(self, watermark: int) -> Output:
        """Pass on how far time has come."""
        self.sender.advance(watermark)
        return None

    def idle(self, idle: bool) -> None:
        """Pass on that nobody needs to wait for what comes here, or again."""
        self.sender.idle(idle)

    def prepare(self, number: int) -> None:
        """Send the barrier of a checkpoint on to other lanes."""
        last = self.saver.last if self.saver is not None else None
        self.sender.barrier(number, last=last is not None and last.number == number)

    def close(self) -> None:
        """Wait until all is sent."""
        self.sender.close()
