"""The Flow page: the graph, live. What limits the flow is said in words; a click on a step opens what is known of it."""

from __future__ import annotations

from typing import Any

from nicegui import ui
from starlette.requests import Request

from headwater.web.api import Api, ApiError, of_flow
from headwater.web.figures import count, milliseconds, percent, rate, size
from headwater.web.frame import Frame, empty, flow_exists, title
from headwater.web.graph import FlowGraph
from headwater.web.reading import StepNow, Verdict, cells_of, steps_now, verdict
from headwater.web.step_panel import StepPanel
from headwater.web.table import Column, Table

_COLUMNS = (
    Column("step", "text"),
    Column("state", "text", "what most of the last second went into"),
    Column("in/s", about="records taken in, of the last second"),
    Column("out/s", about="records given out, of the last second"),
    Column("queue", about="records that wait for it now"),
    Column("T_Q", about="mean time a record waited behind others"),
    Column("T_S", about="mean time a record waited for a worker"),
    Column("T_C", about="mean time a record was computed, with the batch it came in"),
    Column("p50", about="half of the records were here for no longer, from the queue until done; of the last second"),
    Column("p99", about="99 of 100 records were here for no longer"),
    Column("cost", about="processor time a record"),
    Column("busy", about="share of the time that a worker was here"),
    Column("in", about="records in all"),
    Column("out", about="records in all"),
    Column("dead", about="records that broke it, in all"),
    Column("late", about="records that came too late, in all"),
    Column("state size", about="what it keeps, as the last checkpoint has it"),
)


def add(api: Api) -> None:
    """Register the page."""

    @ui.page("/flow/{name}")
    async def flow_page(request: Request, name: str) -> None:
        frame = Frame(api, request, "flow", name)
        if not await flow_exists(api, name):
            with frame.body:
                empty(
                    f"There is no flow {name}",
                    "Its file may have been removed; the list above has those that are there.",
                )
        page = _FlowPage(frame)
        await frame.every(1.0, page.refresh)


class _FlowPage:
    """The page of one viewer."""

    def __init__(self, frame: Frame) -> None:
        self._frame, self._api, self._name = frame, frame.api, frame.flow
        self._graph: Any = None
        self._drawing: FlowGraph | None = None
        with frame.body:
            self._verdict = ui.element("div").classes("hw-verdict")
            with self._verdict:
                self._summary = ui.label().classes("hw-says")
                self._advice = ui.label().classes("hw-soft")
            self._figures = _Figures()
            self._card = ui.element("section").classes("hw-card")
            with self._card:
                with ui.element("div").classes("hw-row"):
                    title("Steps")
                    ui.element("div").classes("hw-grow")
                    self._buttons()
                _legend()
                self._place = ui.element("div").classes("hw-scroll")
            self._table_card = ui.element("section").classes("hw-card")
            with self._table_card:
                title("The same in figures")
                with ui.element("div").classes("hw-scroll"):
                    self._table = Table(_COLUMNS, self.open)
            self._none = ui.element("div")
        self._side = StepPanel(frame)
        self._set_visible(False)

    def _buttons(self) -> None:
        for what, message in (("start", "starts"), ("stop", "stops with a checkpoint"), ("restart", "starts again")):

            async def act(what: str = what, message: str = message) -> None:
                path = of_flow(self._name, what)
                await self._frame.perform(lambda: self._api.post(path), f"{self._name} {message}")

            ui.button(what.capitalize(), on_click=act).props("flat dense no-caps")

    def _set_visible(self, there: bool) -> None:
        for each in (self._verdict, self._figures.row, self._card, self._table_card):
            each.set_visibility(there)

    async def refresh(self) -> None:
        """Show how the flow fares now."""
        try:
            graph = await self._api.get(of_flow(self._name, "graph"), 5.0)
            sample = await self._api.get(of_flow(self._name, "metrics"), 0.9)
        except ApiError as error:
            if error.status not in (404, 409):
                raise
            await self._show_reason()
            return
        self._none.clear()
        self._set_visible(True)
        if graph != self._graph:
            self._graph = graph
            self._place.clear()
            with self._place:
                self._drawing = FlowGraph(graph, self.open)
        steps = steps_now(graph, sample)
        judgement = verdict(steps, sample["process"]["cores"])
        self._show_verdict(judgement)
        self._figures.show(steps, sample)
        assert self._drawing is not None
        self._drawing.show(steps, sample, judgement.step if judgement.grave else "")
        total = {step["name"]: step for step in sample["total"]["steps"]}
        self._table.show([(step.name, _cells(step, total.get(step.name, {}))) for step in steps])
        self._side.show(steps, graph)

    async def _show_reason(self) -> None:
        """Say why there is nothing to be seen of a flow yet."""
        self._set_visible(False)
        status = await self._api.get(of_flow(self._name), 0.9)
        self._none.clear()
        with self._none:
            if status["state"] == "refused":
                empty(
                    "This flow cannot be run",
                    "It is tried again when its file changes.",
                    status["why"],
                )
            elif status["state"] == "stopped":
                empty("This flow is stopped", "Start it here; it goes on where it was.")
                with ui.element("div").classes("hw-row").style("justify-content: center"):
                    self._buttons()
            elif status["state"] == "waiting":
                empty("This flow has died", "It is started again, later each time. The last it said:", status["why"])
            else:
                empty("No figures yet", "A flow tells how it fares each second that it runs.", status["why"])

    def _show_verdict(self, judgement: Verdict) -> None:
        self._summary.set_text(judgement.summary)
        self._advice.set_text(judgement.advice)
        self._verdict.classes(replace="hw-verdict grave" if judgement.grave else "hw-verdict")

    async def open(self, step: str) -> None:
        """Open what is known of a step."""
        await self._side.open(step)


