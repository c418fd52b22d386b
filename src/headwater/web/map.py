"""Where sites stand on the page: as the net has them, where it has coordinates, else in columns along the streams. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.web.layout import EDGE, Drawing, drawing_of

WIDTH, HEIGHT = 238, 118
_APART = 34.0  #: between two boxes, for a line and its label
_ROUNDS = 400
_LONGEST = 5  #: sites in a column that no stream puts there
_BROAD, _HIGH = 1240.0, 900.0  #: what a net with coordinates is spread over, as far as boxes leave it so
_LABEL = 136.0  #: between columns, for what is written on a line

_BENDS = (0.0, 45.0, -45.0, 90.0, -90.0, 150.0, -150.0)  #: that are tried, to pass a site by
_PARTS = 48  #: of which a line is drawn

Point = tuple[float, float]


def map_of(sites: Sequence[Mapping[str, Any]], links: Iterable[tuple[str, str]], net: Mapping[str, Any]) -> Drawing:
    """Place the sites that a coordinator knows by what the net says of them; one that it does not know has a place too."""
    names = [site["name"] for site in sites]
    places = {place["name"]: place for place in net["sites"]}
    located = [name for name in names if places.get(name, {}).get("x") is not None]
    if names and located == names:
        return _geographic({name: (places[name]["x"], places[name]["y"]) for name in names})
    return _schematic(names, list(links), {name for name, place in places.items() if place["cloud"]})


def _geographic(at: Mapping[str, Point]) -> Drawing:
    """Keep directions and distances as far as boxes leave room: those that would overlap are pushed apart."""
    xs, ys = [x for x, _ in at.values()], [y for _, y in at.values()]
    span_x, span_y = max(xs) - min(xs), max(ys) - min(ys)
    scale = min((_BROAD - WIDTH) / span_x if span_x else math.inf, (_HIGH - HEIGHT) / span_y if span_y else math.inf)
    scale = 0.0 if math.isinf(scale) else scale
    # north is up: y of a net grows upwards, and that of a page downwards
    boxes = {name: [(x - min(xs)) * scale, (max(ys) - y) * scale] for name, (x, y) in at.items()}
    _push_apart(list(boxes.values()))
    left, top = (min(box[axis] for box in boxes.values()) for axis in (0, 1))
    corners = {name: (EDGE + x - left, EDGE + y - top) for name, (x, y) in boxes.items()}
    width = max(x for x, _ in corners.values()) + WIDTH + EDGE
    return Drawing(corners, width, max(y for _, y in corners.values()) + HEIGHT + EDGE)


def _push_apart(boxes: list[list[float]]) -> None:
    need = (WIDTH + _APART, HEIGHT + _APART)
    for _ in range(_ROUNDS):
        clear = True
        for number, one in enumerate(boxes):
            for other in boxes[number + 1 :]:
                over = [need[axis] - abs(one[axis] - other[axis]) for axis in (0, 1)]
                if min(over) <= 1e-6:
                    continue
                clear = False
                axis = 0 if over[0] / need[0] < over[1] / need[1] else 1
                push = over[axis] / 2 * (1 if one[axis] > other[axis] else -1)
                one[axis] += push
                other[axis] -= push
        if clear:
            return


def _schematic(names: Sequence[str], links: Sequence[tuple[str, str]], clouds: set[str]) -> Drawing:
    column = _columns(names, links)
    idle = [name for name in names if name not in column]
    first = max(column.values(), default=-1) + 1
    order = [name for name in idle if name not in clouds] + [name for name in idle if name in clouds]
    column |= {name: first + number // _LONGEST for number, name in enumerate(order)}
    steps = [{"name": name, "column": column[name]} for name in names]
    streams = [{"from": a, "to": b} for a, b in links if a in column and b in column]
    return drawing_of({"steps": steps, "streams": streams}, WIDTH, HEIGHT, _LABEL)


def _columns(names: Sequence[str], links: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Return a column for each site that streams join: behind all that send to it, but for ways that lead back."""
    edges = [(a, b) for a, b in links if a in names and b in names]
    after: dict[str, list[str]] = {name: [] for name in names if any(name in pair for pair in edges)}
    for a, b in edges:
        if not _leads_to(after, b, a):
            after[a].append(b)
    column = dict.fromkeys(after, 0)
    for _ in column:  # the longest way there has fewer steps than there are sites
        for a, behind in after.items():
            for b in behind:
                column[b] = max(column[b], column[a] + 1)
    return column


def _leads_to(after: Mapping[str, Sequence[str]], one: str, other: str) -> bool:
    """Say whether a way leads from a site to another."""
    visited, pending = {one}, [one]
    while pending:
        for name in after[pending.pop()]:
            if name not in visited:
                visited.add(name)
                pending.append(name)
    return other in visited


@dataclass(frozen=True, slots=True)
class Way:
    """A line from the box of a site to that of another, and where on it there is room for a label."""

    points: tuple[Point, ...]
    label: Point

    @property
    def path(self) -> str:
        """The line as SVG draws it."""
        return "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in self.points)


def way_of(drawing: Drawing, one: str, other: str, aside: float = 0.0) -> Way:
    """Return a line between two sites, bent by so much to its right; more, where it would run behind a third one."""
    others = [at for name, at in drawing.at.items() if name not in (one, other)]
    ways = [_arc(drawing, one, other, aside + bend) for bend in _BENDS]
    best = min(ways, key=lambda points: sum(_hits(point, others, 4.0) for point in points))  # the first of equals
    return Way(best, _label_point(best, list(drawing.at.values())))


def _arc(drawing: Drawing, one: str, other: str, bend: float) -> tuple[Point, ...]:
    a, b = ((drawing.at[name][0] + WIDTH / 2, drawing.at[name][1] + HEIGHT / 2) for name in (one, other))
    length = math.hypot(b[0] - a[0], b[1] - a[1]) or 1.0
    # the middle of the curve is half as far aside as what pulls it there
    pull = (
        (a[0] + b[0]) / 2 - (b[1] - a[1]) / length * 2 * bend,
        (a[1] + b[1]) / 2 + (b[0] - a[0]) / length * 2 * bend,
    )
    curve = [_on_curve(a, pull, b, step / _PARTS) for step in range(_PARTS + 1)]
    ends = [drawing.at[one], drawing.at[other]]
    outside = [point for point in curve if not _hits(point, ends, 0.0)]
    return tuple(outside) if len(outside) > 1 else (a, b)


def _on_curve(a: Point, pull: Point, b: Point, t: float) -> Point:
    u = 1 - t
    return u * u * a[0] + 2 * u * t * pull[0] + t * t * b[0], u * u * a[1] + 2 * u * t * pull[1] + t * t * b[1]


def _hits(point: Point, boxes: Iterable[Point], room: float, tall: float | None = None) -> bool:
    """Say whether a point is in a box, or nearer to one than there should be room, sideways and up or down."""
    up = room if tall is None else tall
    return any(x - room < point[0] < x + WIDTH + room and y - up < point[1] < y + HEIGHT + up for x, y in boxes)


def _label_point(points: Sequence[Point], boxes: Sequence[Point]) -> Point:
    """Return the point nearest to the middle at which a label covers no box."""
    middle = (len(points) - 1) / 2
    order = sorted(range(len(points)), key=lambda at: abs(at - middle))
    free = (at for at in order if not _hits(points[at], boxes, _LABEL / 2 - 10, 14.0))
    return points[next(free, order[0])]
