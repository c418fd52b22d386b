"""What all pages share: the head with the flow and how it fares, the links to other pages, a line for what is wrong."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol
from urllib.parse import quote

from nicegui import ui
from starlette.requests import Request

from headwater.web.api import Api, ApiError, of_flow
from headwater.web.figures import milliseconds
from headwater.web.theme import DARK, style, theme_named

#: the pages, in the order of their tabs: path, title, whether it is about one flow
PAGES = (
    ("flow", "Flow", True),
    ("time", "Time", True),
    ("promises", "Promises", False),
    ("dead", "Dead letters", True),
    ("query", "Query", True),
    ("plan", "Plan", False),
    ("sites", "Sites", False),
)
#: those that are about one flow
OF_FLOWS = {path for path, _, of_one in PAGES if of_one}
_THEME = "headwater_theme"
_SWITCH = """
    document.cookie = "headwater_theme=%s; Path=/; SameSite=Strict; Max-Age=31536000";
    location.reload();
"""
_LOG_OUT = """
    const form = document.createElement("form");
    form.method = "post"; form.action = "/logout"; document.body.append(form); form.submit();
"""


class Frame:
    """One page that one viewer looks at; what it shows goes into `body`."""

    def __init__(self, api: Api, request: Request, page: str, flow: str = "") -> None:
        self.api, self.page, self.flow = api, page, flow
        self.theme = theme_named(request.cookies.get(_THEME, ""))
        ui.dark_mode(self.theme is DARK)
        ui.colors(primary=self.theme.colours[0])
        ui.add_head_html(f"<style>{style()}</style>")
        title = next(title for path, title, _ in PAGES if path == page)
        ui.page_title(f"{title} · {flow} · Headwater" if flow else f"{title} · Headwater")
        ui.query(".nicegui-content").classes("hw-page")
        self._head()
        self.body = ui.element("main").classes("hw-main")
        with self.body:
            self._trouble = ui.label().classes("hw-trouble").props("role=alert")
            self._trouble.set_visibility(False)
            self._refusal = ui.label().classes("hw-trouble").props("role=status data-figure=refused")
            self._refusal.set_visibility(False)

    def _head(self) -> None:
        with ui.element("header").classes("hw-top"):
            ui.link("Headwater", "/").classes("hw-brand")
            self._flows = (
                ui.select([], on_change=lambda event: self._go(event.value))
                .props('dense outlined options-dense aria-label="Flow" popup-content-class="hw-popup"')
                .style("min-width: 160px")
            )
            self._state = ui.label("").classes("hw-pill")
            self._flows.set_visibility(bool(self.flow))
            ui.element("div").classes("hw-grow")
            other, icon = ("light", "light_mode") if self.theme is DARK else ("dark", "dark_mode")
            ui.button(icon=icon, on_click=lambda: ui.run_javascript(_SWITCH % other)).props(
                f'flat round dense aria-label="Switch to {other}"'
            )
            ui.button("Log out", on_click=lambda: ui.run_javascript(_LOG_OUT)).props("flat dense no-caps")
        with ui.element("nav").classes("hw-tabs").props('aria-label="Pages"'):
            for path, title, of_one in (each for each in PAGES if each[0] in self.api.pages):
                to = f"/{path}/{quote(self.flow, safe='')}" if of_one else f"/{path}"
                link = ui.link(title, to if self.flow or not of_one else f"/?page={path}").classes("hw-tab")
                if path == self.page:
                    link.classes("here").props("aria-current=page")

    def _go(self, flow: str | None) -> None:
        if flow and flow != self.flow:
            page = self.page if self.page in OF_FLOWS else "flow"
            ui.navigate.to(f"/{page}/{quote(flow, safe='')}")

    async def _look(self) -> None:
        if not self.flow:
            return
        flows = await self.api.get("/flows", 0.9)
        names = [each["name"] for each in flows]
        if self._flows.options != names:
            self._flows.set_options(names)
        if self.flow in names and self._flows.value != self.flow:
            self._flows.set_value(self.flow)
        status = next((each for each in flows if each["name"] == self.flow), None)
        if status is None:
            self._state.set_text("not there")
            return
        refusal = status["change_refused"]
        self._refusal.set_text(f"The file has changed and cannot take over; the flow runs on as it was: {refusal}")
        self._refusal.set_visibility(bool(refusal))
        since = milliseconds(status["for_s"] * 1000)
        self._state.set_text(f"{status['state']} for {since}")
        self._state.classes(replace=f"hw-pill {status['state']}")

    async def every(self, seconds: float, refresh: Callable[[], Awaitable[Any]]) -> None:
        """Refresh now, and again and again while the page is open; a server that does not answer is shown."""

        async def turn() -> None:
            try:
                await self._look()
                await refresh()
            except ApiError as error:
                self.trouble(str(error))
            else:
                self.trouble("")

        await turn()
        ui.timer(seconds, turn, immediate=False)

    def trouble(self, why: str) -> None:
        """Say what is wrong, or nothing."""
        self._trouble.set_text(why)
        self._trouble.set_visibility(bool(why))

    async def perform(self, action: Callable[[], Awaitable[Any]], message: str) -> Any:
        """Do what a button asks for, and say so, or why it cannot be; None then."""
        try:
            result = await action()
        except ApiError as error:
            ui.notify(str(error), type="negative", timeout=10_000, multi_line=True)
            return None
        ui.notify(message, type="positive")
        return result


class Page(Protocol):
    """What one viewer sees in a frame."""

    async def refresh(self) -> None:
        """Show how things are now."""


def add_page(api: Api, path: str, every_s: float, page: Callable[[Frame], Page]) -> None:
    """Register a page that shows every so often how things are: of one flow, or of them all."""

    @ui.page(f"/{path}/{{flow}}" if path in OF_FLOWS else f"/{path}")
    async def show(request: Request) -> None:
        frame = Frame(api, request, path, request.path_params.get("flow", ""))
        await frame.every(every_s, page(frame).refresh)


def title(text: str) -> Any:
    """Write a heading."""
    heading = ui.element("h2").classes("hw-title")
    with heading:
        ui.label(text)
    return heading


def title_with_figure(text: str, figure: str) -> Any:
    """Write a heading, and return the place behind it for a figure that changes."""
    title(text)
    return ui.label().classes("hw-pill").props(f"data-figure={figure}")


def empty(head: str, advice: str, command: str = "") -> None:
    """Show that there is nothing yet, and how there would be something."""
    with ui.element("div").classes("hw-empty"):
        ui.label(head).classes("hw-title")
        ui.label(advice)
        if command:
            ui.label(command).classes("hw-mono").style("margin-top: 12px")


async def flow_exists(api: Api, name: str) -> bool:
    """Say whether there is a flow of a name; a server that is away may have it."""
    try:
        await api.get(of_flow(name), 0.9)
    except ApiError as error:
        return error.status != 404
    return True
