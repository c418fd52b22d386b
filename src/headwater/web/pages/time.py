"""The Time page: the last hour of a flow, one chart above the other, all at the same moment; scrub back to any sample."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from nicegui import ui

from headwater.web.api import Api, ApiError, of_flow
from headwater.web.figures import milliseconds, percent
from headwater.web.frame import Frame, add_page, empty, title, title_with_figure
from headwater.web.range import Range
from headwater.web.reading import cells_of, steps_now, verdict
from headwater.web.series import Series, clock, series_of
from headwater.web.table import Column, Table
from headwater.web.theme import Theme

_HEIGHT, _GAP, _TOP = 120, 62, 46
_LEFT, _RIGHT = 64, 64
_SLIDER = 40
_COLUMNS = (
    Column("step", "text"),
    Column("state", "text"),
    Column("in/s"),
    Column("out/s"),
    Column("queue"),
    Column("T_Q"),
    Column("T_S"),
    Column("T_C"),
    Column("p50"),
    Column("p99"),
    Column("busy"),
)


def add(api: Api) -> None:
    """Register the page."""
    add_page(api, "time", 5.0, _TimePage)


class _TimePage:
    """The page of one viewer."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self._samples: list[Any] = []
        self._graph: Any = None
        with frame.body:
            self._none = ui.element("div")
            self._card = ui.element("section").classes("hw-card")
            with self._card:
                title("The last hour, a sample every five seconds")
                ui.label(
                    "Drag the ends of the bar below the charts to see less of it; all charts show the same moments."
                ).classes("hw-soft hw-small")
                self._chart = ui.echart(_options(Series(), frame.theme)).style(f"width: 100%; height: {_height()}px")
            self._moment_card = ui.element("section").classes("hw-card")
            with self._moment_card:
                with ui.element("div").classes("hw-row"):
                    self._moment = title_with_figure("The flow at a moment", "moment")
                    now = ui.button("Now").props("flat dense no-caps")
                self._range = Range("Moment", self._show)
                now.on_click(self._range.follow)
                self._summary = ui.label().classes("hw-soft")
                with ui.element("div").classes("hw-scroll"):
                    self._table = Table(_COLUMNS)

    async def refresh(self) -> None:
        """Show the history as it is now."""
        name = self.frame.flow
        moment_s = None if self._range.follows or not self._samples else self._samples[self._range.at]["at"]
        try:
            self._graph = await self.frame.api.get(of_flow(name, "graph"), 5.0)
            self._samples = await self.frame.api.get(of_flow(name, "metrics/history"), 4.0)
        except ApiError as error:
            if error.status not in (404, 409):
                raise
            self._samples = []
        self._none.clear()
        for card in (self._card, self._moment_card):
            card.set_visibility(bool(self._samples))
        if not self._samples:
            with self._none:
                empty(
                    "No history yet", "The server keeps a sample every five seconds while the flow runs, for an hour."
                )
            return
        self._chart.options.clear()
        self._chart.options.update(_options(series_of(self._samples), self.frame.theme))
        self._chart.update()
        times_s = [sample["at"] for sample in self._samples]  # of which the oldest go, after an hour
        self._range.of(len(times_s), None if moment_s is None else bisect_left(times_s, moment_s))
        self._show()

    def _show(self) -> None:
        if not self._samples or self._graph is None:
            return
        sample = self._samples[self._range.at]
        steps = steps_now(self._graph, sample)
        self._moment.set_text(clock(sample["at"]))
        self._range.say(clock(sample["at"]))
        self._summary.set_text(verdict(steps, sample["process"]["cores"]).summary)
        self._table.show([(step.name, (*cells_of(step), percent(step.busy))) for step in steps])


_CHARTS = (
    "Records/s",
    "Latency, share of records",
    "Latency percentiles, ms",
    "Processor and memory",
    "Event time, and sources held back",
    "Checkpoints",
)


def _height() -> int:
    return _TOP + len(_CHARTS) * (_HEIGHT + _GAP) + _SLIDER


