"""No result of a query depends on how its records were batched, late records and other columns of time included."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import engine
from headwater.flow import Batch, Flow, Schema
from headwater.flow.batch import END, NO_WATERMARK
from headwater.flow.steps import EventTime
from headwater.io import Collect, Items
from headwater.operators import build

SECOND = 1_000_000
SCHEMA = Schema.of({"id": int, "key": str, "x": int, "t": "time", "u": int})
AGGREGATES = "count() as n, sum(x) as s, min(id) as first, max(id) as last"


class Played:
    """A flow's steps, run one batch at a time, with marks of time as runners send them."""

    def __init__(self, flow: Flow, last: str) -> None:
        self._steps = [step for step in flow.steps.values() if step.inputs]
        self._operators = {step.name: build(step) for step in self._steps}
        self._marks = {step.name: [NO_WATERMARK] * len(step.inputs) for step in self._steps}
        self._last, self.found = last, []  # type: ignore[var-annotated]

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


def results(
    query: str, records: list[tuple[str, dict[str, Any]]], cuts: list[int], lateness: str = "2 s"
) -> list[dict[str, Any]]:
    """Run a query over records of the streams a and b, cut into batches at these places."""
    flow = Flow("test")
    for name in "ab":
        flow.read(f"read {name}", Items([], SCHEMA)).event_time(name, "t", lateness=lateness)
    flow.query("q", query)
    played = Played(flow, "q")
    edges = [0, *sorted({cut % (len(records) + 1) for cut in cuts}), len(records)]
    for start, stop in pairwise(edges):
        for stream in "ab":
            rows = [record for name, record in records[start:stop] if name == stream]
            if rows:
                played.send(f"read {stream}", Batch.of_rows(rows, SCHEMA), NO_WATERMARK)
    for stream in "ab":
        played.send(f"read {stream}", None, END)
    return played.found


@st.composite
def arrivals(draw: Any, streams: str, late: bool) -> list[tuple[str, dict[str, Any]]]:
    """Records out of order by up to two seconds, with `late` by more, each with a time of its own in `u`."""
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(0, 3),
                st.integers(0, 9 if late else 2),
                st.sampled_from(streams),
                st.integers(0, 3),
                st.sampled_from("kkl"),
                st.integers(0, 2),
            ),
            max_size=20,
        )
    )
    now, other, found = 100, 0, []
    for i, (step, back, stream, x, key, more) in enumerate(rows):
        now, other = now + step, other + more
        found.append((stream, {"id": i, "key": key, "x": x, "t": (now - back) * SECOND, "u": other * SECOND}))
    return found


WINDOWS = [
    "length(3)", "time(3 sec)", "externalTime(t, 3 sec)", "externalTime(u, 3 sec)", "lengthBatch(3)", "timeBatch(3 sec)",
    "externalTimeBatch(t, 3 sec)", "externalTimeBatch(u, 3 sec)", "session(2 sec)", "session(2 sec, key)",
]  # fmt: skip
cuts = st.lists(st.integers(0, 30), max_size=6)
one_by_one = list(range(40))


@pytest.mark.parametrize("window", WINDOWS)
@settings(max_examples=40, deadline=None)
@given(arrivals("a", late=True), cuts, st.booleans(), st.booleans(), st.booleans())
def test_no_window_depends_on_batching(
    window: str, records: Any, at: list[int], group: bool, chosen: bool, parted: bool
) -> None:
    query = f"from a{'[x > 0]' if chosen else ''}#window.{window} select key, {AGGREGATES}{' group by key' if group else ''}"
    if parted:
        query = f"partition with (key of a) begin {query} end"
    whole = per_key(results(query, records, []), query)
    assert per_key(results(query, records, at), query) == whole
    assert per_key(results(query, records, one_by_one), query) == whole


def per_key(rows: list[dict[str, Any]], query: str) -> Any:
    """Return rows as they came; of windows by key, each key's for itself."""
    if "partition" not in query and ", key)" not in query:
        return rows
    return {key: [row for row in rows if row["key"] == key] for key in "kl"}


@pytest.mark.parametrize("take", ["all", 1, 5])
@pytest.mark.parametrize(
    ("window", "counts"), [("externalTimeBatch", [4, 4, 4]), ("externalTime", [1, 2, 3] + 9 * [4])]
)
def test_a_window_that_names_its_column_goes_by_no_other(take: Any, window: str, counts: list[int]) -> None:
    records = [{"t": (100 + 7 * i) * SECOND, "u": i * SECOND} for i in range(12)]
    flow = Flow("test")
    flow.read("read", Items(records, {"t": "time", "u": "time"})).event_time("a", "t")
    found = Collect()
    flow.query("q", f"from a#window.{window}(u, 4 sec) select count() as n").write("out", found)
    engine.run(flow, take=take)
    assert [row["n"] for row in found.records] == counts


def test_a_record_without_the_time_of_its_window_is_a_dead_letter() -> None:
    records: list[dict[str, Any]] = [{"u": 1 * SECOND}, {"u": None}, {"u": 2 * SECOND}]
    flow = Flow("test")
    found, dead = Collect(), Collect()
    flow.read("a", Items(records, {"u": "time"}))
    flow.query("q", "from a#window.externalTime(u, 4 sec) select count() as n").write("out", found)
    flow.dead_letters.write("dead", dead)
    engine.run(flow)
    assert [row["n"] for row in found.records] == [1, 2]
    assert [row["error"] for row in dead.records] == ["the time, 'u', is missing"]
