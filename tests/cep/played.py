"""Runs a query's steps batch by batch, with marks of time as runners send them: a test cuts batches as it likes."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

from headwater.data.batch import END, NO_WATERMARK
from headwater.flow import Batch, Flow, Schema
from headwater.flow.steps import EventTime
from headwater.io import Items
from headwater.operators import build

SECOND = 1_000_000
SCHEMA = Schema.of({"id": int, "key": str, "x": int, "t": "time", "u": int})


class Played:
    """A flow's steps, run one batch at a time, with marks of time as runners send them."""

    def __init__(self, flow: Flow, last: str) -> None:
        self._steps = [step for step in flow.steps.values() if step.inputs]
        self._operators = {step.name: build(step) for step in self._steps}
        self._marks = {step.name: [NO_WATERMARK] * len(step.inputs) for step in self._steps}
        self._last, self.found = last, []  # type: ignore[var-annotated]

    def move(self) -> None:
        """Let new operators take over from the old ones."""
        for step in self._steps:
            data = self._operators[step.name].snapshot()
            self._operators[step.name] = build(step)
            self._operators[step.name].restore(data)

    def send(self, sender: str, batch: Batch | None, watermark: int) -> None:
        if sender == self._last and batch is not None:
            self.found += batch.rows()
        for step in self._steps:
            for port, given_ in enumerate(step.inputs):
                if given_.step == sender:
                    self._take(step, port, batch, watermark)

    def _take(self, step: Any, port: int, batch: Batch | None, watermark: int) -> None:
        operator, marks = self._operators[step.name], self._marks[step.name]
        if batch is not None and batch.length:
            for out in _outputs(operator.process(batch, port)):
                self.send(step.name, out, out.watermark if isinstance(step.kind, EventTime) else NO_WATERMARK)
        before, marks[port] = min(marks), max(marks[port], watermark)
        if min(marks) > before:
            for out in _outputs(operator.advance(min(marks))):
                self.send(step.name, out, NO_WATERMARK)
            self.send(step.name, None, min(marks))


def _outputs(output: Any) -> list[Batch]:
    parts = [(0, output)] if isinstance(output, Batch) else output or []
    return [batch for port, batch in parts if port == 0]


@cache  # a property plays one query with many records: to read its text would take as long as all of them
def _flow(query: str, lateness: str) -> Flow:
    flow = Flow("test")
    for name in "ab":
        flow.read(f"read {name}", Items([], SCHEMA)).event_time(name, "t", lateness=lateness)
    flow.query("q", query)
    return flow


def results(
    query: str,
    records: list[tuple[str, dict[str, Any]]],
    cuts: list[int],
    lateness: str = "2 s",
    *,
    moved: bool = False,
) -> list[dict[str, Any]]:
    """Run a query over records of the streams a and b, cut into batches at these places; `moved` after each."""
    played = Played(_flow(query, lateness), "q")
    edges = [0, *sorted({cut % (len(records) + 1) for cut in cuts}), len(records)]
    for start, stop in pairwise(edges):
        for stream in "ab":
            rows = [record for name, record in records[start:stop] if name == stream]
            if rows:
                played.send(f"read {stream}", Batch.of_rows(rows, SCHEMA), NO_WATERMARK)
        if moved:
            played.move()
    for stream in "ab":
        played.send(f"read {stream}", None, END)
    return played.found