def _options(history: Series, theme: Theme) -> dict[str, Any]:
    """Return the chart: grids one above the other, joined at the time axis."""
    tops = [_TOP + number * (_HEIGHT + _GAP) for number in range(len(_CHARTS))]
    colours = theme.colours
    series = [
        _line("in", history.in_hz, 0, 0, colours[0]),
        _line("out", history.out_hz, 0, 0, colours[2], dashed=True),
        {"type": "heatmap", "xAxisIndex": 1, "yAxisIndex": 1, "data": history.heat, "progressive": 0},
        _line("p50", history.p50_ms, 2, 2, colours[2]),
        _line("p95", history.p95_ms, 2, 2, colours[0], dashed=True),
        _line("p99", history.p99_ms, 2, 2, colours[1], width=2.5),
        _line("cores", history.cores, 3, 3, colours[0]),
        _line("memory, MiB", history.memory_mb, 3, 4, colours[3], dashed=True),
        _line("behind the clock, s", history.lag_s, 4, 5, colours[0]),
        _line("held back, %", history.held, 4, 6, colours[1], dashed=True),
        _line("duration, ms", history.checkpoint_ms, 5, 7, colours[0]),
        _line("size, KiB", history.checkpoint_kb, 5, 8, colours[3], dashed=True),
    ]
    names: tuple[tuple[str, ...], ...] = (
        ("in", "out"),
        (),
        ("p50", "p95", "p99"),
        ("cores", "memory, MiB"),
        ("behind the clock, s", "held back, %"),
        ("duration, ms", "size, KiB"),
    )
    every = list(range(len(_CHARTS)))
    return {
        "animation": False,
        "textStyle": {"fontFamily": "system-ui, sans-serif"},
        "aria": {"enabled": True},
        "tooltip": theme.tooltip(),
        "axisPointer": {"link": [{"xAxisIndex": "all"}], "lineStyle": {"color": theme.soft}},
        "title": [
            {
                "text": text,
                "top": top - 38,
                "left": 4,
                "textStyle": {**theme.text, "color": theme.ink, "fontWeight": 600},
            }
            for text, top in zip(_CHARTS, tops, strict=True)
        ],
        "legend": [
            {
                "data": list(labels),
                "top": top - 40,
                "right": _RIGHT,
                "textStyle": theme.text,
                "itemHeight": 3,
                "itemWidth": 20,
                "icon": "rect",
            }
            for labels, top in zip(names, tops, strict=True)
            if labels
        ],
        "grid": [{"left": _LEFT, "right": _RIGHT, "top": top, "height": _HEIGHT} for top in tops],
        "xAxis": [
            {
                **theme.axis(),
                "type": "category",
                "gridIndex": number,
                "data": history.times,
                "splitLine": {"show": False},
                "axisLabel": {**theme.text, "show": True, "hideOverlap": True},
                "boundaryGap": True,
            }
            for number in every
        ],
        "yAxis": [
            theme.axis(type="value", gridIndex=0, min=0),
            theme.axis(
                type="category",
                gridIndex=1,
                data=[f"≤ {milliseconds(ms)}" for ms in history.bounds_ms],
                axisLabel={**theme.text, "interval": 2},  # a row is lower than a line of text
            ),
            theme.axis(type="value", gridIndex=2, min=0),
            theme.axis(type="value", gridIndex=3, min=0),
            theme.axis(type="value", gridIndex=3, min=0, splitLine={"show": False}),
            theme.axis(type="value", gridIndex=4),
            theme.axis(type="value", gridIndex=4, min=0, max=100, interval=50, splitLine={"show": False}),
            theme.axis(type="value", gridIndex=5, min=0),
            theme.axis(type="value", gridIndex=5, min=0, splitLine={"show": False}),
        ],
        "visualMap": {
            "show": False,
            "type": "continuous",
            "seriesIndex": 2,
            "min": 0,
            "max": 100,
            "inRange": {"color": list(theme.heat)},
        },
        "dataZoom": [
            {
                "type": "slider",
                "xAxisIndex": every,
                "bottom": 14,
                "height": 26,
                "left": _LEFT,
                "right": _RIGHT,
                "borderColor": theme.line,
                "textStyle": theme.text,
                "brushSelect": False,
            }
        ],
        "series": series,
    }


def _line(
    name: str, data: list[Any], x: int, y: int, colour: str, *, dashed: bool = False, width: float = 1.8
) -> dict[str, Any]:
    return {
        "name": name,
        "type": "line",
        "xAxisIndex": x,
        "yAxisIndex": y,
        "data": data,
        "showSymbol": len(data) == 1,
        "connectNulls": False,
        "color": colour,
        "lineStyle": {"type": "dashed" if dashed else "solid", "width": width},
    }
