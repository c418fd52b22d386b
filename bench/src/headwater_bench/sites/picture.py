"""Figure 12: the throughput of each flow, where it runs, and what that costs, over time; and the same as serverless."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headwater_bench.experiments.plots import figure
from headwater_bench.sites.account import Moment, cost, least, where

_COLOURS = {"etl": "#1f77b4", "stats": "#e0a100", "pred": "#2ca02c"}
_PLACES = ("cloud", "edge3", "edge2", "edge1")
_PRICED = {"cloud": "cloud\n(1.00)", "edge3": "edge3\n(0.75)", "edge2": "edge2\n(0.50)", "edge1": "edge1\n(0.25)"}
_LINE = "#999999"


def draw(
    moments: Sequence[Moment],
    done: Mapping[str, Callable[[float], float]],
    needed: Mapping[str, float],
    acts: Sequence[tuple[float, str]],
    beside: Mapping[str, Any] | None,
    path: Path,
) -> None:
    """Draw it to a PNG file: by messages `done` up to a moment, and `acts`, which are moments and what happened then."""
    fig, axes = figure(4 if beside else 3, 1, 10, 11 if beside else 8.5)
    rows = [row[0] for row in axes]
    start_s, end_s = moments[0].at_s, moments[-1].at_s
    times, places = [m.at_s - start_s for m in moments], where(moments)  # what is about to move still runs where it was
    for number, (name, done_at) in enumerate(done.items()):
        edges = np.arange(start_s, end_s, 1.0)
        messages = np.array([done_at(at_s) for at_s in edges])
        rows[0].plot(edges[1:] - start_s, np.diff(messages), color=_COLOURS[name], label=name.upper(), lw=1.2)
        at = [(time, _PLACES.index(str(sites[name]))) for time, sites in zip(times, places, strict=True) if sites[name]]
        shift = 0.15 * (number - 1)
        rows[1].plot([x for x, _ in at], [y + shift for _, y in at], "s", color=_COLOURS[name], markersize=3)
    rows[2].plot(times, [cost(sites, needed) for sites in places], color="#444444", label="paid")
    rows[2].plot(times, [least(m.lent, m.here, needed) for m in moments], ":", color="#d62728", label="least possible")
    for at_s, what in acts:
        for row in rows[:3]:
            row.axvline(at_s - start_s, color=_LINE, linestyle="--", linewidth=1)
        words = what.replace(" at ", "\nat ")
        rows[0].annotate(words, (at_s - start_s, 1.02), xycoords=("data", "axes fraction"), fontsize=8, va="bottom")
    rows[0].set(
        ylabel="messages done\neach second", ylim=(0, None), title="Promised rates under the policy min-cost\n\n"
    )
    rows[0].legend(fontsize=8, ncols=3, loc="lower right")
    rows[1].set(ylabel="where it runs\n(price of a core)", yticks=range(len(_PLACES)), ylim=(-0.5, len(_PLACES) - 0.5))
    rows[1].set_yticklabels([_PRICED[place] for place in _PLACES], fontsize=8)
    rows[2].set(ylabel="price of the cores\nheld, an hour", xlabel="seconds", ylim=(0, None))
    rows[2].legend(fontsize=8, loc="upper right")
    for row in rows[:3]:
        row.set_xlim(0, end_s - start_s)
    if beside:
        _draw_serverless(rows[3], beside)
    fig.savefig(path, dpi=110)


def _draw_serverless(axis: Any, beside: Mapping[str, Any]) -> None:
    for name, arrived in beside["arrived"].items():
        axis.plot(np.arange(len(arrived)) + 0.5, arrived, color=_COLOURS[name], lw=1.2)
    for number, what in enumerate(("alone at edge1", "SCAN at edge1", "more SCAN")):
        at_s = number * beside["act_s"]
        axis.axvline(at_s, color=_LINE, linestyle="--", linewidth=1)
        axis.annotate(what, (at_s, 1.02), xycoords=("data", "axes fraction"), fontsize=8, va="bottom")
    title = f"The same as best-effort serverless: {beside['kept']:.0%} of the windows kept\n"
    axis.set(ylabel="messages done\neach second", xlabel="seconds", ylim=(0, None), title=title)
