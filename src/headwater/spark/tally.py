"""What the steps of a run on Spark have done, added up by the driver from what each task counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import Lock

import msgspec
import numpy as np

from headwater.data.batch import CREATED, Batch
from headwater.data.column import Array
from headwater.flow.flow import DEAD_LETTERS, Flow
from headwater.histogram import Histogram, add_rows
from headwater.metrics import Sample, StepMetrics
from headwater.spark.envelope import Envelope
from headwater.spark.heads import Head

_EXAMPLES = 5
#: what tasks count of each step and the driver adds up, in the names of `StepMetrics`
COUNTED = ("records_in", "records_out", "activations", "busy_ns", "t_c_ns", "dead_letters", "late", "outs")


class Tally:
    """Counts of all steps, and the latencies of what sinks have taken."""

    def __init__(
        self,
        flow: Flow,
        on_written: Callable[[Array], None] | None = None,
        heads: Mapping[str, Head] | None = None,
    ) -> None:
        """Begin; the steps of `heads` run in Spark, and are told apart only by what goes in and comes out of all of them."""
        self._heads = heads or {}
        self._rows_read: dict[str, int] = {}  #: rows that Spark has read of a source
        self._lock, self._on_written = Lock(), on_written
        self._began_ns = time.perf_counter_ns()
        self._flow = flow
        self._steps = {name: StepMetrics(name) for name in flow.steps}
        self._latency, self._emit_latency = Histogram(), Histogram()
        self.examples: list[dict[str, str]] = []
        self.ended: set[str] = set()  #: sources that have come to their end
        self._watermarks: dict[str, int] = {}
        self._state: dict[int, dict[str, int]] = {}  #: bytes that steps keep, by bucket

    def add(self, data: bytes) -> None:
        """Add what one task counted."""
        counted = msgspec.msgpack.decode(data)
        with self._lock:
            for name, did in counted["steps"].items():
                self._steps[name] = self._steps[name].plus(StepMetrics(name, instances=0, **did))
            self.examples += counted["examples"][: _EXAMPLES - len(self.examples)]
            if counted["ended"] is not None:
                self.ended.add(counted["ended"])
            for name, watermark in counted["watermarks"].items():
                self._watermarks[name] = max(watermark, self._watermarks.get(name, watermark))
            bucket, sizes = counted["state"]
            if bucket is not None:
                self._state[bucket] = sizes

    def wrote(self, sink: str, envelope: Envelope, busy_ns: int) -> None:
        """Count records that a sink has taken."""
        batch, now = envelope.batch, time.time_ns()
        assert batch is not None
        count = envelope.count or batch.length
        if self._on_written is not None:
            self._on_written(batch.stamps[:, CREATED])
        with self._lock:
            step = self._steps[sink]
            step.records_in += count
            step.records_out += count
            step.activations += 1
            step.busy_ns += busy_ns
            step.t_c_ns += busy_ns * count
            since_created = now - batch.stamps[:, CREATED]
            since_emitted = np.full(batch.length, now - envelope.emitted_ns) if envelope.emitted_ns else since_created
            ages = np.stack([since_created, since_emitted])
            add_rows([self._latency, self._emit_latency], ages, times=max(1, round(count / batch.length)))

    def broke(self, sink: str, letters: Batch, *, handed_on: bool) -> None:
        """Count records that a sink could not take, and that the flow's dead letters have got if they were handed on."""
        with self._lock:
            self._steps[sink].records_in += letters.length
            self._steps[sink].dead_letters += letters.length
            if handed_on:
                self._steps[DEAD_LETTERS].records_in += letters.length
                self._steps[DEAD_LETTERS].records_out += letters.length
            self.examples += letters.rows()[: _EXAMPLES - len(self.examples)]

    @property
    def dead_letters(self) -> int:
        """How many records broke a step so far."""
        return sum(step.dead_letters for step in self._steps.values())

    def dropped(self, source: str, count: int) -> None:
        """Take note of how many records have come to a source in all that its reader had no room for."""
        with self._lock:
            step = self._steps[source]
            step.records_in += count - step.shed
            step.shed = count

    def read(self, rows: Mapping[str, int]) -> None:
        """Take note of how many rows Spark's own operators have been given of each source in all."""
        with self._lock:
            self._rows_read |= rows

    def _in_heads(self, steps: dict[str, StepMetrics]) -> None:
        """Say what is known of steps that Spark runs: what it read went as far as to the last that leaves some out."""
        for head in self._heads.values():
            if not head.steps:
                continue
            out, beside = steps[head.source].records_out, 0
            now = out
            if (
                head.narrows != head.source
            ):  # a filter gives no more than was read, even where that is told a little later
                now = max(self._rows_read.get(head.source, 0), 0 if head.waits else out)
            if head.other is not None:
                beside = self._rows_read.get(head.other.source, 0)
                for name in (head.other.source, *(step.name for step in head.other.steps)):
                    steps[name] = _passed(steps[name], beside, beside)
            for name in (head.source, *(step.name for step in head.steps)):
                joins = name == head.narrows and head.other is not None
                after = out if name == head.narrows else now
                steps[name] = _passed(steps[name], now + beside if joins else now, after)
                now = after

    def sample(self) -> Sample:
        """Return all counts as they are now."""
        with self._lock:
            span_ns = time.perf_counter_ns() - self._began_ns
            steps = {name: _at(step, span_ns) for name, step in self._steps.items()}
            self._in_heads(steps)
            for sizes in self._state.values():
                for name, size in sizes.items():
                    steps[name].state_bytes += size
            sources = [name for name, step in self._flow.steps.items() if step.is_source]
            sinks = [name for name, step in self._flow.steps.items() if step.is_sink]
            return Sample(
                at_s=span_ns / 1e9,
                steps=steps,
                latency=self._latency.copy(),
                emit_latency=self._emit_latency.copy(),
                records_in=sum(steps[name].records_in for name in sources),
                records_out={name: steps[name].records_out for name in sinks},
                watermarks_us=dict(self._watermarks),
            )


def _passed(step: StepMetrics, records_in: int, records_out: int) -> StepMetrics:
    return replace(step, records_in=records_in, records_out=records_out, outs={"out": records_out})


def _at(step: StepMetrics, span_ns: int) -> StepMetrics:
    """Return a step's counts as of now; what it was not busy, it had nothing to do."""
    return replace(step, span_ns=span_ns, t_empty_ns=max(0, span_ns - step.busy_ns))
