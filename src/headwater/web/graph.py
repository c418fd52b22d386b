"""The drawing of a flow, live: one component in the browser, which gets only what to write where."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nicegui import ui

from headwater.web.figures import count, percent, rate
from headwater.web.layout import HEIGHT, WIDTH, drawing_of
from headwater.web.reading import StepNow, streams_now

_LONGEST = 20  #: characters of a name that have room
_THIN, _THICK = 1.5, 14.0
_STRIP = {"busy": "busy", "at work": "works", "waiting": "waiting", "held back": "held", "idle": "idle"}


class FlowGraph(ui.element, component="graph.js"):  # type: ignore[misc, call-arg]
    """Draws steps and streams; `on_pick` is called with the name of a step that somebody chooses."""

    def __init__(self, graph: Mapping[str, Any], on_pick: Callable[[str], Any]) -> None:
        super().__init__()
        self._graph = graph
        self._drawing = drawing_of(graph)
        self._props["width"], self._props["height"] = self._drawing.width, self._drawing.height
        self._props["node_width"], self._props["node_height"] = WIDTH, HEIGHT
        self._props["label"] = f"Steps of flow {graph['flow']}"
        self._props["nodes"], self._props["edges"] = [], []
        self.on("pick", lambda event: on_pick(event.args))

    def show(self, steps: Sequence[StepNow], sample: Mapping[str, Any], worst: str) -> None:
        """Show how the steps fare; the worst of them is framed."""
        self._props["nodes"] = [self._node(step, step.name == worst) for step in steps]
        self._props["edges"] = self._edges(streams_now(self._graph, sample))
        self.update()

    def _node(self, step: StepNow, worst: bool) -> dict[str, Any]:
        x, y = self._drawing.at[step.name]
        word = _word(step)
        moved = step.out_hz if step.role == "source" else step.in_hz
        return {
            "name": step.name,
            "x": x,
            "y": y,
            "title": step.name if len(step.name) <= _LONGEST else step.name[: _LONGEST - 1] + "…",
            "rate": rate(moved),
            "queue": f"queue {count(step.queue)}" if step.role != "source" else f"in hand {count(step.queue)}",
            "word": word,
            "strip": _STRIP[step.state],
            "busy": round(step.busy, 3),
            "waiting": round(step.waiting, 3),
            "held": round(step.held, 3),
            "worst": worst,
            "about": f"{step.name}, {step.role}: {word}, {rate(moved)}, {step.queue} records wait",
        }

    def _edges(self, rates: Sequence[float]) -> list[dict[str, Any]]:
        most = max(rates, default=0.0) or 1.0
        edges = []
        for number, (stream, hz) in enumerate(zip(self._graph["streams"], rates, strict=True)):
            x0, y0 = self._drawing.at[stream["from"]]
            x1, y1 = self._drawing.at[stream["to"]]
            x0, y0, y1 = x0 + WIDTH, y0 + HEIGHT / 2, y1 + HEIGHT / 2
            bend = max(24.0, (x1 - x0) / 2)
            edges.append(
                {
                    "key": number,
                    "path": f"M{x0} {y0} C{x0 + bend} {y0} {x1 - bend} {y1} {x1} {y1}",
                    "width": round(_THIN + (_THICK - _THIN) * hz / most, 1),
                    "label": rate(hz),
                    "half": 3.2 * len(rate(hz)) + 4,  # of the ground behind it
                    "x": (x0 + x1) / 2,
                    "y": (y0 + y1) / 2 - 9,
                }
            )
        return edges


def _word(step: StepNow) -> str:
    """Say how a step fares, in the room that there is."""
    match step.state:
        case "idle":
            return "idle"
        case "held back":
            return f"held back {percent(step.held)}"
        case "waiting":
            return f"waiting {percent(step.waiting)}"
    return "reads" if step.role == "source" else f"busy {percent(step.busy)}"
