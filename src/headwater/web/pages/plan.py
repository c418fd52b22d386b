"""The Plan page: placements side by side, why, what one measure costs in another; by hand, rehearsed, deployed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from nicegui import ui

from headwater.web.api import Api, ApiError
from headwater.web.board import Board
from headwater.web.figures import milliseconds, rate
from headwater.web.frame import Frame, add_page, empty, title
from headwater.web.plan_words import (
    MEASURES,
    OBJECTIVES,
    binding_of,
    links_of,
    reasons_of,
    rehearsal_of,
    row_of,
    verdict,
)
from headwater.web.table import Column, Table

_FIELD = 'dense outlined options-dense popup-content-class="hw-popup"'
_PLACEMENTS = (Column("placement", "text"), Column("status", "text"), *(Column(name) for name in MEASURES.values()))
_WHY = (
    Column("step", "text"),
    Column("on", "text"),
    Column("next best", "wide"),
    Column("better, but forbidden", "wide"),
)
_BINDS = (Column("limit", "text"), Column("fullest device", "text"), Column("used"), Column("", "text"))
_LINKS = (
    Column("stream", "text"),
    Column("way", "text"),
    Column("carries"),
    Column("of its link"),
    Column("takes"),
)
_REHEARSAL = (Column("sink", "text"), Column("predicted"), Column("rehearsed"))
_SECONDS = 10.0
_MOST = 12  #: placements side by side


def add(api: Api) -> None:
    """Register the page."""
    add_page(api, "plan", 5.0, _PlanPage)


class _PlanPage:
    """The page of one viewer: placements that were found or made on it, one of which is shown."""

    def __init__(self, frame: Frame) -> None:
        self.frame, self._api = frame, frame.api
        self._placements: dict[str, Any] = {}  #: placements by name
        self._current, self._before, self._step = "", "", ""
        self._points: list[str] = []  #: placements of the front that is drawn
        with frame.body:
            self._add_form()
            self._verdict = ui.element("div").classes("hw-verdict").props("data-figure=verdict aria-live=polite")
            with self._verdict:
                self._summary = ui.label().classes("hw-says")
                self._advice = ui.label().classes("hw-soft")
            self._none = ui.element("div")
            with self._none:
                empty(
                    "No placement yet",
                    "Choose a flow, a net and a goal. Each plan becomes a row; drag a step to "
                    "another device, and see what that changes.",
                )
            self._cards = ui.element("div").classes("hw-stack")
            with self._cards:
                self._add_table()
                self._add_board()
                self._add_reasons()
                self._add_rehearsal()
            self._add_front()
        self._write()

    # -- what is on the page ----------------------------------------------------------------------------------------------

    def _add_form(self) -> None:
        with ui.element("section").classes("hw-card"):
            title("Where should steps run?")
            with ui.element("div").classes("hw-row"):
                self._flow = ui.select({}, label="Flow").props(_FIELD).style("min-width: 180px")
                self._net = ui.select([], label="Net").props(_FIELD).style("min-width: 160px")
                self._goal = (
                    ui.select(OBJECTIVES, label="Goal", value=next(iter(OBJECTIVES)))
                    .props(_FIELD)
                    .style("min-width: 230px")
                )
                self._plan = _button("Plan", self._search, main=True)

    def _add_table(self) -> None:
        with ui.element("section").classes("hw-card"):
            title("Side by side")
            with ui.element("div").classes("hw-scroll"):
                self._table = Table(_PLACEMENTS, self._pick)

    def _add_board(self) -> None:
        with ui.element("section").classes("hw-card"):
            with ui.element("div").classes("hw-row"):
                title("Steps on devices")
                ui.element("div").classes("hw-grow")
                self._rehearse = _button("Rehearse", self._play)
                self._deploy = _button("Deploy…", self._confirm)
            with ui.element("div").classes("hw-row").style("margin: 6px 0 12px"):
                self._step_label = ui.label().classes("hw-soft")
                self._to = ui.select([], label="Move it to", on_change=self._move_to).props(_FIELD)
                self._to.style("min-width: 220px")
            self._board = Board(self._choose, self._drop)
        with ui.dialog() as self._dialog, ui.card():
            self._dialog_text = ui.label().classes("hw-mono")
            with ui.element("div").classes("hw-row"):
                _button("Deploy it", self._deploy_plan, main=True)
                _button("Leave it", self._dialog.close)

    def _add_reasons(self) -> None:
        self._reasons = _Section("Why each step is where the search put it", _WHY)
        self._binding = _Section("What binds", _BINDS)
        self._links = _Section("What crosses between devices", _LINKS)

    def _add_rehearsal(self) -> None:
        self._rehearsal_card = ui.element("section").classes("hw-card")
        with self._rehearsal_card:
            title("Rehearsal")
            self._rehearsal_text = ui.label().props("data-figure=rehearsal")
            with ui.element("div").classes("hw-scroll"):
                self._rehearsal_table = Table(_REHEARSAL)
        self._rehearsal_card.set_visibility(False)

    def _add_front(self) -> None:
        with ui.element("section").classes("hw-card"):
            title("What one costs in the other")
            with ui.element("div").classes("hw-row"):
                self._one = (
                    ui.select(MEASURES, label="Less of", value="critical").props(_FIELD).style("min-width: 160px")
                )
                self._other = ui.select(MEASURES, label="costs", value="money").props(_FIELD).style("min-width: 160px")
                self._draw = _button("Draw the front", self._search_front)
            self._chart = ui.element("div")

    # -- what is done ------------------------------------------------------------------------------------------------------

    async def refresh(self) -> None:
        """Know what there is to choose from."""
        choices = await self._api.get("/plans", 5.0)
        flows = {each["flow"]: each["name"] for each in choices["flows"]}
        if self._flow.options != flows:
            self._flow.set_options(flows, value=next(iter(flows), None))
        if self._net.options != choices["nets"]:
            self._net.set_options(choices["nets"], value=next(iter(choices["nets"]), None))

    async def _search(self) -> None:
        result = await self._request(self._plan, "/plans/best", objective=self._goal.value)
        if result is not None:
            self._before = self._keep(OBJECTIVES[self._goal.value], result)
            self._show(self._before)

    async def _search_front(self) -> None:
        one, other = self._one.value, self._other.value
        front = await self._request(self._draw, "/plans/front", one=one, other=other)
        if front is None:
            return
        if not front["points"]:
            ui.notify("No placement keeps all limits.", type="warning")
            return
        names = [f"{MEASURES[one]} or {MEASURES[other]}, {n}" for n in range(1, len(front["points"]) + 1)]
        self._points = [self._keep(name, point) for name, point in zip(names, front["points"], strict=True)]
        self._draw_front(front)
        self._pick(self._points[0])

    async def _drop(self, step: str, device: str) -> None:
        if not self._current or self._placements[self._current]["placement"].get(step) == device:
            return
        placement = {**self._placements[self._current]["placement"], step: device}
        body = {"objective": self._placements[self._current]["objective"], "placement": placement}
        result = await self._request(None, "/plans/try", **body)
        if result is not None:
            self._step = step
            self._show(self._keep("By hand", result))

    async def _play(self) -> None:
        placement = self._placements[self._current]["placement"]
        report = await self._request(self._rehearse, "/plans/rehearse", placement=placement, seconds=_SECONDS)
        if report is None:
            return
        latency = report["latency_ms"]
        self._rehearsal_card.set_visibility(True)
        self._rehearsal_text.set_text(
            f"{self._current}, {_SECONDS:g} s of virtual time, {rate(report['records_in'] / _SECONDS)} in; half of all "
            f"records were in a sink after {milliseconds(latency['p50'])}, 99 of 100 after {milliseconds(latency['p99'])}."
        )
        self._rehearsal_table.show(rehearsal_of(report))

    def _confirm(self) -> None:
        placement = self._placements[self._current]["placement"]
        where = "\n".join(f"{step} → {device}" for step, device in placement.items())
        self._dialog_text.set_text(f"{self._current}:\n{where}")
        self._dialog.open()

    async def _deploy_plan(self) -> None:
        self._dialog.close()
        body = {
            "objective": self._placements[self._current]["objective"],
            "placement": self._placements[self._current]["placement"],
        }
        result = await self._request(self._deploy, "/plans/deploy", **body)
        if result is not None:
            ui.notify(result["says"], type="positive", timeout=10_000, multi_line=True)

    async def _request(self, button: Any, path: str, **body: Any) -> Any:
        """Send a request about the flow and the net that are chosen; None, and a notice, where it fails."""
        if not self._flow.value or not self._net.value:
            ui.notify("Choose a flow and a net.", type="warning")
            return None
        if button is not None:
            button.props("loading")
        try:
            return await self._api.post(path, {"flow": self._flow.value, "net": self._net.value, **body})
        except ApiError as error:
            ui.notify(str(error), type="negative", timeout=10_000, multi_line=True)
            return None
        finally:
            if button is not None:
                button.props(remove="loading")

    # -- what is shown -----------------------------------------------------------------------------------------------------

    def _keep(self, name: str, document: Any) -> str:
        """Have a placement among those side by side; one of the same name is replaced."""
        name = f"{name} ({self._flow.options[self._flow.value]} on {self._net.value})"
        self._placements[name] = {**document, "of": (self._flow.value, self._net.value)}
        for old in list(self._placements)[: max(0, len(self._placements) - _MOST)]:
            if old not in (name, self._before):
                del self._placements[old]
        return name

    def _pick(self, name: str) -> None:
        if name in self._placements:
            self._before = name
            self._show(name)

    def _show(self, name: str) -> None:
        self._current = name
        flow, net = self._placements[name]["of"]
        self._flow.set_value(flow)
        self._net.set_value(net)
        self._write()

    def _choose(self, step: str) -> None:
        self._step = step
        self._write()

    async def _move_to(self, event: Any) -> None:
        if event.value and self._step:
            await self._drop(self._step, event.value)

    def _write(self) -> None:
        document = self._placements.get(self._current)
        self._cards.set_visibility(document is not None)
        self._verdict.set_visibility(document is not None)
        self._none.set_visibility(document is None)
        if document is None:
            return
        before = self._placements.get(self._before)
        summary, advice, grave = verdict(self._current, document, before)
        self._summary.set_text(summary)
        self._advice.set_text(advice)
        self._verdict.classes(add="grave" if grave else "", remove="" if grave else "grave")
        self._table.show([(name, row_of(name, each)) for name, each in self._placements.items()], self._current)
        placement = document["placement"]
        self._board.show(document, {} if before is None else before["placement"], self._step)
        self._show_step(document, placement)
        self._reasons.show(reasons_of(document if document["why"] or before is None else before))
        self._binding.show(binding_of(document))
        self._links.show(links_of(document))
        for button in (self._rehearse, self._deploy):
            button.set_enabled(not document["broken"])

    def _show_step(self, document: Any, placement: Any) -> None:
        here = placement.get(self._step)
        self._to.set_visibility(here is not None)
        self._step_label.set_text(
            f"{self._step} is on {here}."
            if here
            else "Drag a step to another device; or choose one, and then a device."
        )
        others = [offer["device"] for offer in document["offers"] if offer["device"] != here]
        self._to.set_options(others, value=None)

    def _draw_front(self, front: Any) -> None:
        theme = self.frame.theme
        one, other = front["one"], front["other"]
        points = [[_in_unit(each["measures"], other), _in_unit(each["measures"], one)] for each in front["points"]]
        axis = {"type": "value", "scale": True, "nameTextStyle": {**theme.text, "align": "left"}}
        options = {
            "animation": False,
            "color": list(theme.colours),
            "tooltip": {**theme.tooltip(), "trigger": "item"},
            "grid": {"left": 30, "right": 30, "top": 34, "bottom": 34, "containLabel": True},
            "xAxis": theme.axis(**axis, name=_unit(other), nameLocation="middle", nameGap=30),
            "yAxis": theme.axis(**axis, name=_unit(one), nameGap=14),
            "series": [{"type": "line", "step": "end", "symbolSize": 12, "data": points}],
        }
        self._chart.clear()
        with self._chart:
            ui.echart(options, on_point_click=self._point).classes("hw-chart")

    def _point(self, event: Any) -> None:
        if event.data_index is not None and event.data_index < len(self._points):
            self._pick(self._points[event.data_index])


class _Section:
    """A table in a card, which is there while it has rows."""

    def __init__(self, heading: str, columns: tuple[Column, ...]) -> None:
        with ui.element("section").classes("hw-card") as self._card:
            title(heading)
            with ui.element("div").classes("hw-scroll"):
                self._table = Table(columns)

    def show(self, rows: list[tuple[Any, list[str]]]) -> None:
        """Show rows."""
        self._card.set_visibility(bool(rows))
        self._table.show(rows)


def _button(text: str, act: Callable[[], Awaitable[None] | None], *, main: bool = False) -> Any:
    button = ui.button(text, on_click=act).props("no-caps unelevated" if main else "no-caps outline dense")
    return button.classes("hw-go") if main else button


def _in_unit(measures: Any, measure: str) -> float | None:
    """Return a measure in the unit that it is drawn in."""
    value: float | None = measures[measure]
    return 1000 * value if value is not None and measure in ("critical", "aggregate") else value


def _unit(measure: str) -> str:
    units = {"critical": "ms", "aggregate": "ms", "wan": "bytes/s", "energy": "share of the budget", "money": "an hour"}
    return f"{MEASURES[measure]}, {units[measure]}" if measure in units else MEASURES[measure]
