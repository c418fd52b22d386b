"""Joins the steps of a stage: which task hands on to which, and what comes in or goes out by which way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from headwater.data.batch import Batch
from headwater.flow.flow import DEAD_LETTERS
from headwater.operators import DEAD, Operator
from headwater.operators.execution_graph import Instance, Route
from headwater.operators.task import Task
from headwater.spark.exits import Exits
from headwater.spark.stages import Layout, Stage

Target = tuple[int, int]  #: a task and a channel of it; behind the last task, the number of an exit


@dataclass(slots=True)
class Wiring:
    """The tasks of a stage by step, in order, and for each entry and sender where its records go."""

    tasks: dict[str, Task] = field(default_factory=dict)
    channels: dict[tuple[int, int], list[Target]] = field(default_factory=dict)
    #: inputs by which every copy of a step learns the same, in a copy that is not the first
    learning: set[Target] = field(default_factory=set)


def wired(
    layout: Layout,
    stage: Stage,
    operators: Mapping[str, Operator],
    exits: Exits,
    on_dead: Callable[[Batch], None],
    *,
    is_first: bool,
) -> Wiring:
    """Join the steps of a stage; `is_first` tells the first of its copies from the others."""
    names = [name for name in stage.steps if layout.partitionings[name].role != "sink"]
    instances = {name: Instance(i, layout.flow.steps[name], 0) for i, name in enumerate(names)}
    wiring = Wiring()
    for entry in layout.entries:
        if entry.stage == stage.number:
            for sender in entry.senders:
                targets = [_channel(instances[step], port) for step, port in entry.readers]
                wiring.channels[entry.number, sender] = targets
                if entry.spread == "all" and not is_first:
                    pairs = zip(entry.readers, targets, strict=True)
                    wiring.learning |= {target for (step, _), target in pairs if operators[step].replicable}
    for name, instance in instances.items():
        for number, port in enumerate(instance.step.outputs):
            for target in _targets(layout, stage, (name, port), instances, exits):
                instance.routes.setdefault(number, []).append(Route("one", (), (target,)))
    if DEAD_LETTERS in instances:
        after = layout.flow.reached_from(DEAD_LETTERS)
        for name, instance in instances.items():
            if name not in after:
                route = Route("one", (), (_channel(instances[DEAD_LETTERS], 0),))
                instance.routes.setdefault(DEAD, []).append(route)
    for name, instance in instances.items():
        wiring.tasks[name] = Task(instance, operators.get(name))
        wiring.tasks[name].on_dead = on_dead
    return wiring


def _targets(
    layout: Layout, stage: Stage, stream: tuple[str, str], instances: dict[str, Instance], exits: Exits
) -> Iterator[Target]:
    """Return where a stream goes: to steps of this stage, to sinks, to other stages."""
    for step in layout.flow.readers_of(*stream):
        for number, edge in enumerate(step.inputs):
            if (edge.step, edge.port) != stream:
                continue
            if step.name in instances:
                yield _channel(instances[step.name], number)
            elif step.is_sink:
                yield len(instances) + exits.to_sink(step.name), 0
    for entry in layout.entries:
        if entry.stream == stream and stage.number in entry.senders:
            yield len(instances) + exits.to_entry(entry), 0


def _channel(instance: Instance, port: int) -> Target:
    instance.channel_ports.append(port)
    return instance.index, len(instance.channel_ports) - 1
