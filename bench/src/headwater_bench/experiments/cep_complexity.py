"""Figure 8 of Ghosh and Simmhan: the time that brute force and the genetic algorithm took, over the work that was expected.

Work is counted as the paper counts it, steps and streams walked: (V + E) for each assignment that brute force tries (ours
skips swaps of equal devices, so it tries fewer than |R|^n), and (V + E) · p · g for g generations of p chromosomes. A
constant factor, the median of seconds over work, makes seconds of it.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headwater_bench.experiments.plots import figure

POPULATION = 50
NAMES = {"brute": "brute force", "ga": "genetic"}


def points(rows: Sequence[dict[str, Any]], name: str) -> list[tuple[float, float]]:
    """Observed seconds and expected work of every case that was solved so."""
    out = []
    for row in rows:
        walked = row["queries"] + row["streams"]
        if name == "ga":
            out.append((row["ga_s"], walked * POPULATION * row["ga_generations"]))
        elif row["brute_s"]:
            out.append((row["brute_s"], walked * row["brute_tried"]))
    return [(seconds, work) for seconds, work in out if seconds > 0 and work > 0]


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """For both, the factor, the correlation of the logarithms, and the range of each axis."""
    return {name: _fitted(points(rows, name)) for name in NAMES}


def _fitted(pairs: list[tuple[float, float]]) -> dict[str, Any]:
    seconds, work = (np.array(column) for column in zip(*pairs, strict=True)) if pairs else (np.zeros(0), np.zeros(0))
    vary = len(pairs) > 2 and np.ptp(np.log(work)) > 0 and np.ptp(np.log(seconds)) > 0
    return {
        "cases": len(pairs),
        "ns_per_step": 1e9 * statistics.median((seconds / work).tolist()) if pairs else None,
        "correlation": float(np.corrcoef(np.log(seconds), np.log(work))[0, 1]) if vary else None,
        "least_s": float(seconds.min()) if pairs else None,
        "most_s": float(seconds.max()) if pairs else None,
    }


def lines(fits: dict[str, Any]) -> list[str]:
    """Say it in words."""
    return [
        f"{NAMES[name]}: {row['cases']} cases in {row['least_s']:.3g} to {row['most_s']:.3g} s, {row['ns_per_step']:.3g} ns "
        f"per step walked, correlation with the expected time "
        + ("-" if row["correlation"] is None else f"{row['correlation']:.3f}")
        for name, row in fits.items()
        if row["cases"]
    ]


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw expected over observed time, both in seconds and on logarithmic axes."""
    fig, axes = figure(1, 1, 6, 5)
    axis, ends = axes[0][0], [float("inf"), 0.0]
    for (name, label), mark in zip(NAMES.items(), ("o", "x"), strict=True):
        pairs = points(rows, name)
        if not pairs:
            continue
        per_step = _fitted(pairs)["ns_per_step"] / 1e9
        observed, expected = [s for s, _ in pairs], [work * per_step for _, work in pairs]
        axis.plot(observed, expected, mark, label=label, alpha=0.6, markersize=5)
        ends = [min(ends[0], *observed), max(ends[1], *observed)]
    axis.plot(ends, ends, color="#999999", linestyle=":", linewidth=1)
    axis.set(
        xscale="log", yscale="log", xlabel="observed, s", ylabel="expected, s", title="figure 8: time and complexity"
    )
    axis.legend(fontsize=8)
    fig.savefig(path, dpi=110)
