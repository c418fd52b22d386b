"""The Dead letters page: records that broke a step, each with its error. Look at them, edit fields, replay."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import msgspec
from nicegui import ui

from headwater.web.api import Api, of_flow
from headwater.web.figures import clipped
from headwater.web.frame import Frame, add_page, empty, title_with_figure
from headwater.web.series import clock
from headwater.web.side import Side
from headwater.web.step_panel import as_text
from headwater.web.table import Column, Table

_MOST = 100
_LONGEST_VALUE = 10_000  #: signs of a value that somebody could edit
_COLUMNS = (
    Column("number"),
    Column("step", "text"),
    Column("when", "text"),
    Column("error", "wide"),
    Column("record", "wide"),
)


def add(api: Api) -> None:
    """Register the page."""
    add_page(api, "dead", 2.0, _DeadPage)


class _DeadPage:
    """The page of one viewer."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self._letters: dict[int, Any] = {}
        self._selection: Any = None
        self._step = ""
        with frame.body:
            self._none = ui.element("div")
            self._card = ui.element("section").classes("hw-card")
            with self._card:
                with ui.element("div").classes("hw-row"):
                    self._count = title_with_figure("Records that broke a step", "letters")
                    ui.element("div").classes("hw-grow")
                    self._steps = (
                        ui.select({"": "all steps"}, value="", on_change=lambda event: self._filter(event.value))
                        .props('dense outlined options-dense aria-label="Step"')
                        .style("min-width: 150px")
                    )
                    ui.button("Replay all of these", on_click=self._replay_all).props("outline dense no-caps")
                ui.label(
                    "A replay gives records to the steps that they broke, after the flow has stopped with a checkpoint; "
                    "then it runs on. What breaks again is kept. Choose one to edit it first."
                ).classes("hw-soft hw-small")
                with ui.element("div").classes("hw-scroll"):
                    self._table = Table(_COLUMNS, self._choose)
            self._editor = _Editor(frame, self._replay)

    async def refresh(self) -> None:
        """Show the letters that are kept now."""
        query = {"limit": _MOST, **({"step": self._step} if self._step else {})}
        document = await self.frame.api.get(of_flow(self.frame.flow, f"dead?{urlencode(query)}"), 0.9)
        self._letters = {each["id"]: each for each in document["letters"]}
        self._none.clear()
        self._card.set_visibility(bool(self._letters or self._step))
        if not self._letters and not self._step:
            with self._none:
                empty(
                    "No dead letters",
                    "A record that breaks a step is kept here with the error, and the flow goes on. Headwater serve keeps "
                    "them by itself, headwater run with --dead DIR.",
                )
        more = " or more" if document["more"] else ""
        self._count.set_text(f"{len(self._letters)}{more}")
        names = {each["step"] for each in document["letters"]} | ({self._step} if self._step else set())
        options = {"": "all steps", **{name: name for name in sorted(names)}}
        if not self._step and self._steps.options != options:
            self._steps.set_options(options)
        self._table.show(
            [(each["id"], _row(each)) for each in document["letters"]],
            self._selection,
        )

    async def _filter(self, step: str) -> None:
        self._step = step or ""
        await self.refresh()

    def _choose(self, number: int) -> None:
        self._selection = number
        if number in self._letters:
            self._editor.open(self._letters[number])

    async def _replay_all(self) -> None:
        await self._replay(list(self._letters), {})

    async def _replay(self, ids: list[int], changes: dict[str, Any]) -> None:
        if not ids:
            return
        body = {"ids": ids, "set": changes}
        path = of_flow(self.frame.flow, "dead", "replay")
        result = await self.frame.perform(lambda: self.frame.api.post(path, body), "replayed")
        if result is None:
            return
        for number, why in result["kept"].items():
            ui.notify(f"{number} broke its step again: {why}", type="warning", timeout=10_000, multi_line=True)
        ui.notify(f"{len(result['released'])} went through, {len(result['kept'])} did not")
        self._selection = None
        await self.refresh()


def is_another(value: Any, before: Any) -> bool:
    """Say whether a value is another in JSON, where 1 is neither true nor 1.0.

    >>> is_another(True, 1), is_another({"n": 0}, {"n": False}), is_another([1, "a"], [1, "a"])
    (True, True, False)
    """
    return msgspec.json.encode(value) != msgspec.json.encode(before)


def _row(letter: Any) -> list[str]:
    when = clock(letter["at_ns"] / 1e9)
    return [str(letter["id"]), letter["step"], when, clipped(letter["error"], 600), as_text(letter["record"])]


class _Editor:
    """One letter, whole, with its fields to be changed."""

    def __init__(self, frame: Frame, replay: Any) -> None:
        self._frame, self._replay = frame, replay
        self._letter: Any = None
        self._inputs: dict[str, Any] = {}
        self._side = Side("letter-title")
        with self._side:
            self._error = ui.label().classes("hw-mono hw-trouble")
            self._fields = ui.element("div").style("display: flex; flex-direction: column; gap: 10px")
            self._fault = ui.label().classes("hw-trouble").props("role=alert")
            ui.button("Replay with these values", on_click=self._go).props("no-caps unelevated").classes("hw-go")

    def open(self, letter: Any) -> None:
        """Show a letter."""
        self._letter, self._inputs = letter, {}
        self._side.name(f"Letter {letter['id']}, from step {letter['step']}")
        self._error.set_text(clipped(letter["error"], 5000))
        self._fault.set_visibility(False)
        self._fields.clear()
        record = letter["record"]
        with self._fields:
            if isinstance(record, dict):
                ui.label('Values are JSON: 12.5, "text", true, null.').classes("hw-soft hw-small")
                for name, value in record.items():
                    text = msgspec.json.encode(value).decode()
                    if len(text) > _LONGEST_VALUE:
                        ui.label(f"{name}: {clipped(text, 200)}; it stays as it is").classes("hw-soft hw-mono")
                        continue
                    self._inputs[name] = ui.input(name, value=text).props("outlined dense").classes("hw-query")
            else:
                ui.label("This record could not be read, so it has no fields; it is replayed as it is.").classes(
                    "hw-soft"
                )
                ui.label(as_text(record)).classes("hw-mono")
        self._side.open()

    async def _go(self) -> None:
        changes = {}
        for name, field in self._inputs.items():
            try:
                value = msgspec.json.decode((field.value or "").encode())
            except msgspec.DecodeError as error:
                self._fault.set_text(f"{name}: {field.value!r} is no JSON: {error}. Text needs quotes.")
                self._fault.set_visibility(True)
                return
            if is_another(value, self._letter["record"][name]):
                changes[name] = value
        self._side.close()
        await self._replay([self._letter["id"]], changes)
