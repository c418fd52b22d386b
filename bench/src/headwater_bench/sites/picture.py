"""Figure 12: the throughput of each flow, where it runs, and what that costs, over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from headwater_bench.experiments.plots import figure
from headwater_bench.sites.account import Moment, Output, cost, least, where

_COLOURS = {"etl": "#1f77b4", "stats": "#e0a100", "pred": "#2ca02c"}
_PLACES = ("cloud", "edge3", "edge2", "edge1")


def draw(
    moments: Sequence[Moment],
    outputs: Mapping[str, tuple[Output, float]],
    needed: Mapping[str, float],
    acts: Sequence[tuple[float, str]],
    path: Path,
) -> None:
    """Draw it to a PNG file; outputs have the lines of a message, `acts` are moments and what happened then."""
    fig, axes = figure(3, 1, 9, 8)
    start_s = moments[0].at_s
    for name, (output, copies) in outputs.items():
        edges = np.arange(start_s, moments[-1].at_s, 1.0)
        lines = np.array([output.at(at_s) for at_s in edges])
        axes[0][0].plot(edges[1:] - start_s, np.diff(lines) / copies, color=_COLOURS[name], label=name, linewidth=1)
        at = [(m.at_s - start_s, _PLACES.index(m.sites[name])) for m in moments if m.sites[name] in _PLACES]
        shift = 0.12 * (list(outputs).index(name) - 1)
        axes[1][0].plot([x for x, _ in at], [y + shift for _, y in at], ".", color=_COLOURS[name], markersize=4)
    times = [m.at_s - start_s for m in moments]
    axes[2][0].plot(times, [cost(at, needed) for at in where(moments)], color="#444444", label="paid")
    axes[2][0].plot(
        times, [least(m.lent, m.here, needed) for m in moments], ":", color="#d62728", label="least possible"
    )
    for at_s, what in acts:
        for row in axes:
            row[0].axvline(at_s - start_s, color="#bbbbbb", linestyle="--", linewidth=1)
        axes[0][0].annotate(what, (at_s - start_s, 1.01), xycoords=("data", "axes fraction"), fontsize=7, rotation=15)
    axes[0][0].set(ylabel="messages done each second", xlabel="")
    axes[0][0].legend(fontsize=8)
    axes[1][0].set(ylabel="runs at", yticks=range(len(_PLACES)), yticklabels=_PLACES)
    axes[2][0].set(ylabel="price of cores held, an hour", xlabel="seconds", ylim=(0, None))
    axes[2][0].legend(fontsize=8)
    fig.savefig(path, dpi=110)
