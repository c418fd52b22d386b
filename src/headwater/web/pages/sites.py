"""The Sites page: the net with the parts of the flow on it, what crosses it, moves as they happen; move and drain."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from headwater.web.api import Api
from headwater.web.figures import count, milliseconds, rate
from headwater.web.frame import Frame, add_page, empty, title, title_with_figure
from headwater.web.netmap import NetMap
from headwater.web.site_panel import SitePanel
from headwater.web.site_words import figures_of, moves_of, prices_of, verdict
from headwater.web.table import Column, Table

_SITES = (
    Column("site", "text"),
    Column("state", "text"),
    Column("steps", "wide"),
    Column("in", about="records that its part has read, from sources and bridges"),
    Column("out", about="records that its part has written, to sinks and bridges"),
    Column("restarts"),
    Column("load", about="processes that want a core, over the last minute"),
    Column("price"),
    Column("carbon"),
    Column("cores promised"),
    Column("windows kept", about="of what was promised to its part of the flow"),
    Column("why", "wide"),
)
_LINKS = (
    Column("from", "text"),
    Column("to", "text"),
    Column("streams", "wide"),
    Column("records/s", about="over the last five seconds, as the sender counts them"),
    Column("records", about="in all, since its part was started"),
    Column("apart", about="the latency between them, as the net has it"),
)
_MOVES = (
    Column("at", "text"),
    Column("by", "text"),
    Column("steps", "wide"),
    Column("why", "wide"),
    Column("state", "wide"),
    Column("gap", about="from when the old parts were told to stop until all new ones were at work"),
    Column("expected, and came", "wide"),
)

_DEPLOY = "headwater plan flow.py net.toml --output plan.json\nheadwater deploy plan.json"
_JOIN = "headwater site token barn --output barn.token\nheadwater site --token barn.token --name barn --join HOST:PORT"


def add(api: Api) -> None:
    """Register the page."""
    add_page(api, "sites", 1.0, _SitesPage)


class _SitesPage:
    """The page of one viewer."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self._waiting: list[str] | None = None  #: sites that the page has told about
        self._side = SitePanel(frame)
        with frame.body:
            self._verdict = ui.element("div").classes("hw-verdict").props("data-figure=verdict")
            with self._verdict:
                self._summary = ui.label().classes("hw-says")
                self._advice = ui.label().classes("hw-soft")
            self._none = ui.element("div")
            self._card = ui.element("section").classes("hw-card")
            with self._card:
                with ui.element("div").classes("hw-row"):
                    self._policy = title_with_figure("Sites", "policy")
                with ui.element("div").classes("hw-scroll"):
                    self._map = NetMap(self._side.open)
                with ui.element("div").classes("hw-scroll").style("margin-top: 14px"):
                    self._sites = Table(_SITES, self._side.open, spare=True)
            self._links = _Card("Links", "Nothing crosses between sites: all steps are at one.", _LINKS)
            self._moves = _Card(
                "Moves",
                "Nothing was moved since the coordinator was started. Choose a site, to move or drain it; with --policy "
                "min-cost, or another, steps move by themselves.",
                _MOVES,
            )

    async def refresh(self) -> None:
        """Show the sites as they are now."""
        document = await self.frame.api.get("/sites", 0.9)
        summary, advice, grave = verdict(document)
        self._summary.set_text(summary)
        self._advice.set_text(advice)
        self._verdict.classes(add="grave" if grave else "", remove="" if grave else "grave")
        self._show_empty(document)
        flow = document["flow"]
        self._policy.set_text(_policy(flow))
        self._map.show(document)
        prices = prices_of(document)
        self._sites.show([(site["name"], _site(site, prices)) for site in document["sites"]])
        self._links.show([(f"{link['from']} → {link['to']}", _link(link)) for link in document["links"]])
        self._moves.show([] if flow is None else moves_of(flow))
        self._side.show(document)

    def _show_empty(self, document: Any) -> None:
        nobody = not document["sites"]
        self._card.set_visibility(not nobody)
        self._none.set_visibility(nobody)
        waiting = [place["name"] for place in (document["net"] or {"sites": []})["sites"]]
        if nobody and self._waiting != waiting:
            self._waiting = waiting
            self._none.clear()
            with self._none:
                empty(
                    f"{len(waiting)} sites wait for a coordinator" if waiting else "No site has joined",
                    f"{', '.join(waiting)}. A plan says what each runs:" if waiting else "Each dials the coordinator:",
                    _DEPLOY if waiting else _JOIN,
                )


class _Card:
    """A table with a heading, and what is said while it is empty."""

    def __init__(self, heading: str, advice: str, columns: tuple[Column, ...]) -> None:
        with ui.element("section").classes("hw-card"):
            title(heading)
            self._advice = ui.label(advice).classes("hw-soft")
            with ui.element("div").classes("hw-scroll") as self._scroll:
                self._table = Table(columns, spare=True)

    def show(self, rows: list[tuple[str, list[str]]]) -> None:
        """Show rows, or what would make some."""
        self._advice.set_visibility(not rows)
        self._scroll.set_visibility(bool(rows))
        self._table.show(rows)


def _policy(flow: Any) -> str:
    if flow is None:
        return ""
    policy = flow.get("policy")
    if policy is None:
        return f"{flow['name']}: moved by hand alone"
    promise = f", promised {policy['contract']}" if policy["contract"] else ""
    return f"{flow['name']}: policy {policy['name']}{promise}, {policy['moves']} moves"


def _site(site: Any, prices: dict[str, float]) -> list[str]:
    figures = figures_of(site, prices)
    counts = [f"{site.get(name, 0):,}" for name in ("records_in", "records_out", "restarts")]
    texts = [figures[name] for name in ("load", "price", "carbon", "promised", "kept")]
    return [site["name"], site["state"], ", ".join(site["steps"]), *counts, *texts, site["why"]]


def _link(link: Any) -> list[str]:
    return [
        link["from"],
        link["to"],
        ", ".join(stream["stream"] for stream in link["streams"]),
        rate(link["hz"]),
        count(sum(stream["records"] for stream in link["streams"])),
        "" if link["latency_s"] is None else milliseconds(1000 * link["latency_s"]),
    ]
