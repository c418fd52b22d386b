"""A picture of a placement: the flow over the net, one box per zone, one column per depth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from headwater.errors import PlacementError
from headwater.place.placement import Placement
from headwater.place.problem import Problem


def draw(placement: Placement, path: str | Path) -> None:
    """Draw a placement to a PNG or SVG file: steps stand in the zone and device that hosts them."""
    if placement.device is None:
        raise PlacementError(f"there is nothing to draw: {placement.reason}")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    problem, net = placement.problem, placement.problem.net
    depth = _depths(problem)
    hosts = sorted(set(placement.device.tolist()), key=lambda d: (bool(net.is_cloud[net.class_of[d]]), d))
    row = {d: i for i, d in enumerate(hosts)}
    figure = Figure(figsize=(2.2 + 1.5 * (max(depth) + 1), 1.2 + 0.75 * len(hosts)), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.subplots()
    _bands(axes, placement, hosts)
    place = _positions(problem, depth, [row[int(d)] for d in placement.device])
    seconds = placement.score.stream_s
    ends = placement.device[problem.stream_from], placement.device[problem.stream_to]
    hosts_of = [(int(a), int(b)) for a, b in zip(*ends, strict=True)]
    for e in range(len(problem.stream_from)):
        a, b = place[int(problem.stream_from[e])], place[int(problem.stream_to[e])]
        far = seconds[e] > 0
        axes.annotate(
            "",
            xy=b,
            xytext=a,
            arrowprops={
                "arrowstyle": "->",
                "color": "#b03a2e" if far else "#566573",
                "lw": 1.4,
                "shrinkA": 9,
                "shrinkB": 9,
            },
        )
        if far and problem.net.zone_of(hosts_of[e][0]) != problem.net.zone_of(hosts_of[e][1]):
            middle = (a[0] + b[0]) / 2, (a[1] + b[1]) / 2
            axes.text(*middle, f"{1e3 * seconds[e]:.1f} ms", fontsize=7, color="#b03a2e", ha="center", va="bottom")
    for i, (x, y) in enumerate(place):
        axes.plot(x, y, "o", ms=13, color="#2e86c1" if problem.pinned[i] < 0 else "#1b4f72", zorder=3)
        axes.text(x, y - 0.28, problem.steps[i], fontsize=7, ha="center", va="top", zorder=4)
    axes.set_title(f"{problem.name}: {placement.objective} = {placement.value:.4g} ({placement.status})", fontsize=9)
    axes.set_ylim(-0.7, len(hosts) - 0.3)
    axes.set_xlim(-1.6, max(depth) + 0.6)
    axes.axis("off")
    figure.savefig(path, dpi=130)


def _bands(axes: Any, placement: Placement, hosts: list[int]) -> None:
    net = placement.problem.net
    for i, d in enumerate(hosts):
        cloud = bool(net.is_cloud[net.class_of[d]])
        axes.axhspan(i - 0.48, i + 0.42, color="#d6eaf8" if cloud else "#e9f7ef", zorder=0)
        label = f"{net.device_name(d)}\n{net.classes[int(net.class_of[d])].name}"
        axes.text(-1.55, i, label, fontsize=7, va="center")


def _depths(problem: Problem) -> list[int]:
    depth = [0] * len(problem.steps)
    for step in problem.order:
        for e in problem.inputs[step]:
            depth[step] = max(depth[step], depth[int(problem.stream_from[e])] + 1)
    return depth


def _positions(problem: Problem, depth: list[int], rows: list[int]) -> list[tuple[float, float]]:
    """A place per step: column by depth, row by device; steps that would coincide are set apart."""
    cells: dict[tuple[int, int], list[int]] = {}
    for i in range(len(problem.steps)):
        cells.setdefault((depth[i], rows[i]), []).append(i)
    out = [(0.0, 0.0)] * len(problem.steps)
    for (x, y), steps in cells.items():
        shifts = np.linspace(-0.3, 0.3, len(steps)) if len(steps) > 1 else np.zeros(1)
        for i, shift in zip(steps, shifts.tolist(), strict=True):
            out[i] = (x + shift, float(y))
    return out
