"""What lanes tell the process that started them: samples, and a last word when they are done. As MessagePack."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec
import numpy as np

from headwater.errors import RunError
from headwater.histogram import Histogram
from headwater.metrics import Report, Sample, StepMetrics

pack = msgspec.msgpack.Encoder().encode
unpack = msgspec.msgpack.Decoder().decode


def sample_to_wire(sample: Sample) -> dict[str, Any]:
    """Return a sample as plain values."""
    return {
        "at_s": sample.at_s,
        "steps": [asdict(step) for step in sample.steps.values()],
        "latency": _histogram_to_wire(sample.latency),
        "emit_latency": _histogram_to_wire(sample.emit_latency),
        "records_in": sample.records_in,
        "records_out": sample.records_out,
        "backpressure_s": sample.backpressure_s,
        "watermarks_us": sample.watermarks_us,
    }


def sample_from_wire(message: dict[str, Any]) -> Sample:
    """Return the sample that was told."""
    steps = [StepMetrics(**step) for step in message["steps"]]
    histograms = {name: _histogram_from_wire(message[name]) for name in ("latency", "emit_latency")}
    return Sample(**{**message, "steps": {step.name: step for step in steps}, **histograms})


def report_to_wire(report: Report, error: RunError | None) -> dict[str, Any]:
    """Return what another process cannot know of a report."""
    return {
        "last": sample_to_wire(report.last),
        "dead_letters": report.dead_letters,
        "shed": report.shed,
        "examples": report.examples,
        "sinks": report.extra.get("sinks", {}),
        "decisions": report.decisions,
        "decision_s": report.decision_s,
        "error": None if error is None else [str(error), error.step],
    }


def _histogram_to_wire(histogram: Histogram) -> list[Any]:
    used = np.flatnonzero(histogram.buckets)
    counts = histogram.buckets[used]
    return [used.tolist(), counts.tolist(), histogram.count, histogram.total, histogram.largest]


def _histogram_from_wire(figures: list[Any]) -> Histogram:
    histogram = Histogram()
    used, counts, histogram.count, histogram.total, histogram.largest = figures
    histogram.buckets[np.array(used, np.int64)] = counts
    return histogram
