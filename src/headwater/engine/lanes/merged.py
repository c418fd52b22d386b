"""One sample of many: what all lanes count, by the steps of the flow that they run together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from headwater.flow.flow import DEAD_LETTERS, Flow
from headwater.metrics import Histogram, Sample, StepMetrics


def merged_sample(flow: Flow, samples: Sequence[Sample], waiting: Mapping[str, int], at_s: float) -> Sample:
    """Add up samples of lanes, that of lane 0 first; `waiting` is what waits between them, by the step that takes it."""
    steps: dict[str, StepMetrics] = {name: StepMetrics(name, instances=0) for name in flow.steps}
    latency, emit_latency = Histogram(), Histogram()
    out: Counter[str] = Counter()
    for lane, sample in enumerate(samples):
        latency.merge(sample.latency)
        emit_latency.merge(sample.emit_latency)
        out.update({name: count for name, count in sample.records_out.items() if name in flow.steps})
        for name, step in sample.steps.items():
            if name in steps and not (lane and name == DEAD_LETTERS):  # which only hands on what lane 0 will count
                steps[name] = steps[name].plus(step)
    for name, count in waiting.items():
        steps[name].queue += count
    read = sum(steps[name].records_in for name, step in flow.steps.items() if step.is_source)
    held_s = max(sample.backpressure_s for sample in samples)
    return Sample(at_s, steps, latency, emit_latency, read, dict(out), held_s)
