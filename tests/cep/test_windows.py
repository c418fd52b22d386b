"""Windows and joins agree with plain loops over all records, whatever the batches and the moves between machines."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from brute import Happening
from chains import SCHEMA, batch_of, happenings, rows_of, run, step_of
from hypothesis import given
from hypothesis import strategies as st

from headwater.flow import Batch
from headwater.operators import build
from properties import examples

cuts = st.lists(st.integers(0, 30), max_size=4)
ALL = "sum(x) as s, avg(y) as m, min(y) as lo, max(x) as hi, count() as n, stdDev(x) as sd, distinctCount(key) as d"


def steps_of(query: str) -> tuple[Any, list[str]]:
    """Return how to make the operator of a query's last step, and the streams it reads."""
    step, ports = step_of(query)
    return lambda: build(step), ports


def play(
    query: str, events: list[Happening], at: list[int], *, saved: bool = False, to_end: bool = True
) -> list[dict[str, Any]]:
    """Run a query over records in batches; with `saved`, a new operator takes over after each."""
    return run(*steps_of(query), events, at, saved=saved, to_end=to_end)


def aggregated(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Compute what `ALL` selects from a window's records, missing values passed over."""
    xs = [row["x"] for row in rows]
    ys = [row["y"] for row in rows if row["y"] is not None]
    real = [y for y in ys if not math.isnan(y)]
    return {
        "s": sum(xs),
        "m": sum(ys) / len(ys) if ys else None,
        "lo": min(real) if real else None,
        "hi": max(xs),
        "n": len(rows),
        "sd": statistics.pstdev(xs),
        "d": len({row["key"] for row in rows}),
    }


def same(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    assert len(found) == len(wanted)
    for one, two in zip(found, wanted, strict=True):
        assert one.keys() == two.keys()
        for name, value in two.items():
            if isinstance(value, float):
                assert one[name] == pytest.approx(value, nan_ok=True, abs=1e-9), name
            else:
                assert one[name] == value, name


def slid(events: list[Happening], inside: Callable[[int, int], bool], group: bool = False) -> list[dict[str, Any]]:
    """Aggregate, for each record, the records `inside` its window and, with `group`, of its key."""
    found = []
    for i, event in enumerate(events):
        rows = [
            earlier.record
            for j, earlier in enumerate(events[: i + 1])
            if inside(j, i) and (not group or earlier.record["key"] == event.record["key"])
        ]
        found.append(aggregated(rows))
    return found


@examples(60)
@given(happenings(), st.integers(1, 5), cuts, st.booleans(), st.booleans())
def test_a_length_window_slides_over_the_last_records(
    events: Any, size: int, at: Any, saved: bool, group: bool
) -> None:
    by = " group by key" if group else ""
    found = play(f"from a#window.length({size}) select {ALL}{by}", events, at, saved=saved)
    same(found, slid(events, lambda j, i: i - j < size, group))


@examples(60)
@given(
    happenings(), st.integers(1, 5), cuts, st.booleans(), st.sampled_from(["time({} sec)", "externalTime(t, {} sec)"])
)
def test_a_time_window_slides_over_the_last_seconds(events: Any, size: int, at: Any, saved: bool, form: str) -> None:
    found = play(f"from a#window.{form.format(size)} select {ALL}", events, at, saved=saved)
    times = [event.time for event in events]
    same(found, slid(events, lambda j, i: times[j] > times[i] - size * 1_000_000))


@examples(40)
@given(happenings(), cuts, st.booleans())
def test_without_a_window_aggregates_run_on_forever(events: Any, at: Any, saved: bool) -> None:
    query = "from a select key, sum(x) as s, max(x) as hi, count() as n group by key"
    found = play(query, events, at, saved=saved)
    whole = slid(events, lambda j, i: True, True)
    same(
        found,
        [
            {"key": e.record["key"], **{k: row[k] for k in ("s", "hi", "n")}}
            for e, row in zip(events, whole, strict=True)
        ],
    )


def batched(
    events: list[Happening], number: Callable[[int], int], closed: Callable[[int], bool]
) -> list[dict[str, Any]]:
    groups: dict[int, list[dict[str, Any]]] = {}
    for i, event in enumerate(events):
        groups.setdefault(number(i), []).append(event.record)
    return [aggregated(rows) for n, rows in sorted(groups.items()) if closed(n)]


@examples(40)
@given(happenings(), st.integers(1, 5), cuts, st.booleans())
def test_a_length_batch_gives_one_result_when_it_is_full(events: Any, size: int, at: Any, saved: bool) -> None:
    events = [e for e in events if e.record["y"] is not None and not math.isnan(e.record["y"])]
    found = play(f"from a#window.lengthBatch({size}) select {ALL}", events, at, saved=saved)
    same(found, batched(events, lambda i: i // size, lambda n: (n + 1) * size <= len(events)))


@examples(40)
@given(happenings(), st.integers(1, 5), cuts, st.booleans())
def test_a_time_batch_begins_with_its_first_record(events: Any, size: int, at: Any, saved: bool) -> None:
    events = [e for e in events if e.record["y"] is not None and not math.isnan(e.record["y"])]
    found = play(f"from a#window.timeBatch({size} sec) select {ALL}", events, at, saved=saved)
    first = events[0].time if events else 0
    same(found, batched(events, lambda i: (events[i].time - first) // (size * 1_000_000), lambda n: True))


@examples(40)
@given(happenings(), st.integers(1, 2), cuts, st.booleans())
def test_a_session_ends_after_a_pause(events: Any, gap: int, at: Any, saved: bool) -> None:
    events = [e for e in events if e.record["y"] is not None and not math.isnan(e.record["y"])]
    found = play(f"from a#window.session({gap} sec) select {ALL}", events, at, saved=saved)
    numbers, n = [], 0
    for i, event in enumerate(events):
        n += i > 0 and event.time - events[i - 1].time > gap * 1_000_000
        numbers.append(n)
    same(found, batched(events, lambda i: numbers[i], lambda n: True))


@examples(30)
@given(happenings(), st.integers(1, 4), cuts, st.booleans())
def test_each_part_of_a_partition_has_a_window_of_its_own(events: Any, size: int, at: Any, saved: bool) -> None:
    query = f"partition with (key of a) begin from a#window.length({size}) select key, {ALL} end"
    found = play(query, events, at, saved=saved)
    for key in "kl":
        own = [event for event in events if event.record["key"] == key]
        mine = [{n: v for n, v in row.items() if n != "key"} for row in found if row["key"] == key]
        same(mine, slid(own, lambda j, i: i - j < size))


def test_sums_do_not_drift_when_large_values_come_and_go() -> None:
    make, _ = steps_of("from a#window.length(3) select sum(y) as s, stdDev(y) as sd")
    rng = np.random.default_rng(1)
    ys = rng.random(30_000) * np.where(rng.random(30_000) < 0.3, 1e12, 1.0)
    n = len(ys)
    columns = {"id": np.arange(n), "key": ["k"] * n, "x": np.zeros(n, int), "y": ys, "t": np.arange(n)}
    out = make().process(Batch.of(columns, SCHEMA), 0)
    exact = [math.fsum(ys[max(0, i - 2) : i + 1]) for i in range(n)]
    assert np.allclose(out["s"], exact, rtol=1e-12, atol=1e-9)


def test_an_infinite_value_leaves_the_window_without_a_trace() -> None:
    make, _ = steps_of("from a#window.length(2) select sum(y) as s")
    ys = [1.0, math.inf, -math.inf, 2.0, math.nan, 3.0, 4.0]
    rows = [{"id": i, "key": "k", "x": 0, "y": y, "t": i} for i, y in enumerate(ys)]
    out = [row["s"] for row in rows_of(make().process(batch_of(rows), 0))]
    assert str(out) == str([1.0, math.inf, math.nan, -math.inf, math.nan, math.nan, 7.0])


# -- joins -----------------------------------------------------------------------------------------------------------------


def joined(
    events: list[Happening], windows: dict[str, tuple[str, int]], holds: Callable[[Any, Any], bool], outer: str
) -> list[Any]:
    """Pair each record with what the other side's window holds when it comes."""
    found, held = [], {"a": [], "b": []}  # type: ignore[var-annotated]
    for event in events:
        other = "b" if event.stream == "a" else "a"
        kind, size = windows[other]
        inside = (
            held[other][-size:]
            if kind == "length"
            else [h for h in held[other] if h.time > event.time - size * 1_000_000]
        )
        pairs = []
        for partner in inside:
            a, b = (event, partner) if event.stream == "a" else (partner, event)
            if holds(a.record, b.record):
                pairs.append({"l": a.record["id"], "r": b.record["id"]})
        if not pairs and outer in (event.stream, "ab"):
            pairs = [
                {"l": event.record["id"], "r": None} if event.stream == "a" else {"l": None, "r": event.record["id"]}
            ]
        found += pairs
        held[event.stream].append(event)
    return found


@examples(80)
@given(
    happenings(streams="ab"),
    st.tuples(st.sampled_from(["length", "time"]), st.integers(1, 4)),
    st.tuples(st.sampled_from(["length", "time"]), st.integers(1, 4)),
    st.sampled_from([("join", ""), ("left outer join", "a"), ("right outer join", "b"), ("full outer join", "ab")]),
    st.sampled_from(["l.key == r.key", "l.x == r.x and l.y < r.y", "l.x + 1 == r.x and l.key == r.key", "l.x > r.x"]),
    cuts,
    st.booleans(),
)
def test_a_join_pairs_records_while_they_are_in_their_windows(
    events: Any, left: Any, right: Any, kind: Any, on: str, at: Any, saved: bool
) -> None:
    def window(kind: str, size: int) -> str:
        return f"length({size})" if kind == "length" else f"time({size} sec)"

    def holds(a: Any, b: Any) -> bool:
        ys = a["y"] is not None and b["y"] is not None and a["y"] < b["y"]
        return {
            "l.key == r.key": a["key"] == b["key"],
            "l.x == r.x and l.y < r.y": a["x"] == b["x"] and ys,
            "l.x + 1 == r.x and l.key == r.key": a["x"] + 1 == b["x"] and a["key"] == b["key"],
            "l.x > r.x": a["x"] > b["x"],
        }[on]

    word, outer = kind
    query = (
        f"from a#window.{window(*left)} as l {word} b#window.{window(*right)} as r on {on} select l.id as l, r.id as r"
    )
    found = play(query, events, at, saved=saved)
    assert found == joined(events, {"a": left, "b": right}, holds, outer)
