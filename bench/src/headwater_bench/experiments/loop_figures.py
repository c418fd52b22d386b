"""Figures of the loop: the error of the forecasts and the records over time, as numbers and as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from headwater.data.batch import CREATED, Batch
from headwater.data.column import Array
from headwater.metrics import Report
from headwater_bench.experiments.plots import figure

Series = tuple[list[float], list[float]]  #: seconds and values

_SETTLE_NS = 500_000_000  # around an event, records of before and after are mixed


def _forecasts(batches: Sequence[Batch]) -> tuple[Array, Array]:
    """Return when each record was created, and the square of its forecast's error."""
    if not batches:
        return np.zeros(0, np.int64), np.zeros(0)
    at = np.concatenate([batch.stamps[:, CREATED] for batch in batches])
    error = np.concatenate([batch["measured"].astype(np.float64) - batch["predicted"] for batch in batches])
    return at, error**2


def rmse_between(batches: Sequence[Batch], start_ns: int, stop_ns: int) -> tuple[int, float | None]:
    """Return how many forecasts there were in a span of time, and by how much they were off, on quadratic mean."""
    at, square = _forecasts(batches)
    inside = (at >= start_ns + _SETTLE_NS) & (at < stop_ns - _SETTLE_NS)
    count = int(inside.sum())
    return count, round(float(np.sqrt(square[inside].mean())), 3) if count else None


def errors_by_second(batches: Sequence[Batch], start_ns: int) -> Series:
    """Return the error of the forecasts for every second since the start."""
    at, square = _forecasts(batches)
    second = (at - start_ns) // 1_000_000_000
    second, square = second[second >= 0], square[second >= 0]
    counts = np.bincount(second) if len(second) else np.zeros(0)
    sums = np.bincount(second, weights=square) if len(second) else np.zeros(0)
    there = np.flatnonzero(counts)
    return (there + 0.5).tolist(), np.sqrt(sums[there] / counts[there]).tolist()


def counts_over_time(report: Report, age_s: float) -> Series:
    """Return how many thousand records a run had taken in by when; it was `age_s` old at the start."""
    samples = [sample for sample in report.samples if sample.at_s >= age_s]
    return [sample.at_s - age_s for sample in samples], [sample.records_in / 1e3 for sample in samples]


def picture(errors: Series, counts: Mapping[str, Series], moments: Mapping[str, int], output: Path) -> None:
    """Draw errors and counts over time with the events, and write the errors as CSV."""
    start = moments["start"]
    lines = ["second,rmse", *(f"{at:.1f},{value:.4f}" for at, value in zip(*errors, strict=True))]
    (output / "loop.csv").write_text("\n".join(lines) + "\n")
    fig, axes = figure(2, 1, 9, 6)
    top, bottom = axes[0][0], axes[1][0]
    top.plot(*errors, color="#1f77b4", linewidth=1.6)
    top.set(ylabel="error of the gateway's forecasts (RMSE)", ylim=(0, 1.5 * max(errors[1], default=1.0)))
    for name, colour in zip(counts, ("#444444", "#1f77b4", "#d62728"), strict=False):
        bottom.plot(*counts[name], label=name, color=colour, linewidth=1.3)
    bottom.set(xlabel="seconds", ylabel="thousand records taken in", ylim=(0, None))
    bottom.sharex(top)
    bottom.legend(fontsize=8)
    for what, at in moments.items():
        if what in ("start", "end"):
            continue
        for axis in (top, bottom):
            axis.axvline((at - start) / 1e9, color="#999999", linestyle=":", linewidth=1)
        place = ((at - start) / 1e9, 0.98)
        top.annotate(what, place, xycoords=("data", "axes fraction"), rotation=90, va="top", ha="right", fontsize=7)
    for axis in (top, bottom):
        axis.grid(alpha=0.3)
    fig.suptitle("Sensors → gateway → Spark → a new model → gateway")
    fig.savefig(output / "loop.png", dpi=110)
