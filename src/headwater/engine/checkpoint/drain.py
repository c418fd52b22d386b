"""A checkpoint brought to rest: what was on its way to steps when it was made is processed, and waits before sinks alone.

A task saves itself at the first word of a checkpoint, so that some have come further in time than others, with what the
others had yet to send in the queue that was saved with them. State that is to be put together, or spread by other numbers,
must be of one moment. So the tasks of the run that was are made once more, as they were spread then, and do what is left.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from headwater.data.batch import END, NO_WATERMARK, Batch
from headwater.engine.checkpoint.distribution import Distribution
from headwater.engine.checkpoint.store import Checkpoint
from headwater.errors import RunError
from headwater.flow.flow import DEAD_LETTERS, Flow
from headwater.flow.steps import Grouping, Step
from headwater.operators import build
from headwater.operators.execution_graph import ExecutionGraph, Instance, as_described
from headwater.operators.queue import Delivery, QueueEntry
from headwater.operators.routing import Router
from headwater.operators.task import Task

TaskState = dict[str, Any]  #: what a checkpoint has of a task
Unsent = Mapping[str, list[Batch]]  #: by source, what it had read and not yet handed out, and is processed too


def drain(checkpoint: Checkpoint, flow: Flow, then: Distribution, unsent: Unsent) -> Checkpoint:
    """Return a checkpoint in which nothing is on its way but to sinks; made by a run that was spread so."""
    return _Drain(checkpoint, flow, then, unsent).checkpoint()


class _Drain:
    def __init__(self, checkpoint: Checkpoint, flow: Flow, then: Distribution, unsent: Unsent) -> None:
        self._checkpoint, self._then, self._unsent = checkpoint, then, unsent
        self._states: dict[str, list[TaskState]] = checkpoint.content["tasks"]
        self._flow = _prune(flow) if then.lanes > 1 else flow
        self._graph = ExecutionGraph.of(self._flow, self._count, self._way)
        self._waiting: dict[int, list[Delivery]] = defaultdict(list)
        self._tasks: dict[int, Task] = {}  #: those to whom something was on its way

    def checkpoint(self) -> Checkpoint:
        for name in self._flow.steps:
            self._put_back(name)
        self._put_back_at_outlets()
        self._send_the_unsent()
        self._say_who_has_ended()
        at_work = [each for each in self._graph.instances if not each.step.is_source and not each.step.is_sink]
        with np.errstate(all="ignore"):
            while any(
                self._waiting.get(each.index) for each in at_work
            ):  # dead letters go against the order of the flow
                for instance in at_work:
                    self._process_waiting(instance)
        tasks = {
            name: self._states_at_rest(name)
            for name in self._flow.steps
            if name in self._states or self._has_records(name)
        }
        return Checkpoint(self._checkpoint.number, {**self._checkpoint.content, "tasks": tasks})

    # -- the run that was -------------------------------------------------------------------------------------------------

    def _count(self, step: Step) -> int:
        if step.is_sink or step.name == DEAD_LETTERS:  # it makes no difference who of them has what
            return 1
        if step.is_source:
            return max(1, len(self._checkpoint.content["positions"].get(step.name, ())))
        return max(1, len(self._states.get(step.name, ())))

    def _way(
        self, sender: Instance, step: Step, port: int, receivers: list[Instance]
    ) -> tuple[list[Instance], Grouping, tuple[str, ...]]:
        then, default = self._then, as_described(sender, step, port, receivers)
        if then.lanes == 1 or step.is_sink:
            return default
        if (step.name, port) in then.moves:
            to, keys = then.moves[step.name, port]
            return default if to == "one" else (receivers, "key" if to == "key" else "all", keys)
        if then.is_in_one(step.name) or sender.step.is_source:
            return default
        return receivers[sender.number : sender.number + 1], "one", ()  # it stays in its lane

    def _put_back(self, name: str) -> None:
        """Have what was on its way to a step wait there."""
        instances = self._graph.of_step(name)
        for at, state in enumerate(self._states.get(name, ())):
            instance = instances[at] if at < len(instances) else instances[0]
            for channel, batch, watermark in state["queue"]:
                self._waiting[instance.index] += self._restore(instance, state["ports"], channel, batch, watermark)

    def _restore(
        self, instance: Instance, ports: list[int], channel: int, batch: Batch | None, watermark: int
    ) -> list[Delivery]:
        """Return what came by a channel, and the time of it for all channels that were one."""
        if instance.step.is_sink or instance.step.name == DEAD_LETTERS:
            return [] if batch is None else [Delivery.of(instance.index, 0, batch, NO_WATERMARK)]
        then, now = (_of_port(each, ports[channel]) for each in (ports, instance.channel_ports))
        if watermark < END and self._then.takes_blocks(instance.step.name):
            watermark = NO_WATERMARK  # the number of a block
        if len(then) == len(now):
            return [Delivery.of(instance.index, now[then.index(channel)], batch, watermark)]
        deliveries = [] if batch is None else [Delivery.of(instance.index, now[0], batch, NO_WATERMARK)]
        return (
            deliveries
            if len(then) > 1
            else deliveries + [Delivery.of(instance.index, each, None, watermark) for each in now]
        )

    def _put_back_at_outlets(self) -> None:
        """Send on what had come to where records leave a lane."""
        for name, readers in self._then.outlets.items():
            for state in self._states.get(name, ()):
                for channel, batch, watermark in state["queue"]:
                    for step, port in readers:
                        self._send_on(step, port, state["lane"], channel, batch, watermark)

    def _send_on(self, step: str, port: int, lane: int, channel: int, batch: Batch | None, watermark: int) -> None:
        if step not in self._flow.steps:
            return
        edge = self._flow.steps[step].inputs[port]
        sender = self._graph.of_step(edge.step)[channel if self._then.is_in_one(edge.step) else lane]
        indices = {instance.index for instance in self._graph.of_step(step)}
        deliveries: list[Delivery] = []
        for route in sender.routes[list(sender.step.outputs).index(edge.port)]:
            if batch is not None and {index for index, _ in route.targets} <= indices:
                Router(sender).send_along(route, batch, watermark, deliveries)
        self._take(deliveries)

    def _send_the_unsent(self) -> None:
        """Have sources hand out what they had read, behind all that they had sent."""
        for name, batches in self._unsent.items():
            [source] = self._graph.of_step(name)
            task = Task(source, None, measure=False)
            for batch in batches:
                self._take(task.emit(batch))

    def _say_who_has_ended(self) -> None:
        """Tell all receivers of what had ended that nothing follows: some had heard of it, others had yet to."""
        for sender in self._graph.instances:
            targets = [target for routes in sender.routes.values() for route in routes for target in route.targets]
            if self._had_ended(sender) or any(self._knows_the_end(to, channel) for to, channel in targets):
                open_targets = [
                    (to, channel) for to, channel in targets if not self._had_ended(self._graph.instances[to])
                ]
                self._take([Delivery(to, channel, None, END, 1) for to, channel in open_targets])

    def _had_ended(self, instance: Instance) -> bool:
        state = self._state_of(instance)
        return state is not None and bool(state["ended"])

    def _knows_the_end(self, to: int, channel: int) -> bool:
        """Say whether an instance knew that nothing follows by a channel."""
        instance = self._graph.instances[to]
        state = self._state_of(instance)
        if state is None or state["ended"]:
            return state is not None
        return bool(state["ports"] == instance.channel_ports and state["watermarks"][channel] == END)

    def _state_of(self, instance: Instance) -> TaskState | None:
        """Return what was saved of an instance; sinks and dead letters here have no instance of their own."""
        states = self._states.get(instance.step.name, [])
        is_alone = instance.step.is_sink or instance.step.name == DEAD_LETTERS
        return None if is_alone or instance.number >= len(states) else states[instance.number]

    # -- what is left to do -----------------------------------------------------------------------------------------------

    def _process_waiting(self, instance: Instance) -> None:
        waiting = self._waiting.pop(instance.index, [])
        if not waiting:
            return
        if self._then.lanes > 1 and instance.step.name not in self._states:
            raise RunError(
                f"step {instance.step.name!r} is new, and the run before, of {self._then.lanes} lanes, was cut off with "
                f"records on their way to it; run the flow as it was once more with lanes={self._then.lanes} "
                f"(--lanes {self._then.lanes}), stop it (Ctrl-C), and change it then"
            )
        task = self._task(instance)
        now_ns = time.perf_counter_ns()
        entries = [each.entry(now_ns, now_ns) for each in waiting]
        while entries:
            deliveries, _ = task.run(entries)
            self._take(deliveries)
            entries, task.postponed = task.postponed, []
            _rest(task, entries)

    def _task(self, instance: Instance) -> Task:
        if instance.index in self._tasks:
            return self._tasks[instance.index]
        task = self._tasks[instance.index] = Task(instance, build(instance.step))
        states = self._states.get(instance.step.name, [])
        if instance.number < len(states):
            state = self._fit(states[instance.number], instance)
            task.load(state)
            for channel, at in enumerate(state["watermarks"]):
                if at == END:  # here nobody will say so once more
                    task.channels.advance(channel, END)
        return task

    def _take(self, deliveries: list[Delivery]) -> None:
        for each in deliveries:
            self._waiting[each.to].append(each)

    def _fit(self, state: TaskState, instance: Instance) -> TaskState:
        """Return what was saved of a task, for the channels that it has here."""
        return fit_channels(state, instance.channel_ports, timeless=self._then.takes_blocks(instance.step.name))

    # -- what it has come to ----------------------------------------------------------------------------------------------

    def _has_records(self, name: str) -> bool:
        return any(each.index in self._tasks or self._waiting.get(each.index) for each in self._graph.of_step(name))

    def _states_at_rest(self, name: str) -> list[TaskState]:
        step, instances = self._flow.steps[name], self._graph.of_step(name)
        if step.is_sink or name == DEAD_LETTERS:
            return [self._of_all(instances[0])]
        return [self._of(instance) for instance in instances]

    def _of(self, instance: Instance) -> TaskState:
        task = self._tasks.get(instance.index)
        if task is None:
            return {**self._fit(self._states[instance.step.name][instance.number], instance), "queue": []}
        return {**task.save(), "ports": list(instance.channel_ports), "changes": [], "queue": []}

    def _of_all(self, instance: Instance) -> TaskState:
        """Return what all writers of a sink have: nothing but how far time has come, and what they are to write."""
        states = self._states.get(instance.step.name, [])
        batches = [each.batch for each in self._waiting.get(instance.index, []) if each.batch is not None]
        timed = [] if self._then.takes_blocks(instance.step.name) else states
        return {
            "state": b"",
            "changes": [],
            "ports": [0],
            "watermark": min((each["watermark"] for each in timed), default=NO_WATERMARK),
            "watermarks": [min((at for each in timed for at in each["watermarks"]), default=NO_WATERMARK)],
            "idle": [],
            "ended": bool(states) and all(each["ended"] for each in states),
            "queue": [[0, batch, NO_WATERMARK] for batch in batches],
        }


def fit_channels(state: TaskState, ports: list[int], *, timeless: bool = False) -> TaskState:
    """Return what was saved of a task for the channels that it has now: by the earliest of each input where others sent."""
    if timeless:
        nothing = {"watermark": NO_WATERMARK, "watermarks": [NO_WATERMARK] * len(ports)}
        return {**state, **nothing, "idle": [], "ports": list(ports)}
    if state["ports"] == ports:
        return state
    earliest: dict[int, int] = {}
    for port, at in zip(state["ports"], state["watermarks"], strict=True):
        earliest[port] = min(at, earliest.get(port, at))
    watermarks = [earliest.get(port, NO_WATERMARK) for port in ports]
    return {**state, "watermarks": watermarks, "idle": [], "ports": list(ports)}


def _prune(flow: Flow) -> Flow:
    """Return a flow with the columns that streams have in lanes."""
    from headwater.engine.lanes.layout import laid_out

    layout = laid_out(flow)
    moves = {reader: move for move in layout.moves for reader in move.readers}
    steps = []
    for step in flow.steps.values():
        inputs = tuple(
            replace(edge, schema=layout.schema(edge).only(moves[step.name, port].columns))
            if (step.name, port) in moves
            else replace(edge, schema=layout.schema(edge))
            for port, edge in enumerate(step.inputs)
        )
        outputs = {port: layout.schemas.get((step.name, port), schema) for port, schema in step.outputs.items()}
        steps.append(replace(step, inputs=inputs, outputs=outputs))
    return Flow.of_steps(flow.name, steps)


def _of_port(ports: list[int], port: int) -> list[int]:
    return [channel for channel, each in enumerate(ports) if each == port]


def _rest(task: Task, entries: list[QueueEntry]) -> None:
    """Wait until what a step failed at may be tried again."""
    if entries:
        time.sleep(max(0, task.resting_ns - time.perf_counter_ns()) / 1e9)
