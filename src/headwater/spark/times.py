"""How far event time has come by each way between the steps of a layout, known from the steps, and the other way round.

On the engine a step has one time. On Spark a step that keeps nothing runs in a copy for each stage that makes its records,
and each way into a stage has the time of the stage that it comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.data.batch import NO_WATERMARK
from headwater.flow.endpoints import tells_time
from headwater.flow.steps import EventTime, Read
from headwater.spark.executor import Executor
from headwater.spark.stages import Layout, Stage


class Times:
    """The times of a layout's steps, given that of each step of its flow."""

    def __init__(self, layout: Layout, watermarks: Mapping[str, int]) -> None:
        self._layout, self._watermarks = layout, watermarks

    def behind(self, stage: Stage, step: str) -> int:
        """Return how far time has come behind a step, or behind its copy in a stage."""
        if step not in self._watermarks:  # a source that tells none
            return NO_WATERMARK
        described = self._layout.flow.steps[step]
        if described.is_source or not _is_copy(self._layout, stage, step):
            return described.time_behind(self._watermarks[step])
        inputs = (edge.step for edge in described.inputs if edge.step in stage.steps)
        return min((self.behind(stage, name) for name in inputs), default=NO_WATERMARK)

    def by_channel(self, executor: Executor) -> dict[str, list[int]]:
        """Return how far time has come by each channel of each task of a stage."""
        names, tasks = list(executor.tasks), list(executor.tasks.values())
        times = {name: [NO_WATERMARK] * len(task.instance.channel_ports) for name, task in executor.tasks.items()}
        for (entry, sender), targets in executor.channels.items():
            stream = self._layout.entries[entry].stream[0]
            for to, channel in targets:
                times[names[to]][channel] = self.behind(self._layout.stages[sender], stream)
        for name, task in executor.tasks.items():
            for number in range(len(task.instance.step.outputs)):
                for to, channel in (
                    target for route in task.instance.routes.get(number, ()) for target in route.targets
                ):
                    if to < len(tasks):  # else it leaves the stage
                        times[names[to]][channel] = self.behind(executor.stage, name)
        return times


def known_times(layout: Layout, buckets: Mapping[int, Mapping[str, Any]]) -> dict[str, int]:
    """Return how far time has come behind each step, given what the tasks of each bucket have saved."""
    times: dict[str, int] = {}
    for stage in layout.stages:
        for states in _saved_in(stage, buckets):
            for name in stage.steps:
                if name in states and not _is_copy(layout, stage, name):
                    times[name] = min(states[name]["watermark"], times.get(name, states[name]["watermark"]))
    for name, watermark in _told_by_sources(layout, buckets).items():
        times.setdefault(name, watermark)
    for step in layout.flow.in_order():
        if not (step.name in times or step.is_source or step.is_sink):
            before = ((layout.flow.steps[edge.step], times.get(edge.step, NO_WATERMARK)) for edge in step.inputs)
            times[step.name] = min((other.time_behind(at) for other, at in before), default=NO_WATERMARK)
    return times


def _told_by_sources(layout: Layout, buckets: Mapping[int, Mapping[str, Any]]) -> dict[str, int]:
    """Return how far event time had come at the steps that read it where records are read: nothing is saved there.

    What they told is known where it came to, and the earliest of it holds for the step.
    """
    times: dict[str, list[int]] = {}
    for stage in layout.stages:
        bucket = next((states for states in _saved_in(stage, buckets)), None)
        if bucket is None:
            continue
        executor = Executor(layout, stage, stage.numbers[0])
        names = list(executor.tasks)
        for (entry, sender), targets in executor.channels.items():
            for name in _time_steps(layout, layout.stages[sender], layout.entries[entry].stream[0]):
                times.setdefault(name, []).extend(bucket[names[to]]["watermarks"][channel] for to, channel in targets)
    return {name: min(watermarks) for name, watermarks in times.items()}


def _time_steps(layout: Layout, stage: Stage, step: str) -> set[str]:
    """Return the steps of a source's stage that tell the time of a stream made there; the source itself may."""
    if stage.level or step not in stage.steps:
        return set()
    described = layout.flow.steps[step]
    if isinstance(described.kind, EventTime):
        return {step}
    if isinstance(described.kind, Read):
        return {step} if tells_time(described.kind.source) else set()
    return {name for edge in described.inputs for name in _time_steps(layout, stage, edge.step)}


def _saved_in(stage: Stage, buckets: Mapping[int, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [buckets[at] for at in stage.numbers if at in buckets]


def _is_copy(layout: Layout, stage: Stage, step: str) -> bool:
    """Say whether a step runs in a stage only because its records are there, as it may in others."""
    if isinstance(layout.flow.steps[step].kind, EventTime):
        return False
    return not stage.level or layout.partitionings[step].role == "free"
