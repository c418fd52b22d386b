"""A flow's steps one after the other in one thread, each activation timed: how the profiler runs a flow."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass

from headwater.data.batch import Batch, concat_batches
from headwater.engine.profiler import Samples
from headwater.engine.warm import load_kernels
from headwater.flow.endpoints import Reader, at_rate, rehearsed
from headwater.flow.flow import Flow
from headwater.flow.steps import Kind, Read, Write
from headwater.io import Discard
from headwater.operators import build
from headwater.operators.execution_graph import ExecutionGraph
from headwater.operators.queue import Delivery
from headwater.operators.task import Task

_FULL_SPEED_HZ = 1e9


@dataclass(slots=True)
class TimedActivation:
    """One activation of a step."""

    records: int
    cpu_s: float
    wall_s: float


def dry(flow: Flow) -> Flow:
    """Return the flow with sinks that leave nothing behind; those that can do their work without that still do it."""
    sinks: dict[str, Kind] = {
        name: Write(rehearsed(step.kind.sink) or Discard())
        for name, step in flow.steps.items()
        if isinstance(step.kind, Write)
    }
    return flow.replaced(sinks)


class Chain:
    """The tasks of a flow and, by step, their activations."""

    def __init__(self, flow: Flow, sizes: Mapping[str, int] | None = None) -> None:
        graph = ExecutionGraph.of(flow)
        load_kernels(graph)
        self.activations: dict[str, list[TimedActivation]] = defaultdict(list)
        self._tasks = [Task(each, None if each.step.is_source else build(each.step)) for each in graph.instances]
        self._sizes = sizes or {}

    def push(self, source: str, batch: Batch) -> None:
        """Send a source's records down to the sinks; a step is activated for each batch, cut to its size if it has one."""
        first = next(task for task in self._tasks if task.name == source)
        first.count_read(batch.length)
        waiting = deque(first.emit(batch))
        while waiting:
            delivery = waiting.popleft()
            for part in self._cut(delivery):
                waiting.extend(self._activate(self._tasks[delivery.to], part))

    def _cut(self, delivery: Delivery) -> list[Delivery]:
        batch, size = delivery.batch, self._sizes.get(self._tasks[delivery.to].name)
        if batch is None or size is None or batch.length <= size:
            return [delivery]
        cuts = [batch.slice(at, min(at + size, batch.length)) for at in range(0, batch.length, size)]
        return [delivery._replace(batch=part, size=part.length) for part in cuts]

    def _activate(self, task: Task, delivery: Delivery) -> list[Delivery]:
        wall_s, cpu_s = time.perf_counter(), time.thread_time()
        deliveries, _ = task.run([delivery.entry(time.perf_counter_ns(), 0)])
        cpu_s, wall_s = time.thread_time() - cpu_s, time.perf_counter() - wall_s
        records = 0 if delivery.batch is None else delivery.batch.length
        self.activations[task.name].append(TimedActivation(records, cpu_s, wall_s))
        return deliveries

    def close(self) -> None:
        """Close all operators."""
        for task in self._tasks:
            if task.operator is not None:
                task.operator.close()


class Feed:
    """Hands out a source's records as they are wanted, and says when it starts over; reading is timed.

    What can be read again is read; the records of a source that cannot, such as a broker, are its samples.
    """

    def __init__(self, flow: Flow, source: str, samples: Samples) -> None:
        kind = flow.steps[source].kind
        assert isinstance(kind, Read)
        batches, self._cost_s = samples[source]
        self._samples = concat_batches(batches)
        self._source = at_rate(kind.source, _FULL_SPEED_HZ)  # what makes its records can make more
        self._reader: Reader | None = None
        self._at = 0

    def take(self, count: int) -> tuple[Batch, TimedActivation, bool]:
        """Return so many records or fewer, what they cost, and whether these are the first again."""
        if self._source is None:
            return self._sample(count)
        again = self._reader is None
        if self._reader is None:
            self._reader = self._source.open(lambda text, error: None)
        cpu_s = time.thread_time()
        batch = self._reader.read(count, 0.1)
        cpu_s = time.thread_time() - cpu_s
        if batch is None:
            self.close()
            return self._sample(count)
        return batch, TimedActivation(batch.length, cpu_s, cpu_s), again

    def _sample(self, count: int) -> tuple[Batch, TimedActivation, bool]:
        start = self._at if self._at + count <= self._samples.length else 0
        self._at = min(start + count, self._samples.length)
        batch = self._samples.slice(start, self._at)
        cost_s = batch.length * self._cost_s
        return batch, TimedActivation(batch.length, cost_s, cost_s), start == 0

    def close(self) -> None:
        """Close the reader."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
