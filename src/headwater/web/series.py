"""What the last hour looked like: series for charts, made of a history of samples. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Samples = Sequence[Mapping[str, Any]]


@dataclass(slots=True)
class Series:
    """One value a sample of everything that is drawn over time; None where a sample has none."""

    times: list[str] = field(default_factory=list)
    in_hz: list[float] = field(default_factory=list)
    out_hz: list[float] = field(default_factory=list)
    p50_ms: list[float] = field(default_factory=list)
    p95_ms: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    cores: list[float] = field(default_factory=list)
    memory_mb: list[float] = field(default_factory=list)
    held: list[float] = field(default_factory=list)
    lag_s: list[float | None] = field(default_factory=list)
    checkpoint_ms: list[float | None] = field(default_factory=list)
    checkpoint_kb: list[float | None] = field(default_factory=list)
    #: of the heat map: (sample, row, share of the sample's records in per cent); rows are durations, up to `bounds_ms`
    heat: list[tuple[int, int, float]] = field(default_factory=list)
    bounds_ms: list[float] = field(default_factory=list)


def series_of(samples: Samples) -> Series:
    """Read a history."""
    series = Series()
    bounds = sorted({bound for sample in samples for bound, _ in sample["last"]["latency_counts"]})
    series.bounds_ms = [bounds[0] * 2**n for n in range(round(bounds[-1] / bounds[0]).bit_length())] if bounds else []
    rows = {round(bound, 9): row for row, bound in enumerate(series.bounds_ms)}
    for at, sample in enumerate(samples):
        last, span_s = sample["last"], max(sample["last"]["at_s"], 1e-9)
        series.times.append(clock(sample["at"]))
        series.in_hz.append(round(last["records_in"] / span_s, 1))
        series.out_hz.append(round(sum(last["records_out"].values()) / span_s, 1))
        series.p50_ms.append(last["latency_ms"]["p50"])
        series.p95_ms.append(last["latency_ms"]["p95"])
        series.p99_ms.append(last["latency_ms"]["p99"])
        series.cores.append(sample["process"]["cores"])
        series.memory_mb.append(round(sample["process"]["memory_bytes"] / 2**20, 1))
        series.held.append(round(min(1.0, last["backpressure_s"] / span_s) * 100, 1))
        watermarks = last["watermarks_us"].values()
        series.lag_s.append(round(sample["at"] - min(watermarks) / 1e6, 2) if watermarks else None)
        checkpoint = sample["checkpoints"]
        is_complete = checkpoint is not None and checkpoint["complete"] > 0
        series.checkpoint_ms.append(round(checkpoint["seconds"] * 1000, 2) if is_complete else None)
        series.checkpoint_kb.append(round(checkpoint["bytes"] / 2**10, 2) if is_complete else None)
        total = sum(count for _, count in last["latency_counts"]) or 1
        series.heat += [
            (at, rows[round(bound, 9)], round(count / total * 100, 2)) for bound, count in last["latency_counts"]
        ]
    return series


def clock(at_s: float) -> str:
    """Write the time of day, as it is here.

    >>> len(clock(0.0))
    8
    """
    return datetime.fromtimestamp(at_s).strftime("%H:%M:%S")
