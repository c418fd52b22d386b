"""Line charts as SVG text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

WIDTH, HEIGHT, MARGIN = 800, 600, 60
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf")

Points = Sequence[tuple[float, float]]


def line_chart(title: str, series: Mapping[str, Points], x_label: str) -> str:
    """Draw each series as a line over a common pair of axes; points may come in any order.

    >>> line_chart("a", {"x": [(0, 1.0), (1, 2.0)]}, "time").count("<polyline")
    1
    """
    points = [point for line in series.values() for point in line]
    low_x, high_x = _span([x for x, _ in points])
    low_y, high_y = _span([y for _, y in points])

    def place(point: tuple[float, float]) -> str:
        x = MARGIN + (point[0] - low_x) / (high_x - low_x) * (WIDTH - 2 * MARGIN)
        y = HEIGHT - MARGIN - (point[1] - low_y) / (high_y - low_y) * (HEIGHT - 2 * MARGIN)
        return f"{x:.1f},{y:.1f}"

    right, bottom = WIDTH - MARGIN, HEIGHT - MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}">',
        f'<text x="{WIDTH / 2}" y="30" text-anchor="middle">{escape(title)}</text>',
        f'<path d="M{MARGIN},{MARGIN}V{bottom}H{right}" fill="none" stroke="black"/>',
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 15}" text-anchor="middle">{escape(x_label)}</text>',
        f'<text x="{MARGIN}" y="{bottom + 18}">{low_x:g}</text>',
        f'<text x="{right}" y="{bottom + 18}" text-anchor="end">{high_x:g}</text>',
        f'<text x="{MARGIN - 6}" y="{bottom}" text-anchor="end">{low_y:g}</text>',
        f'<text x="{MARGIN - 6}" y="{MARGIN}" text-anchor="end">{high_y:g}</text>',
    ]
    for number, (name, line) in enumerate(series.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        drawn = " ".join(place(point) for point in sorted(line))
        parts.append(f'<polyline points="{drawn}" fill="none" stroke="{colour}"/>')
        at = MARGIN + 20 * number
        parts.append(f'<text x="{right}" y="{at}" fill="{colour}" text-anchor="end">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _span(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values, default=0.0), max(values, default=1.0)
    return (low, high) if high > low else (low - 0.5, high + 0.5)
