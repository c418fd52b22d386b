"""Plots of experiments; needs the extra `plots`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headwater.errors import RunError

_COLOURS = ["#444444", "#1f77b4", "#9aa5b1", "#e0a100", "#2ca02c", "#d62728", "#9467bd"]


def figure(rows: int, columns: int, width: float, height: float) -> Any:
    """Return a new figure and its axes.

    Not one of `pyplot`, which keeps every figure for as long as the process lives.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise RunError("plots need matplotlib: pip install 'headwater[plots]'") from None
    drawing = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(drawing)
    return drawing, drawing.subplots(rows, columns, squeeze=False)


def decades(axis: Any) -> None:
    """Give the axis of a logarithmic scale few and short labels: 10k, 30k, 100k."""
    from matplotlib.ticker import EngFormatter, LogLocator

    axis.set_major_locator(LogLocator(subs=(1, 3)))
    axis.set_major_formatter(EngFormatter(sep=""))
    axis.minorticks_off()


def throughput_latency(points: list[tuple[str, str, float, float, float, float]], path: Path) -> None:
    """Draw p99 over throughput, and balance over load, for each topology: the paper's figures 7 and 8."""
    topologies = list(dict.fromkeys(point[0] for point in points))
    configs = list(dict.fromkeys(point[1] for point in points))
    fig, axes = figure(2, len(topologies), 4.2 * len(topologies), 7)
    for column, topology in enumerate(topologies):
        for config, colour in zip(configs, _COLOURS, strict=False):
            mine = [p for p in points if p[0] == topology and p[1] == config]
            loads = sorted({p[4] for p in mine})
            out = [statistics.median(p[2] for p in mine if p[4] == load) for load in loads]
            p99 = [statistics.median(p[3] for p in mine if p[4] == load) for load in loads]
            cv = [statistics.median(p[5] for p in mine if p[4] == load) for load in loads]
            style = {"color": colour, "label": config, "marker": ".", "linewidth": 1.2}
            axes[0][column].plot([o / 1e3 for o in out], p99, **style)
            axes[1][column].plot([100 * load for load in loads], cv, **style)
        axes[0][column].set(
            title=topology, xlabel="throughput, thousand records/s", yscale="log", ylabel="p99 latency, ms"
        )
        axes[0][column].axhline(100, color="#bbbbbb", linestyle=":", linewidth=1)
        axes[1][column].set(xlabel="offered load, % of capacity", ylabel="CV of utilisation over steps")
    axes[0][0].legend(fontsize=8)
    fig.savefig(path, dpi=110)


class Phase(NamedTuple):
    """A span of time in a plot, and what it is called; one that `stands_out` is shaded."""

    start_s: float
    end_s: float
    name: str
    stands_out: bool = False


def over_time(
    series: dict[str, dict[str, tuple[list[float], list[float]]]],
    path: Path,
    title: str,
    phases: Sequence[Phase] = (),
    level: tuple[str, float] | None = None,
) -> None:
    """Draw measurements over time, one panel per measurement, one line per runner, and a dashed one for what is offered.

    `phases` are named above the first panel; `level` is a name and a height in it.
    """
    fig, axes = figure(len(series), 1, 9, 2.8 * len(series))
    for (measure, lines), row in zip(series.items(), axes, strict=True):
        for (name, (times, values)), colour in zip(lines.items(), ("#1f77b4", "#d62728", "#2ca02c"), strict=False):
            look = {"color": "#888888", "linestyle": "--"} if name == "offered" else {"color": colour}
            row[0].plot(times, values, label=name, linewidth=1.6, **look)
        row[0].set(xlabel="seconds", ylabel=measure)
        if "latency" in measure:
            row[0].set_yscale("log")
        else:
            row[0].set_ylim(bottom=0)
        row[0].grid(alpha=0.3)
        for phase in phases:
            if phase.stands_out:
                row[0].axvspan(phase.start_s, phase.end_s, color="#d62728", alpha=0.08)
        if phases:
            row[0].set_xlim(phases[0].start_s, phases[-1].end_s)
    first = axes[0][0]
    for phase in phases:
        middle = (phase.start_s + phase.end_s) / 2
        first.annotate(phase.name, (middle, 1.02), xycoords=("data", "axes fraction"), ha="center", fontsize=9)
    if level is not None:
        first.axhline(level[1], color="#444444", linestyle=":", linewidth=1.2, label=level[0])
    first.legend(loc="upper left" if phases else "best", fontsize=8)
    fig.suptitle(title)
    fig.savefig(path, dpi=110)
