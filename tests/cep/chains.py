"""Generated chains and records, and how to run a chain through the real operator."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from brute import Brute, Happening, events_in, flatten
from hypothesis import strategies as st

from headwater.cep import syntax as s
from headwater.cep.printer import query_text
from headwater.data.batch import END
from headwater.flow import Batch, Flow, Schema
from headwater.io import Items

SCHEMA = Schema.of({"id": int, "key": str, "x": int, "y": float, "t": "time"})
SECOND = 1_000_000


def number(n: int) -> s.Constant:
    return s.Constant(n)


@st.composite
def conditions(draw: Any, refs: list[tuple[str, bool]], plain: bool) -> tuple[s.Value, ...]:
    """Up to two conditions on the record itself or on an earlier event."""
    found: list[s.Value] = []
    for _ in range(draw(st.integers(0, 2))):
        column = draw(st.sampled_from("xy"))
        op = draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]))
        mine: s.Value = s.Attribute(column)
        if refs and draw(st.integers(0, 3)):
            ref, counted = draw(st.sampled_from(refs))
            index = draw(st.sampled_from([None, s.Index(False, 0), s.Index(True, 1)])) if counted else None
            other: s.Value = s.Attribute(draw(st.sampled_from("xy")), ref, index)
            if draw(st.booleans()):
                other = s.Operation("+", (other, number(draw(st.integers(-1, 1)))))
        else:
            other = number(draw(st.integers(0, 3)))
        sides = (mine, other) if draw(st.booleans()) else (other, mine)
        condition: s.Value = s.Operation(op, sides)
        if not plain and draw(st.integers(0, 4)) == 0:
            condition = s.Operation("or", (condition, s.IsNull(s.Attribute("y"))))
        found.append(condition)
    return tuple(found)


@st.composite
def chains(draw: Any, *, plain: bool, streams: str = "a", strict: bool | None = None) -> s.Chain:
    """A pattern or sequence; a plain one is what the compiled matchers take."""
    kind = draw(st.sampled_from(["pattern", "sequence"])) if strict is None else "sequence" if strict else "pattern"
    refs: list[tuple[str, bool]] = []
    count = [0]

    def event(times: bool) -> s.Event:
        count[0] += 1
        ref = f"e{count[0]}"
        filters = draw(conditions(refs, plain))
        most = draw(st.integers(1, 3))
        bounds = (draw(st.integers(0, most)), draw(st.sampled_from([most, None])))
        often = s.Times(*bounds) if times and not plain and draw(st.integers(0, 2)) == 0 else None
        made = s.Event(draw(st.sampled_from(streams)), ref, filters, often)
        refs.append((ref, often is not None))
        return made

    def absent(timed: bool) -> s.Absent:
        wait = s.Span(((draw(st.integers(1, 4)), "sec"),)) if timed or draw(st.booleans()) else None
        return s.Absent(draw(st.sampled_from(streams)), draw(conditions(refs, plain)), wait)

    def part() -> s.Event | s.Absent | s.Both:
        shape = 0 if plain else draw(st.sampled_from([0, 0, 0, 1, 2, 3]))
        if shape == 1 and kind == "pattern":
            return absent(timed=True)
        if shape == 2:
            return s.Both(draw(st.sampled_from(["and", "or"])), event(times=False), event(times=False))
        if shape == 3 and kind == "pattern":
            op = draw(st.sampled_from(["and", "or"]))
            return s.Both(op, absent(timed=op == "or"), event(times=False))
        return event(times=True)

    length = draw(st.integers(1, 4))
    links = [s.Link(part()) for _ in range(length)]
    every = draw(st.sampled_from(["first", "none"] if plain else ["first", "none", "group", "inner"]))
    if every == "first":
        links[0] = s.Link(links[0].what, True)
    elif every == "group" and length > 1:
        size = draw(st.integers(2, length))
        links = [s.Link(s.Group(tuple(links[:size])), True), *links[size:]]
    elif every == "inner" and length > 1:
        links[1] = s.Link(links[1].what, True)
    within = s.Span(((draw(st.integers(1, 6)), "sec"),)) if draw(st.booleans()) else None
    if length == 1:
        kind = "pattern"  # one event alone is neither; it is read as a pattern
    return s.Chain(kind, tuple(links), within)


@st.composite
def happenings(draw: Any, *, streams: str = "a", most: int = 24) -> list[Happening]:
    """Records of few different values, in order of time."""
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(1 if len(streams) > 1 else 0, 3),
                st.sampled_from(streams),
                st.integers(0, 3),
                st.sampled_from([0.0, 1.0, 2.0, 2.5, None, float("nan")]),
                st.sampled_from("kkkl"),
            ),
            max_size=most,
        )
    )
    time, found = 0, []
    for i, (step, stream, x, y, key) in enumerate(rows):
        time += step * SECOND
        found.append(Happening(stream, time, {"id": i, "key": key, "x": x, "y": y, "t": time}))
    return found


def selection(chain: s.Chain) -> tuple[s.SelectItem, ...]:
    """Select the id of every record that an event may have taken, up to three."""
    stages, _ = flatten(chain.links)
    found = []
    for event in [event for stage in stages for event in events_in(stage)]:
        places = [s.Index(False, n) for n in range(3)] if event.times else [None]
        for n, place in enumerate(places):
            found.append(s.SelectItem(s.Attribute("id", event.ref, place), f"{event.ref}_{n}"))
    return tuple(found) or (s.SelectItem(s.Constant(1), "one"),)


def step_of(text: str, **options: Any) -> tuple[Any, list[str]]:
    """Return the step of a query over streams a and b, and the streams it reads in order of its ports."""
    flow = Flow("test")
    for name in "ab":
        flow.read(f"read {name}", Items([], SCHEMA)).event_time(name, "t")
    flow.query("q", text, **options)
    step = flow.steps["q"]
    return step, [given.step for given in step.inputs]


def operator_of(chain: s.Chain, *, partition: bool = False, **options: Any) -> Any:
    """Return the operator that a flow would run for this chain, and the streams it reads in order of its ports."""
    query: Any = s.Query(chain, selection(chain))
    if partition:
        query = s.Partition((("key", "a"), ("key", "b")), (query,))
    step, ports = step_of(query_text(s.App((query,))), **options)
    return step.kind.make, ports


def run(
    make: Any,
    ports: list[str],
    events: list[Happening],
    cuts: list[int],
    *,
    saved: bool = False,
    to_end: bool = True,
) -> list[dict[str, Any]]:
    """Run records through an operator in batches; with `saved`, a new operator takes over after each batch."""
    operator = make()
    found: list[dict[str, Any]] = []
    edges = [0, *sorted({cut % (len(events) + 1) for cut in cuts}), len(events)]
    for start, stop in pairwise(edges):
        part = events[start:stop]
        for port, stream in enumerate(ports):
            rows = [event.record for event in part if event.stream == stream]
            if rows:
                found += rows_of(operator.process(batch_of(rows), port))
        if part:
            found += rows_of(operator.advance(part[-1].time))
        if saved:
            data = operator.snapshot()
            operator = make()
            operator.restore(data)
    return found + (rows_of(operator.advance(END)) if to_end else [])


def batch_of(rows: list[dict[str, Any]]) -> Batch:
    return Batch.of_rows(rows, SCHEMA)


def rows_of(output: Any) -> list[dict[str, Any]]:
    if output is None:
        return []
    parts = [(0, output)] if isinstance(output, Batch) else output
    return [row for port, batch in parts if port == 0 for row in batch.rows()]


def expected(
    chain: s.Chain, events: list[Happening], ports: list[str], *, partition: bool = False, last: int | None = None
) -> list[dict[str, Any]]:
    """Return what the brute-force matcher finds until a moment, the last record's unless given, as rows of the selection."""
    heard = [event for event in events if event.stream in ports]
    if last is None:
        last = heard[-1].time if heard else 0
    keys = sorted({event.record["key"] for event in heard}) if partition else [None]
    found = []
    for key in keys:
        own = [event for event in heard if key is None or event.record["key"] == key]
        for taken in Brute(chain, own, last).run():
            row: dict[str, Any] = {}
            for item in selection(chain):
                if isinstance(item.value, s.Attribute):
                    records = taken.get(item.value.ref, [])
                    place = item.value.index.offset if item.value.index else 0
                    row[item.name] = records[place]["id"] if place < len(records) else None
                else:
                    row[item.name] = 1
            found.append(row)
    return found


def canonical(rows: list[dict[str, Any]]) -> list[Any]:
    return sorted((tuple(sorted(row.items(), key=lambda item: item[0])) for row in rows), key=repr)
