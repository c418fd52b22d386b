"""The Promises page: what flows were promised on this machine, windows kept and broken with cause, cores; the ledger."""

from __future__ import annotations

from typing import Any

from nicegui import ui

from headwater.web.api import Api, ApiError, of_flow
from headwater.web.figures import milliseconds, percent, rate
from headwater.web.frame import Frame, add_page, empty, title, title_with_figure
from headwater.web.table import Column, Table

_LEDGER = (
    Column("flow", "text"),
    Column("promised", "text"),
    Column("windows kept"),
    Column("broken"),
    Column("share kept"),
    Column("why broken", "wide", "causes, and how many windows broke of each"),
    Column("cores reserved"),
    Column("cores used"),
    Column("now", "text"),
    Column("process"),
)
_BROKEN = (
    Column("second", about="of the run"),
    Column("cause", "text"),
    Column("records", about="that were created in it"),
    Column("late", about="left after the promised latency"),
    Column("left over", about="at its end, beyond what may be on its way"),
)


def add(api: Api) -> None:
    """Register the page."""
    add_page(api, "promises", 2.0, _PromisesPage)


class _PromisesPage:
    """The page of one viewer."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        with frame.body:
            self._none = ui.element("div")
            self._card = ui.element("section").classes("hw-card")
            with self._card:
                with ui.element("div").classes("hw-row"):
                    self._cores = title_with_figure("The ledger of this machine", "cores")
                self._how = ui.label().classes("hw-soft hw-small")
                with ui.element("div").classes("hw-bar").style("margin: 10px 0") as bar:
                    self._bar = ui.element("div")
                bar.props('role=img aria-label="Share of the cores that is reserved"')
                with ui.element("div").classes("hw-scroll"):
                    self._table = Table(_LEDGER)
            self._broken = ui.element("section").classes("hw-card")

    async def refresh(self) -> None:
        """Show the ledger as it is now."""
        board = await self.frame.api.get("/promises", 1.5)
        lanes = board.get("lanes", [])
        self._none.clear()
        self._card.set_visibility(bool(lanes))
        if not lanes:
            self._broken.set_visibility(False)
            with self._none:
                empty(
                    "Nothing is promised on this machine",
                    "A promise is a rate that is kept, whatever else runs here, or refused with the numbers. For a flow "
                    "that is served, write it into its settings:",
                    '# levels.toml\npromise = "2000/s"\nwithin = "50 ms"',
                )
            return
        reserved = board["capacity"] - board["left"]
        self._cores.set_text(f"{reserved:.2f} of {board['capacity']:.2f} cores reserved")
        better = f" For a better one: {board['better']}." if board["better"] else ""
        self._how.set_text(f"Grade {board['grade']}: {board['how']}.{better}")
        self._bar.style(f"width: {100 * reserved / max(board['capacity'], 1e-9):.1f}%")
        self._table.show([(lane["id"], _row(lane)) for lane in lanes])
        await self._show_broken()

    async def _show_broken(self) -> None:
        """Show the windows that broke, of the flows of this server that were promised something."""
        promises = []
        for flow in await self.frame.api.get("/flows", 0.9):
            try:
                promises.append((flow["name"], await self.frame.api.get(of_flow(flow["name"], "promise"), 1.5)))
            except ApiError:
                continue  # it runs without a promise, or does not run
        self._broken.set_visibility(bool(promises))
        self._broken.clear()
        with self._broken:
            title("Windows that broke")
            for name, promise in promises:
                heading = f"{name}: {promise['kept']:,} of {promise['windows']:,} windows of a second kept"
                ui.label(heading).style("font-weight: 600")
                if not promise["broken"]:
                    ui.label("None broke.").classes("hw-soft")
                    continue
                with ui.element("div").classes("hw-scroll"):
                    Table(_BROKEN).show([(window["second"], _window(window)) for window in promise["broken"]])


def _row(lane: Any) -> list[str]:
    contract, windows = lane["contract"], lane["kept"] + lane["broken"]
    within_s = contract["latency_s"]
    terms = rate(contract["rate_hz"]) + (f" within {milliseconds(within_s * 1000)}" if within_s else "")
    return [
        lane["flow"],
        terms,
        f"{lane['kept']:,}",
        f"{lane['broken']:,}",
        percent(lane["kept"] / windows) if windows else "–",
        ", ".join(f"{cause} {count:,}" for cause, count in lane["causes"].items()),
        f"{lane['cores']:.3f}",
        f"{lane['used']:.3f}",
        "more comes than was promised" if lane["above"] else "within its promise",
        str(lane["pid"]),
    ]


def _window(window: Any) -> list[str]:
    counts = [f"{window[name]:,}" for name in ("records", "late")]
    return [f"{window['second']:,}", window["cause"], *counts, f"{window['shortfall']:,.0f}"]
