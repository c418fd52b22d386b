"""Where steps stand in the drawing of a flow: columns from left to right, each sorted so that few streams cross. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT, GAP_X, GAP_Y, EDGE = 196, 92, 72, 26, 16
_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Drawing:
    """The upper left corner of each step, and the size of the whole."""

    at: dict[str, tuple[float, float]]
    width: float
    height: float


def drawing_of(graph: Mapping[str, Any], width: float = WIDTH, height: float = HEIGHT, gap_x: float = GAP_X) -> Drawing:
    """Place the steps of a flow, or whatever else stands in columns, as boxes of a size."""
    columns: dict[int, list[str]] = {}
    for step in graph["steps"]:
        columns.setdefault(step["column"], []).append(step["name"])
    before, after = _neighbours(graph)
    order = [columns[number] for number in sorted(columns)]
    for turn in range(_ROUNDS):
        _sort(order if turn % 2 == 0 else order[::-1], before if turn % 2 == 0 else after)
    tallest = max((len(names) for names in order), default=0)
    total = tallest * height + max(0, tallest - 1) * GAP_Y
    at: dict[str, tuple[float, float]] = {}
    for number, names in enumerate(order):
        top = (total - len(names) * height - (len(names) - 1) * GAP_Y) / 2
        for row, name in enumerate(names):
            at[name] = (EDGE + number * (width + gap_x), EDGE + top + row * (height + GAP_Y))
    across = len(order) * width + max(0, len(order) - 1) * gap_x
    return Drawing(at, across + 2 * EDGE, total + 2 * EDGE)


def _neighbours(graph: Mapping[str, Any]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    before: dict[str, list[str]] = {}
    after: dict[str, list[str]] = {}
    for stream in graph["streams"]:
        before.setdefault(stream["to"], []).append(stream["from"])
        after.setdefault(stream["from"], []).append(stream["to"])
    return before, after


def _sort(columns: list[list[str]], neighbours: dict[str, list[str]]) -> None:
    """Sort each column by the mean height of what its steps are joined to in those that were sorted already."""
    height: dict[str, float] = {}
    for names in columns:
        target = {}
        for row, name in enumerate(names):
            heights = [height[each] for each in neighbours.get(name, ()) if each in height]
            target[name] = sum(heights) / len(heights) if heights else row - (len(names) - 1) / 2
        names.sort(key=target.__getitem__)
        height.update({name: row - (len(names) - 1) / 2 for row, name in enumerate(names)})