class _Figures:
    """The figures of the whole flow, large."""

    def __init__(self) -> None:
        self.row = ui.element("section").classes("hw-figures").props('aria-label="Figures of the flow"')
        with self.row:
            self._in, self._out = _Figure("in", "Records in"), _Figure("out", "Records out")
            self._p50, self._p99 = _Figure("p50", "Latency p50"), _Figure("p99", "Latency p99")
            self._waiting, self._held = _Figure("waiting", "Records waiting"), _Figure("held", "Sources held back")
            self._dead, self._process = _Figure("dead", "Dead letters"), _Figure("cores", "Processor")

    def show(self, steps: list[StepNow], sample: Any) -> None:
        """Show what a sample says."""
        last, total = sample["last"], sample["total"]
        span_s = max(last["at_s"], 1e-9)
        records_out = sum(total["records_out"].values())
        self._in.show(rate(last["records_in"] / span_s), f"{total['records_in']:,} in all")
        self._out.show(rate(sum(last["records_out"].values()) / span_s), f"{records_out:,} in all")
        self._p50.show(milliseconds(last["latency_ms"]["p50"]), f"p95 {milliseconds(last['latency_ms']['p95'])}")
        self._p99.show(milliseconds(last["latency_ms"]["p99"]), f"{milliseconds(total['latency_ms']['p99'])} in all")
        self._waiting.show(count(sum(step.queue for step in steps)), "in all queues")
        self._held.show(percent(min(1.0, last["backpressure_s"] / span_s)), f"{total['backpressure_s']:.1f} s in all")
        late, shed = sum(step.late for step in steps), sum(step.shed for step in steps)
        self._dead.show(f"{sum(step.dead for step in steps):,}", f"late {late:,}, shed {shed:,}")
        process = sample["process"]
        self._process.show(f"{process['cores']:.2f} cores", f"memory {size(process['memory_bytes'])}")


class _Figure:
    def __init__(self, key: str, label: str) -> None:
        with ui.element("div").classes("hw-figure").props(f"data-figure={key}"):
            ui.label(label).classes("hw-label")
            self._value = ui.label("–").classes("hw-value")
            self._note = ui.label("").classes("hw-note")

    def show(self, value: str, note: str) -> None:
        self._value.set_text(value)
        self._note.set_text(note)


def _legend() -> None:
    with ui.element("div").classes("hw-legend"):
        for key, text in (
            ("busy", "busy: a worker computes here"),
            ("works", "at work, less than half of the time"),
            ("waiting", "waiting: records are here, a worker is not"),
            ("held", "held back: the queues behind a source are full"),
            ("idle", "idle"),
        ):
            with ui.element("span"):
                ui.element("span").classes(f"hw-key {key}")
                ui.label(text).style("display: inline")


def _cells(step: StepNow, total: Any) -> list[str]:
    return [
        *cells_of(step),
        milliseconds(step.cost_us / 1000),
        percent(step.busy),
        f"{total.get('in', 0):,}",
        f"{total.get('out', 0):,}",
        f"{step.dead:,}",
        f"{step.late:,}",
        size(step.state_bytes) if step.state_bytes else "–",
    ]
