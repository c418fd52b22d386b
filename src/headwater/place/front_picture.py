"""A picture of a front: what one measure costs in another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwater.errors import PlacementError
from headwater.place.placement import Placement

UNITS = {
    "critical": "s on the slowest path",
    "aggregate": "s on all paths",
    "wan": "bytes/s between zones",
    "energy": "largest share of a battery's budget",
    "money": "per hour",
    "devices": "devices in use",
}


def draw(front: Sequence[Placement], one: str, other: str, path: str | Path) -> None:
    """Draw the placements of a front to a PNG or SVG file; what lies above and right of the line is worse in both."""
    if not front:
        raise PlacementError("there is nothing to draw: no placement was found")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.subplots()
    points = sorted((placement.score.measure(other), placement.score.measure(one)) for placement in front)
    axes.step(*zip(*points, strict=True), where="post", color="#9aa5b1", linewidth=1)
    axes.plot(*zip(*points, strict=True), "o", color="#1f77b4")
    for x, y in points:
        axes.annotate(f"{x:.4g}, {y:.4g}", (x, y), textcoords="offset points", xytext=(6, 5), fontsize=7)
    axes.set(
        xlabel=f"{other}: {UNITS[other]}",
        ylabel=f"{one}: {UNITS[one]}",
        title=f"{front[0].problem.name}: {one} and {other}",
    )
    axes.margins(x=0.15, y=0.12)
    figure.savefig(path, dpi=130)
