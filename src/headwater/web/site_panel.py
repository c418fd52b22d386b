"""What is known of one site, beside the page, and what can be done about it: move steps, drain it, open it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nicegui import ui

from headwater.web.figures import count, size
from headwater.web.frame import Frame, title
from headwater.web.side import Side
from headwater.web.site_words import figures_of, prices_of
from headwater.web.table import Column, Table

_PAIR = (Column("", "text"), Column("", "wide"))
_POLICY = "where the policy wants"
_FIELD = 'dense outlined options-dense popup-content-class="hw-popup"'


class SitePanel:
    """Opens at the right for one site at a time; Escape closes it."""

    def __init__(self, frame: Frame) -> None:
        self._frame, self._api = frame, frame.api
        self._site = ""
        self._document: Mapping[str, Any] = {"flow": None, "sites": [], "net": None}
        self._side = Side("site-title")
        with self._side:
            with ui.element("div").classes("hw-scroll"):
                self._figures = Table(_PAIR)
            title("Move steps")
            self._about = ui.label().classes("hw-soft hw-small")
            with ui.element("div").classes("hw-row"):
                self._steps = ui.select([], label="Steps", multiple=True).props(_FIELD).style("min-width: 220px")
                self._to = ui.select([], label="To site").props(_FIELD).style("min-width: 180px")
                ui.button("Move", on_click=self._move).props("no-caps unelevated").classes("hw-go")
            title("Drain")
            ui.label("Every step that can be elsewhere leaves; sinks stay, and most sources.").classes(
                "hw-soft hw-small"
            )
            with ui.element("div").classes("hw-row"):
                self._drain_to = ui.select([], label="To").props(_FIELD).style("min-width: 220px")
                ui.button("Drain", on_click=self._drain).props("no-caps outline")
                self._open = ui.button("Open again", on_click=self._reopen).props("no-caps outline")

    def open(self, site: str) -> None:
        """Show a site."""
        if site not in {each["name"] for each in self._document["sites"]}:
            return
        self._site = site
        self._steps.set_value([])
        self._write()
        self._side.open()

    def show(self, document: Mapping[str, Any]) -> None:
        """Take how the sites fare now."""
        self._document = document
        if self._side.is_open:
            self._write()

    def _write(self) -> None:
        site = next((each for each in self._document["sites"] if each["name"] == self._site), None)
        if site is None:
            self._side.close()
            return
        self._side.name(site["name"])
        self._figures.show(
            [(label, (label, text)) for label, text in _figures(site, prices_of(self._document)).items() if text]
        )
        others = [each["name"] for each in self._document["sites"] if each["name"] != self._site and each["here"]]
        policy = (self._document["flow"] or {}).get("policy") or {}
        _offer(self._steps, site["steps"])
        _offer(self._to, others)
        _offer(self._drain_to, [_POLICY, *others] if policy else others)
        self._open.set_visibility(self._site in policy.get("drained", ()))
        self._about.set_text(
            "Steps take their state along; nothing is lost or comes twice. All parts stand still for a moment."
            if site["steps"]
            else "No step of the flow runs here. Choose the site that one runs at, to move it here."
        )

    async def _move(self) -> None:
        if not self._steps.value or not self._to.value:
            ui.notify("Choose steps, and the site where they should run.", type="warning")
            return
        body = {"steps": list(self._steps.value), "site": self._to.value}
        if await self._frame.perform(lambda: self._api.post("/sites/move", body), "The move has begun."):
            self._side.close()

    async def _drain(self) -> None:
        to = self._drain_to.value
        if not to:
            ui.notify("Choose where its steps should go.", type="warning")
            return
        body = {"site": self._site, "to": "" if to == _POLICY else to}
        if await self._frame.perform(lambda: self._api.post("/sites/drain", body), "The site is being drained."):
            self._side.close()

    async def _reopen(self) -> None:
        body = {"site": self._site}
        await self._frame.perform(lambda: self._api.post("/sites/open", body), "The policy may use it again.")


def _offer(choice: Any, options: list[str]) -> None:
    """Offer what there is to choose from now; what was chosen stays so while it is there."""
    if choice.options == options:
        return
    if isinstance(choice.value, list):
        choice.set_options(options, value=[each for each in choice.value if each in options])
    else:
        choice.set_options(options, value=choice.value if choice.value in options else None)


def _figures(site: Mapping[str, Any], prices: Mapping[str, float]) -> dict[str, str]:
    figures = figures_of(site, prices)
    return {
        "state": site["state"],
        "why": site["why"],
        "steps": ", ".join(site["steps"]),
        "address": site.get("address", ""),
        "load": figures["load"],
        "memory": size(site["memory_bytes"]) if "memory_bytes" in site else "",
        "free on its disk": "" if site.get("free_bytes") is None else size(site["free_bytes"]),
        "price": figures["price"],
        "carbon": figures["carbon"],
        "cores promised": figures["promised"],
        "windows kept": figures["kept"],
        "in, out": f"{count(site.get('records_in', 0))}, {count(site.get('records_out', 0))}",
        "restarts": str(site.get("restarts", 0)),
    }
