"""The map of a net, live: sites with what they run, links as wide as what crosses them, moves while they happen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nicegui import ui

from headwater.web.figures import milliseconds, rate
from headwater.web.layout import Drawing
from headwater.web.map import HEIGHT, WIDTH, Way, map_of, way_of
from headwater.web.site_words import figures_of, is_over, prices_of, strip_of

_LONGEST, _STEPS = 24, 34  #: characters that have room
_THIN, _THICK, _ASIDE = 1.5, 8.0, 14.0


class NetMap(ui.element, component="netmap.js"):  # type: ignore[misc, call-arg]
    """Draws sites and links; `on_pick` is called with the name of a site that somebody chooses."""

    def __init__(self, on_pick: Callable[[str], Any]) -> None:
        super().__init__()
        self._key: Any = None
        self._drawing = Drawing({}, 0.0, 0.0)
        self._ways: dict[tuple[str, str, float], Way] = {}
        self._props["node_width"], self._props["node_height"] = WIDTH, HEIGHT
        self._props["nodes"], self._props["edges"], self._props["label"] = [], [], ""
        self._props["width"], self._props["height"] = 0, 0
        self.on("pick", lambda event: on_pick(event.args))

    def show(self, document: Mapping[str, Any]) -> None:
        """Show what a coordinator says; sites stay where they are for as long as there are no others."""
        sites, links = document["sites"], document["links"]
        net = document["net"] or {"name": "", "sites": []}
        self._draw(sites, [(link["from"], link["to"]) for link in links], net)
        self._props["label"] = f"Sites of net {net['name']}"
        prices = prices_of(document)
        self._props["nodes"] = [self._node(site, prices) for site in sites]
        self._props["edges"] = [*self._links(links), *self._moves(document["flow"])]
        self.update()

    def _draw(self, sites: list[Any], pairs: list[tuple[str, str]], net: Mapping[str, Any]) -> None:
        key = ([site["name"] for site in sites], pairs, net)
        if self._key != key:
            self._key, self._drawing, self._ways = key, map_of(sites, pairs, net), {}
            self._props["width"], self._props["height"] = self._drawing.width, self._drawing.height

    def _way(self, one: str, other: str, aside: float) -> Way:
        key = (one, other, aside)
        if key not in self._ways:
            self._ways[key] = way_of(self._drawing, one, other, aside)
        return self._ways[key]

    def _node(self, site: Mapping[str, Any], prices: Mapping[str, float]) -> dict[str, Any]:
        x, y = self._drawing.at[site["name"]]
        figures = figures_of(site, prices)
        steps = ", ".join(site["steps"])
        return {
            "name": site["name"],
            "x": x,
            "y": y,
            "title": _short(site["name"], _LONGEST),
            "word": site["state"],
            "strip": strip_of(site),
            "steps": _short(steps, _STEPS) if steps else "no steps",
            "load": f"load {figures['load']}" if figures["load"] else "",
            "cost": " · ".join(figures[name] for name in ("price", "carbon") if figures[name]),
            "about": f"site {site['name']}, {site['state']}: {steps or 'no steps'}",
        }

    def _links(self, links: list[Any]) -> list[dict[str, Any]]:
        most = max((link["hz"] for link in links), default=0.0) or 1.0
        both = {(link["to"], link["from"]) for link in links}
        edges = []
        for link in links:
            one, other = link["from"], link["to"]
            if one not in self._drawing.at or other not in self._drawing.at:
                continue
            way = self._way(one, other, _ASIDE if (one, other) in both else 0.0)
            latency = "" if link["latency_s"] is None else f" · {milliseconds(1000 * link['latency_s'])}"
            width = round(_THIN + (_THICK - _THIN) * link["hz"] / most, 1)
            streams = ", ".join(stream["stream"] for stream in link["streams"])
            about = f"{one} to {other}: {streams or 'nothing yet'}"
            edges.append(_edge(f"{one} → {other}", way, f"{rate(link['hz'])}{latency}", about, width))
        return edges

    def _moves(self, flow: Mapping[str, Any] | None) -> list[dict[str, Any]]:
        """Draw what is on its way from site to site."""
        steps_of: dict[tuple[str, str], list[str]] = {}
        for move in (flow or {}).get("moves", []):
            for step, (one, other) in ({} if is_over(move) else move["steps"]).items():
                if one in self._drawing.at and other in self._drawing.at:
                    steps_of.setdefault((one, other), []).append(step)
        return [
            _edge(f"move {one} → {other}", self._way(one, other, -2 * _ASIDE), _short(", ".join(steps), 22), "", 3.0)
            | {"moves": True}
            for (one, other), steps in steps_of.items()
        ]


def _edge(key: str, way: Way, label: str, about: str, width: float) -> dict[str, Any]:
    return {
        "key": key,
        "path": way.path,
        "x": round(way.label[0], 1),
        "y": round(way.label[1] + 4, 1),
        "label": label,
        "half": 3.5 * len(label) + 6,  # of the ground behind it
        "about": about,
        "width": width,
        "moves": False,
    }


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
