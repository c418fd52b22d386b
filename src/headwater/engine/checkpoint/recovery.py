"""Which part of a checkpoint belongs to which task of a run that goes on from it; `fitting` has found that it can."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from headwater.data.batch import END, NO_WATERMARK, Batch
from headwater.engine.checkpoint.distribution import Distribution
from headwater.engine.checkpoint.drain import TaskState, fit_channels
from headwater.engine.checkpoint.store import Checkpoint
from headwater.errors import RunError
from headwater.flow.flow import Flow
from headwater.flow.identity import identity_of
from headwater.flow.steps import Read, Step
from headwater.operators.execution_graph import ExecutionGraph, Instance
from headwater.operators.operator import Operator, spread
from headwater.operators.queue import Delivery
from headwater.operators.task import Task

VERSION = 1


def describe(flow: Flow) -> dict[str, Any]:
    """Describe what saved state depends on: the steps, how they are joined, their columns."""
    fields = ("kind", "does", "inputs", "outputs", "parallel")
    return {
        step["name"]: {**{name: step[name] for name in fields}, "keeps": flow.steps[step["name"]].keeps}
        for step in flow.to_json()["steps"]
    }


def identities(flow: Flow) -> dict[str, Any]:
    """Return what each source is: a position in one means nothing in another."""
    return {step.name: identity_of(step.kind.source) for step in flow.steps.values() if isinstance(step.kind, Read)}


def heading(flow: Flow, sources: dict[str, Any]) -> dict[str, Any]:
    """Return what a checkpoint says of the run that makes it, so that a later one can tell whether it may go on from it."""
    return {
        "version": VERSION,
        "flow": flow.name,
        "made": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "steps": describe(flow),
        "sources": sources,
    }


class Recovery:
    """What tasks of a run get of a checkpoint: each what it had, or its share where the flow is spread otherwise now."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        graph: ExecutionGraph,
        then: Distribution | None = None,
        now: Distribution | None = None,
        lane: int = 0,
    ) -> None:
        """`then` and `now` are how the flow is spread, for a checkpoint at rest; without them all is as it was."""
        self.number, self._content = checkpoint.number, checkpoint.content
        self._then, self._now, self._lane = then, now, lane
        self._of_step: dict[str, list[Instance]] = {}
        for instance in graph.instances:
            self._of_step.setdefault(instance.step.name, []).append(instance)

    def position(self, instance: Instance) -> Any:
        """Return how far a source was read; None for one that is new."""
        positions = self._content["positions"].get(instance.step.name, [])
        return positions[instance.number] if instance.number < len(positions) else None

    def load(self, task: Task) -> None:
        """Give a task its state: its own, or the share of its keys."""
        states, instance = self._states_of(task.name), task.instance
        if not states or task.operator is None:
            return
        if self._then is None or self._now is None:
            task.load(fit_channels(states[instance.number], instance.channel_ports))
            return
        step, instances = instance.step, len(self._of_step[task.name])
        timeless = self._now.takes_blocks(task.name)
        if not step.is_sink and self._then.shares(step, len(states)) == self._now.shares(step, instances):
            number = instance.number if self._now.is_in_one(task.name) else self._lane
            task.load(fit_channels(states[number], instance.channel_ports, timeless=timeless))
            return
        self._check_time(task, states)
        together = {
            "watermark": min(each["watermark"] for each in states),
            "watermarks": [min(column) for column in zip(*(_by_input(each, step) for each in states), strict=True)],
            "ports": list(range(len(step.inputs))),
            "ended": all(each["ended"] for each in states),
        }
        for each in self._states_to_load(task.operator, step, states):
            task.load(fit_channels({**each, **together}, instance.channel_ports, timeless=timeless))
        share = self._now.share(step, instance.number, instances, self._lane)
        if share is not None and step.state == "key" and any(each["state"] for each in states):
            if type(task.operator).forget is Operator.forget:
                raise RunError(
                    f"step {task.name!r} had {self._then.share_text(task.name, len(states))} then and has "
                    f"{self._now.share_text(task.name, instances)} now; its operator, {type(task.operator).__name__}, has "
                    "no method forget(select), so that its state cannot be split. Give it as many as it had, or that method"
                )
            task.forget(share.others())

    def _states_to_load(self, operator: Operator, step: Step, states: list[TaskState]) -> list[TaskState]:
        """Return what each instance has to look at: that of one where all have the same, else of all."""
        if operator.replicable:
            return states[:1]
        if step.state == "stream" and self._then is not None and self._then.is_in_one(step.name):
            return [min(states, key=lambda each: int(each["watermark"]))]  # nothing may be late that was not
        return states

    def _check_time(self, task: Task, states: list[TaskState]) -> None:
        """Refuse to put together what is not of one moment; at rest, all instances have come equally far."""
        assert task.operator is not None
        if task.operator.timed and len({END if each["ended"] else each["watermark"] for each in states}) > 1:
            raise RunError(
                f"step {task.name!r} had {len(states)} instances then, which had come differently far in time when their "
                f"run was cut off, so that what they keep cannot be put together. Run the flow with {len(states)} once "
                "more, stop it (Ctrl-C), and change their number then"
            )

    def queues(self) -> list[Delivery]:
        """Return what was on its way when the checkpoint was made; at rest, to sinks alone."""
        return self._queues_as_they_were() if self._now is None else self._before_sinks(self._now)

    def _queues_as_they_were(self) -> list[Delivery]:
        deliveries: list[Delivery] = []
        for name, instances in self._of_step.items():
            for instance, each in zip(instances, self._states_of(name), strict=False):
                same = each["ports"] == instance.channel_ports
                for channel, batch, watermark in each["queue"]:
                    if same:
                        # who has ended will say so once more, perhaps after it has sent what was not there then
                        at = NO_WATERMARK if watermark == END else watermark
                        deliveries.append(Delivery.of(instance.index, channel, batch, at))
                    elif batch is not None:  # without its watermark, which is that of one sender among others
                        port = each["ports"][channel]  # of dead letters, one of a site may be gone since
                        to = instance.channel_ports.index(port) if port in instance.channel_ports else 0
                        deliveries.append(Delivery.of(instance.index, to, batch, NO_WATERMARK))
        return deliveries

    def _before_sinks(self, now: Distribution) -> list[Delivery]:
        deliveries: list[Delivery] = []
        for name, instances in self._of_step.items():
            for each in self._states_of(name):
                for _, batch, _ in each["queue"]:
                    if now.is_in_one(name):
                        deliveries += _spread_over(instances, batch, instances[0].step.inputs[0].keys)
                    elif (part := self._of_lane(name, batch, now)) is not None:
                        deliveries.append(Delivery.of(instances[0].index, 0, part, NO_WATERMARK))
        return deliveries

    def _of_lane(self, sink: str, batch: Batch, now: Distribution) -> Batch | None:
        """Return what of a batch a sink of this lane writes: where the order matters, the lane of a key has all of it."""
        keys = now.sinks.get(sink)
        if keys is None:
            return batch if self._lane == 0 else None
        return spread(batch, keys, now.lanes)[self._lane]

    def _states_of(self, name: str) -> list[TaskState]:
        states: list[TaskState] = self._content["tasks"].get(name, [])
        return states


def _by_input(state: TaskState, step: Step) -> list[int]:
    """Return how far time had come by each input."""
    ways = fit_channels(state, list(range(len(step.inputs))))
    watermarks: list[int] = ways["watermarks"]
    return watermarks


def _spread_over(instances: list[Instance], batch: Batch, keys: tuple[str, ...]) -> list[Delivery]:
    parts = spread(batch, keys, len(instances)) if keys and len(instances) > 1 else [batch]
    targets = zip(instances, parts, strict=False)
    return [Delivery.of(to.index, 0, part, NO_WATERMARK) for to, part in targets if part is not None]
