"""What is known of one step, beside the page: figures, history, records as they pass, code line, dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from nicegui import ui

from headwater.web.api import ApiError, of_flow
from headwater.web.figures import clipped, count, milliseconds, percent, rate, size
from headwater.web.frame import Frame, title
from headwater.web.reading import StepNow
from headwater.web.side import Side
from headwater.web.table import Column, Table

_SPAN_S = 600
_RECORDS = 8
_SIGNS = 600  #: of a value that are shown: a record may hold a picture, and a page many records
_PAIR = (Column("", "text"), Column("", "text"))


class StepPanel:
    """Opens at the right for one step at a time; Escape closes it."""

    def __init__(self, frame: Frame) -> None:
        self._frame, self._api, self._name = frame, frame.api, frame.flow
        self._step = ""
        self._steps: dict[str, StepNow] = {}
        self._nodes: dict[str, Any] = {}
        self._kinds: dict[str, str] = {}
        self._side = Side("side-title")
        with self._side:
            self._does = ui.label().classes("hw-mono")
            self._line = ui.label().classes("hw-soft hw-small")
            with ui.element("div").classes("hw-scroll"):
                self._figures = Table(_PAIR)
            title("The last ten minutes")
            self._chart = ui.echart(self._options([], [], [])).classes("hw-chart")
            with ui.element("div").classes("hw-row"):
                title("Records")
                ui.element("div").classes("hw-grow")
                self._look = ui.button("Show the next few", on_click=self._show_records).props("outline dense no-caps")
            self._record_area = ui.element("div")
            title("Dead letters")
            self._dead = ui.element("div")

    async def open(self, step: str) -> None:
        """Show a step."""
        if step not in self._steps:
            return
        self._step = step
        self._record_area.clear()
        with self._record_area:
            ui.label("Nobody looks at records unless asked: the button waits up to 3 s for some to pass.").classes(
                "hw-soft hw-small"
            )
        self._write()
        self._side.open()
        try:
            await self._show_history()
            await self._show_letters()
        except ApiError as error:
            ui.notify(str(error), type="negative")

    def show(self, steps: Sequence[StepNow], graph: Any) -> None:
        """Take how the steps fare now."""
        self._steps = {step.name: step for step in steps}
        self._nodes = {step["name"]: step for step in graph["steps"]}
        self._kinds = kinds_of(graph)
        if self._side.is_open and self._step in self._steps:
            self._write()

    def _write(self) -> None:
        step, node = self._steps[self._step], self._nodes[self._step]
        self._side.name(step.name)
        self._does.set_text(f"{node['kind']}: {node['does']}" if node["does"] else node["kind"])
        self._line.set_text(f"written at {node['line']}" if node["line"] else "")
        cells = {
            "state": f"{step.state}: busy {percent(step.busy)}, waiting {percent(step.waiting)}, idle {percent(step.idle)}",
            "in, out": f"{rate(step.in_hz)}, {rate(step.out_hz)}",
            "queue": count(step.queue),
            "T_Q, T_S, T_C": f"{milliseconds(step.t_q_ms)}, {milliseconds(step.t_s_ms)}, {milliseconds(step.t_c_ms)}",
            "p50, p99": f"{milliseconds(step.p50_ms)}, {milliseconds(step.p99_ms)}",
            "cost of a record": milliseconds(step.cost_us / 1000),
            "instances": str(step.instances),
            "state size": size(step.state_bytes) if step.state_bytes else "–",
            "dead, late, shed": f"{step.dead:,}, {step.late:,}, {step.shed:,}",
        }
        if step.held:
            cells["held back"] = percent(step.held)
        self._figures.show([(label, (label, text)) for label, text in cells.items()])

    async def _show_history(self) -> None:
        history = await self._api.get(of_flow(self._name, "metrics", f"history?seconds={_SPAN_S}"), 4.0)
        times, rates, queues = [], [], []
        for sample in history:
            counts = next((step for step in sample["last"]["steps"] if step["name"] == self._step), None)
            if counts is not None:
                times.append(datetime.fromtimestamp(sample["at"]).strftime("%H:%M:%S"))
                rates.append(round(counts["in"] / max(sample["last"]["at_s"], 1e-9), 1))
                queues.append(counts["queue"])
        self._chart.options.clear()
        self._chart.options.update(self._options(times, rates, queues))
        self._chart.update()

    def _options(self, times: list[str], rates: list[float], queues: list[int]) -> dict[str, Any]:
        theme = self._frame.theme
        return {
            "animation": False,
            "color": list(theme.colours),
            "legend": {"top": 0, "textStyle": theme.text, "data": ["records/s", "queue"]},
            "tooltip": theme.tooltip(),
            "grid": {"left": 8, "right": 8, "top": 34, "bottom": 4, "containLabel": True},
            "xAxis": {**theme.axis(), "type": "category", "data": times, "splitLine": {"show": False}},
            "yAxis": [theme.axis(type="value"), theme.axis(type="value", minInterval=1, splitLine={"show": False})],
            "series": [
                {"name": "records/s", "type": "line", "showSymbol": False, "data": rates},
                {
                    "name": "queue",
                    "type": "line",
                    "showSymbol": False,
                    "yAxisIndex": 1,
                    "data": queues,
                    "lineStyle": {"type": "dashed"},
                },
            ],
        }

    async def _show_records(self) -> None:
        self._look.props("loading")
        query = urlencode({"step": self._step, "limit": _RECORDS})
        try:
            records = await self._api.get(of_flow(self._name, f"records?{query}"), patience_s=15.0)
        except ApiError as error:
            records = None
            ui.notify(str(error), type="negative", multi_line=True)
        self._look.props(remove="loading")
        self._record_area.clear()
        if records is None:
            return
        with self._record_area:
            if not records["in"] and not records["out"]:
                ui.label("No record passed in 3 s.").classes("hw-soft")
            for way, head in (("in", "taken in"), ("out", "given out")):
                if records[way]:
                    ui.label(head).classes("hw-soft hw-small")
                    with ui.element("div").classes("hw-scroll"):
                        records_table(records[way], self._kinds)

    async def _show_letters(self) -> None:
        query = urlencode({"step": self._step, "limit": 3})
        document = await self._api.get(of_flow(self._name, f"dead?{query}"), 0.9)
        self._dead.clear()
        with self._dead:
            if not document["letters"]:
                ui.label("No record broke this step.").classes("hw-soft")
                return
            letters = Table((Column("number"), Column("error", "wide"), Column("record", "wide")))
            letters.show(
                [
                    (each["id"], (str(each["id"]), each["error"], as_text(each["record"])))
                    for each in document["letters"]
                ]
            )
            ui.link("Look at all, edit, replay", f"/dead/{quote(self._name, safe='')}")


def kinds_of(graph: Mapping[str, Any]) -> dict[str, str]:
    """Return the type of every column that any step gives out, by its name."""
    outputs = [fields for step in graph["steps"] for fields in step["outputs"].values()]
    return {name: str(kind) for fields in outputs for name, kind in fields.items()}


def records_table(records: Sequence[dict[str, Any]], kinds: Mapping[str, str]) -> Table:
    """Show records, a column for each field; `kinds` says which of them are times."""
    fields = list(dict.fromkeys(name for record in records for name in record))
    table = Table([Column(name, "text") for name in fields])
    table.show(
        [(at, [as_text(record.get(name), kinds.get(name, "")) for name in fields]) for at, record in enumerate(records)]
    )
    return table


def as_text(value: Any, kind: str = "") -> str:
    """Write a value of a record: text as it is, a time as the clock has it here, all else as JSON; the beginning of much.

    >>> as_text("a"), as_text({"a": [1, None]}), len(as_text({"picture": "0" * 1_000_000})) < 1000
    ('a', '{"a":[1,null]}', True)
    """
    if kind == "time" and isinstance(value, int):
        return datetime.fromtimestamp(value / 1e6).isoformat(sep=" ", timespec="milliseconds")
    return clipped(value if isinstance(value, str) else msgspec.json.encode(value).decode(), _SIGNS)
