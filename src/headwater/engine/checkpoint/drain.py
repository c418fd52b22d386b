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

Saved = dict[str, Any]  #: what a checkpoint has of a task
Unsent = Mapping[str, list[Batch]]  #: by source, what it had read and not yet handed out, and is processed too


def drain(found: Checkpoint, flow: Flow, then: Distribution, unsent: Unsent) -> Checkpoint:
    """Return a checkpoint in which nothing is on its way but to sinks; made by a run that was spread so."""
    return _Drain(found, flow, then, unsent).checkpoint()


class _Drain:
    def __init__(self, found: Checkpoint, flow: Flow, then: Distribution, unsent: Unsent) -> None:
        self._found, self._then, self._unsent = found, then, unsent
        self._saved: dict[str, list[Saved]] = found.content["tasks"]
        self._flow = _pruned(flow) if then.lanes > 1 else flow
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
                    self._do_what_is_left(instance)
        tasks = {name: self._rested(name) for name in self._flow.steps if name in self._saved or self._is_reached(name)}
        return Checkpoint(self._found.number, {**self._found.content, "tasks": tasks})

    # -- the run that was -------------------------------------------------------------------------------------------------

    def _count(self, step: Step) -> int:
        if step.is_sink or step.name == DEAD_LETTERS:  # it makes no difference who of them has what
            return 1
        if step.is_source:
            return max(1, len(self._found.content["positions"].get(step.name, ())))
        return max(1, len(self._saved.get(step.name, ())))

    def _way(
        self, sender: Instance, step: Step, port: int, receivers: list[Instance]
    ) -> tuple[list[Instance], Grouping, tuple[str, ...]]:
        then, described = self._then, as_described(sender, step, port, receivers)
        if then.lanes == 1 or step.is_sink:
            return described
        if (step.name, port) in then.moves:
            to, keys = then.moves[step.name, port]
            return described if to == "one" else (receivers, "key" if to == "key" else "all", keys)
        if then.is_in_one(step.name) or sender.step.is_source:
            return described
        return receivers[sender.number : sender.number + 1], "one", ()  # it stays in its lane

    def _put_back(self, name: str) -> None:
        """Have what was on its way to a step wait there."""
        instances = self._graph.of_step(name)
        for at, saved in enumerate(self._saved.get(name, ())):
            instance = instances[at] if at < len(instances) else instances[0]
            for channel, batch, watermark in saved["queue"]:
                self._waiting[instance.index] += self._restored(instance, saved["ports"], channel, batch, watermark)

    def _restored(
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
        found = [] if batch is None else [Delivery.of(instance.index, now[0], batch, NO_WATERMARK)]
        return found if len(then) > 1 else found + [Delivery.of(instance.index, each, None, watermark) for each in now]

    def _put_back_at_outlets(self) -> None:
        """Send on what had come to where records leave a lane."""
        for name, readers in self._then.outlets.items():
            for saved in self._saved.get(name, ()):
                for channel, batch, watermark in saved["queue"]:
                    for step, port in readers:
                        self._send_on(step, port, saved["lane"], channel, batch, watermark)

    def _send_on(self, step: str, port: int, lane: int, channel: int, batch: Batch | None, watermark: int) -> None:
        if step not in self._flow.steps:
            return
        given = self._flow.steps[step].inputs[port]
        sender = self._graph.of_step(given.step)[channel if self._then.is_in_one(given.step) else lane]
        indices = {instance.index for instance in self._graph.of_step(step)}
        sent: list[Delivery] = []
        for route in sender.routes[list(sender.step.outputs).index(given.port)]:
            if batch is not None and {index for index, _ in route.targets} <= indices:
                Router(sender).send_along(route, batch, watermark, sent)
        self._take(sent)

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
            if self._had_ended(sender) or any(self._had_heard(to, channel) for to, channel in targets):
                left = [(to, channel) for to, channel in targets if not self._had_ended(self._graph.instances[to])]
                self._take([Delivery(to, channel, None, END, 1) for to, channel in left])

    def _had_ended(self, instance: Instance) -> bool:
        saved = self._saved_of(instance)
        return saved is not None and bool(saved["ended"])

    def _had_heard(self, to: int, channel: int) -> bool:
        """Say whether an instance knew that nothing follows by a channel."""
        instance = self._graph.instances[to]
        saved = self._saved_of(instance)
        if saved is None or saved["ended"]:
            return saved is not None
        return bool(saved["ports"] == instance.channel_ports and saved["watermarks"][channel] == END)

    def _saved_of(self, instance: Instance) -> Saved | None:
        """Return what was saved of an instance; sinks and dead letters here have no instance of their own."""
        saved = self._saved.get(instance.step.name, [])
        is_alone = instance.step.is_sink or instance.step.name == DEAD_LETTERS
        return None if is_alone or instance.number >= len(saved) else saved[instance.number]

    # -- what is left to do -----------------------------------------------------------------------------------------------

    def _do_what_is_left(self, instance: Instance) -> None:
        waiting = self._waiting.pop(instance.index, [])
        if not waiting:
            return
        if self._then.lanes > 1 and instance.step.name not in self._saved:
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
        saved = self._saved.get(instance.step.name, [])
        if instance.number < len(saved):
            known = self._fitted(saved[instance.number], instance)
            task.load(known)
            for channel, at in enumerate(known["watermarks"]):
                if at == END:  # here nobody will say so once more
                    task.channels.advance(channel, END)
        return task

    def _take(self, deliveries: list[Delivery]) -> None:
        for each in deliveries:
            self._waiting[each.to].append(each)

    def _fitted(self, saved: Saved, instance: Instance) -> Saved:
        """Return what was saved of a task, for the channels that it has here."""
        return fitted(saved, instance.channel_ports, timeless=self._then.takes_blocks(instance.step.name))

    # -- what it has come to ----------------------------------------------------------------------------------------------

    def _is_reached(self, name: str) -> bool:
        return any(each.index in self._tasks or self._waiting.get(each.index) for each in self._graph.of_step(name))

    def _rested(self, name: str) -> list[Saved]:
        step, instances = self._flow.steps[name], self._graph.of_step(name)
        if step.is_sink or name == DEAD_LETTERS:
            return [self._of_all(instances[0])]
        return [self._of(instance) for instance in instances]

    def _of(self, instance: Instance) -> Saved:
        task = self._tasks.get(instance.index)
        if task is None:
            return {**self._fitted(self._saved[instance.step.name][instance.number], instance), "queue": []}
        return {**task.save(), "ports": list(instance.channel_ports), "changes": [], "queue": []}

    def _of_all(self, instance: Instance) -> Saved:
        """Return what all writers of a sink have: nothing but how far time has come, and what they are to write."""
        saved = self._saved.get(instance.step.name, [])
        batches = [each.batch for each in self._waiting.get(instance.index, []) if each.batch is not None]
        timed = [] if self._then.takes_blocks(instance.step.name) else saved
        return {
            "state": b"",
            "changes": [],
            "ports": [0],
            "watermark": min((each["watermark"] for each in timed), default=NO_WATERMARK),
            "watermarks": [min((at for each in timed for at in each["watermarks"]), default=NO_WATERMARK)],
            "idle": [],
            "ended": bool(saved) and all(each["ended"] for each in saved),
            "queue": [[0, batch, NO_WATERMARK] for batch in batches],
        }


def fitted(saved: Saved, ports: list[int], *, timeless: bool = False) -> Saved:
    """Return what was saved of a task for the channels that it has now: by the earliest of each input where others sent."""
    if timeless:
        nothing = {"watermark": NO_WATERMARK, "watermarks": [NO_WATERMARK] * len(ports)}
        return {**saved, **nothing, "idle": [], "ports": list(ports)}
    if saved["ports"] == ports:
        return saved
    earliest: dict[int, int] = {}
    for port, at in zip(saved["ports"], saved["watermarks"], strict=True):
        earliest[port] = min(at, earliest.get(port, at))
    watermarks = [earliest.get(port, NO_WATERMARK) for port in ports]
    return {**saved, "watermarks": watermarks, "idle": [], "ports": list(ports)}


def _pruned(flow: Flow) -> Flow:
    """Return a flow with the columns that streams have in lanes."""
    from headwater.engine.lanes.layout import laid_out

    layout = laid_out(flow)
    moved = {reader: move for move in layout.moves for reader in move.readers}
    steps = []
    for step in flow.steps.values():
        inputs = tuple(
            replace(given, schema=layout.schema(given).only(moved[step.name, port].columns))
            if (step.name, port) in moved
            else replace(given, schema=layout.schema(given))
            for port, given in enumerate(step.inputs)
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
