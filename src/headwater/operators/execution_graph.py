"""The execution graph: instances of steps, and the routes by which records go from one to the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from headwater.flow.flow import DEAD_LETTERS, Flow
from headwater.flow.steps import Grouping, Step
from headwater.operators.operator import DEAD


@dataclass(frozen=True, slots=True)
class Route:
    """Where one output of an instance goes: the instances of a step, each by a channel of its own."""

    grouping: Grouping
    keys: tuple[str, ...]
    #: (instance, channel) pairs; a channel is a number by which the receiver tells its senders apart
    targets: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class Instance:
    """One instance of one step."""

    index: int
    step: Step
    number: int  #: 0 .. parallel − 1
    routes: dict[int, list[Route]] = field(default_factory=dict)
    #: which input of the step each channel belongs to
    channel_ports: list[int] = field(default_factory=list)


#: How what an instance sends comes to an input of a step: to which of its instances, by which grouping and keys.
Way = Callable[[Instance, Step, int, list[Instance]], tuple[list[Instance], Grouping, tuple[str, ...]]]


def as_described(
    sender: Instance, step: Step, port: int, receivers: list[Instance]
) -> tuple[list[Instance], Grouping, tuple[str, ...]]:
    """Return the way that the flow itself describes."""
    edge = step.inputs[port]
    return receivers, edge.grouping, edge.keys


def _as_asked(step: Step) -> int:
    return step.instances


@dataclass(slots=True)
class ExecutionGraph:
    """All instances of a flow, sources first, and how they are joined."""

    flow: Flow
    instances: list[Instance]

    @classmethod
    def of(cls, flow: Flow, count: Callable[[Step], int] = _as_asked, way: Way = as_described) -> ExecutionGraph:
        """Check a flow and lay it out; `count` and `way` say how it is spread where that is not as described."""
        flow.check()
        order = flow.in_order()
        instances: list[Instance] = []
        of_step: dict[str, list[Instance]] = {}
        for step in order:
            step_instances = [Instance(len(instances) + number, step, number) for number in range(count(step))]
            of_step[step.name] = step_instances
            instances += step_instances
        for step in order:
            for port, edge in enumerate(step.inputs):
                senders = of_step[edge.step]
                output = list(senders[0].step.outputs).index(edge.port)
                for sender in senders:
                    receivers, grouping, keys = way(sender, step, port, of_step[step.name])
                    _join(sender, output, receivers, port, grouping, keys)
        if DEAD_LETTERS in of_step:
            downstream = _downstream_of(of_step[DEAD_LETTERS], instances)
            for sender in instances:
                if sender.index not in downstream:  # a dead-letter sink that fails must not feed itself
                    _join(sender, DEAD, of_step[DEAD_LETTERS], 0, "one", ())
        return cls(flow, instances)

    def of_step(self, name: str) -> list[Instance]:
        """Return the instances of a step."""
        return [instance for instance in self.instances if instance.step.name == name]

    def sources(self) -> list[int]:
        """Return the instances that read."""
        return [instance.index for instance in self.instances if instance.step.is_source]

    def dead_letters(self) -> list[int]:
        """Return the instances that dead letters are sent to."""
        return [instance.index for instance in self.instances if instance.step.name == DEAD_LETTERS]

    def downstream(self) -> list[list[int]]:
        """Return, for each instance, those whose queues it feeds; dead letters do not hold anyone up."""
        return [
            [
                target
                for port, routes in instance.routes.items()
                if port != DEAD
                for r in routes
                for target, _ in r.targets
            ]
            for instance in self.instances
        ]


def _join(
    sender: Instance,
    output: int,
    receivers: list[Instance],
    port: int,
    grouping: Grouping,
    keys: tuple[str, ...],
) -> None:
    targets = []
    for receiver in receivers:
        targets.append((receiver.index, len(receiver.channel_ports)))
        receiver.channel_ports.append(port)
    sender.routes.setdefault(output, []).append(Route(grouping, keys, tuple(targets)))


def _downstream_of(starts: list[Instance], instances: list[Instance]) -> set[int]:
    indices = {instance.index for instance in starts}
    for instance in instances:  # in order, so one pass is enough
        if instance.index in indices:
            indices |= {t for routes in instance.routes.values() for r in routes for t, _ in r.targets}
    return indices
