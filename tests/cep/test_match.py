"""Patterns and sequences agree with a brute-force matcher, whatever the matcher and however their records come."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from brute import Happening
from chains import batch_of, canonical, chains, expected, happenings, operator_of, rows_of, run
from hypothesis import given
from hypothesis import strategies as st

from headwater.cep import parse
from headwater.cep import syntax as s
from headwater.cep.matchers.comparison import comparisons
from headwater.data.batch import END, Batch
from headwater.flow.steps import EventTime
from headwater.operators.operator import Select, spread
from headwater.operators.time import EventTimeOperator
from properties import examples

cuts = st.lists(st.integers(0, 30), max_size=4)


@examples(300)
@given(chains(plain=True), happenings(), cuts)
def test_compiled_matchers_agree_with_brute_force(chain: s.Chain, events: list[Happening], at: list[int]) -> None:
    make, ports = operator_of(chain)
    assert comparisons(make.automaton) is not None
    assert canonical(run(make, ports, events, at)) == canonical(expected(chain, events, ports))


@examples(400)
@given(chains(plain=False), happenings(), cuts)
def test_all_matchers_agree_with_brute_force(chain: s.Chain, events: list[Happening], at: list[int]) -> None:
    make, ports = operator_of(chain)
    wanted = canonical(expected(chain, events, ports))
    assert canonical(run(make, ports, events, at)) == wanted
    assert canonical(run(replace(make, interpreted=True), ports, events, at)) == wanted


@pytest.mark.parametrize(
    ("text", "matcher"),
    [
        ("every e1=a -> e2=a[x > e1.x]", "PatternMatcher"),
        ("every e1=a, e2=a[x > e1.x]", "SequenceMatcher"),
        ("every e1=a<2:5> -> e2=a[x > e1[0].x]", "NfaMatcher"),
        ("every e1=a+, e2=a[x > e1[last].x]", "NfaMatcher"),
        ("every e1=a -> e2=a[x > e1.x] and e3=b", "NfaMatcher"),
        ("every e1=a -> e2=a[x > e1.x] or e3=b", "NfaMatcher"),
        ("every e1=a -> not b[x == e1.x] for 5 sec", "NfaMatcher"),
        ("every (e1=a -> e2=b)", "NfaMatcher"),
        ("e1=a -> every e2=b", "Interpreter"),
        ("every e1=a -> e2=b -> e3=a[x > e1.x + e2.x]", "Interpreter"),
        ("every e1=a -> e2=b[x > e1.x or y is null]", "Interpreter"),
    ],
)
def test_the_shape_of_a_chain_decides_which_matcher_runs_it(text: str, matcher: str) -> None:
    chain = parse(f"from {text} select e1.id as i").statements[0].source  # type: ignore[union-attr]
    assert type(operator_of(chain)[0]()._matcher).__name__ == matcher


@examples(200)
@given(chains(plain=False, streams="ab"), happenings(streams="ab"), cuts)
def test_several_streams_are_matched_in_order_of_time(chain: s.Chain, events: list[Happening], at: list[int]) -> None:
    make, ports = operator_of(chain)
    assert canonical(run(make, ports, events, at)) == canonical(expected(chain, events, ports))


@examples(150)
@given(chains(plain=True, streams="ab"), happenings(streams="ab"), cuts)
def test_a_chain_of_several_streams_is_compiled_too(chain: s.Chain, events: list[Happening], at: list[int]) -> None:
    make, ports = operator_of(chain)
    assert comparisons(make.automaton) is not None
    assert canonical(run(make, ports, events, at)) == canonical(expected(chain, events, ports))


@examples(150)
@given(st.booleans().flatmap(lambda plain: chains(plain=plain)), happenings(), cuts)
def test_each_key_of_a_partition_is_matched_alone(chain: s.Chain, events: list[Happening], at: list[int]) -> None:
    make, ports = operator_of(chain, partition=True)
    assert canonical(run(make, ports, events, at)) == canonical(expected(chain, events, ports, partition=True))


@examples(150)
@given(st.booleans().flatmap(lambda plain: chains(plain=plain, streams="ab")), happenings(streams="ab"), cuts)
def test_a_chain_that_moves_between_machines_finds_the_same(
    chain: s.Chain, events: list[Happening], at: list[int]
) -> None:
    make, ports = operator_of(chain, partition=True)
    assert run(make, ports, events, at, saved=True) == run(make, ports, events, at)


@examples(60)
@given(st.booleans().flatmap(lambda plain: chains(plain=plain)), happenings(), st.integers(0, 24))
def test_keys_can_move_one_part_at_a_time(chain: s.Chain, events: list[Happening], at: int) -> None:
    make, ports = operator_of(chain, partition=True)
    whole, moved = make(), make()
    found: list[dict[str, object]] = []
    before, after = events[:at], events[at:]
    if before:
        found += rows_of(whole.process(batch_of([e.record for e in before]), 0))
    for part in range(2):
        moved.restore(whole.snapshot(Select(part, 2)))
        whole.forget(Select(part, 2))
    assert whole.partial_matches == 0
    if after:
        found += rows_of(moved.process(batch_of([e.record for e in after]), 0))
    if events:
        found += rows_of(moved.advance(events[-1].time))  # what one key's records say does not reach the others
    found += rows_of(moved.advance(END))
    assert canonical(found) == canonical(expected(chain, events, ports, partition=True))


TIMED = [
    "every e1=a[x > 1] -> e2=a[x < 2] within 3 sec", "e1=a[x > 1] -> e2=a[x < 2] within 2 sec",
    "every e1=a, e2=a[x > e1.x] within 2 sec", "every e1=a<2:3> -> e2=a[x == 0] within 4 sec",
    "every e1=a[x > 1] -> not a[x == e1.x] for 2 sec", "e1=a -> every e2=a[x > e1.x] within 3 sec",
]  # fmt: skip


@pytest.mark.parametrize("text", TIMED)
def test_the_time_of_a_key_is_that_of_its_own_records(text: str) -> None:
    """Records come out of order, some of them late: other keys, and where those are, make no difference."""
    chain = parse(f"from {text} select e1.id as i").statements[0].source  # type: ignore[union-attr]
    draw = Random(text)
    for _ in range(25):
        now, events = 0, []
        for i in range(16):
            now += draw.randint(0, 2)
            at = (now - draw.choice([0, 0, 1, 2, 5])) * 1_000_000
            record = {"id": i, "key": draw.choice("kl"), "x": draw.randint(0, 3), "y": 0.0, "t": at}
            events.append(Happening("a", at, record))
        assert_time_is_that_of_keys(chain, events, [draw.randint(1, 15), draw.randint(1, 15)])


@examples(100)
@given(
    st.booleans().flatmap(lambda plain: chains(plain=plain)),
    happenings(),
    st.lists(st.integers(0, 6), min_size=24, max_size=24),
    cuts,
)
def test_chains_of_all_shapes_go_by_the_time_of_their_key(
    chain: s.Chain, events: list[Happening], behind: list[int], at: list[int]
) -> None:
    events = [_sent(event, back * 1_000_000) for event, back in zip(events, behind, strict=False)]
    assert_time_is_that_of_keys(chain, events, at)


def assert_time_is_that_of_keys(chain: s.Chain, events: list[Happening], at: list[int]) -> None:
    make, ports = operator_of(chain, partition=True)
    wanted = canonical(_each_key_alone(chain, events, ports))
    for plan in (make, replace(make, interpreted=True)):
        for instances, moves in ((1, False), (3, False), (1, True), (3, True)):
            assert canonical(_shared_out(plan, events, at, instances, moves=moves)) == wanted


def _sent(event: Happening, back: int) -> Happening:
    return Happening(event.stream, event.time - back, {**event.record, "t": event.time - back})


LATENESS = 2_000_000


def _each_key_alone(chain: s.Chain, events: list[Happening], ports: list[str]) -> list[dict[str, object]]:
    """Return what brute force finds for each key: a record counts as of its key's newest, or the watermark before it."""
    newest = max((event.time for event in events), default=0)
    watermark = min((event.time for event in events), default=0) - LATENESS
    clocks: dict[object, int] = {}
    seen = []
    for event in events:
        key = event.record["key"]
        clocks[key] = max(event.time, watermark, clocks.get(key, event.time))
        seen.append(Happening(event.stream, clocks[key], event.record))
        watermark = max(watermark, event.time - LATENESS)
    found: list[dict[str, object]] = []
    for key in clocks:
        last = max(newest - LATENESS, clocks[key])
        found += expected(chain, [event for event in seen if event.record["key"] == key], ports, last=last)
    return found


def _shared_out(
    make: Any, events: list[Happening], cuts: list[int], instances: int, *, moves: bool
) -> list[dict[str, object]]:
    """Run records by event time through instances that have the keys among them; each may move after each batch."""
    clock = EventTimeOperator(EventTime("t", LATENESS, 2**61), "clock")
    operators = [make() for _ in range(instances)]
    found: list[dict[str, object]] = []
    edges = [0, *sorted({cut % (len(events) + 1) for cut in cuts}), len(events)]
    for start, stop in pairwise(edges):
        if start == stop:
            continue
        stamped = clock.process(batch_of([event.record for event in events[start:stop]]), 0)
        for part in [stamped] if isinstance(stamped, Batch) else [batch for _, batch in stamped or []]:
            for operator, own in zip(operators, spread(part, ["key"], instances), strict=True):
                found += rows_of(operator.process(own, 0)) if own is not None else []
            for operator in operators:
                found += rows_of(operator.advance(part.watermark))
        if moves:
            saved = [operator.snapshot() for operator in operators]
            operators = [make() for _ in saved]
            for operator, data in zip(operators, saved, strict=True):
                operator.restore(data)
    return found + [row for operator in operators for row in rows_of(operator.advance(END))]


@examples(60)
@given(st.booleans().flatmap(lambda plain: chains(plain=plain)), happenings(), cuts, st.integers(1, 4))
def test_both_matchers_evict_the_oldest_at_the_cap(
    chain: s.Chain, events: list[Happening], at: list[int], cap: int
) -> None:
    make, _ = operator_of(chain, cap=cap)
    interpreted = replace(make, interpreted=True)
    fast, slow = make(), interpreted()
    for start, stop in ((0, len(events) // 2), (len(events) // 2, len(events))):
        if rows := [event.record for event in events[start:stop]]:
            assert canonical(rows_of(fast.process(batch_of(rows), 0))) == canonical(
                rows_of(slow.process(batch_of(rows), 0))
            )
            assert (fast.partial_matches, fast.evicted) == (slow.partial_matches, slow.evicted)
            assert fast.partial_matches <= cap


@pytest.mark.parametrize("texts", [1, 300])
def test_records_that_no_partial_match_holds_are_forgotten(monkeypatch: pytest.MonkeyPatch, texts: int) -> None:
    monkeypatch.setattr("headwater.cep.matchers.compiled.COMPACT_ROWS", 8)
    text = "from every e1=a[x == 1] -> e2=a[y > e1.y and key != e1.key] within 9 sec select e1.id as i"
    chain = parse(text).statements[0].source  # type: ignore[union-attr]
    events = []
    for i in range(300):
        record = {"id": i, "key": f"k{i % texts}", "x": i % 4, "y": float(i % 7), "t": i * 1_000_000}
        events.append(Happening("a", i * 1_000_000, record))
    make, ports = operator_of(chain)
    found = run(make, ports, events, list(range(0, 300, 7)))
    assert canonical(found) == canonical(expected(chain, events, ports))
    assert bool(found) == (texts > 1)
    operator = make()
    for start in range(0, 300, 10):
        operator.process(batch_of([event.record for event in events[start : start + 10]]), 0)
        assert operator._matcher.store.length <= 8 + 2 * operator._matcher._in_use + 10


def test_matches_of_one_record_come_in_the_order_their_attempts_came_to_the_last_place() -> None:
    chain = parse("from every e1=a -> e2=a[x > e1.x] select e1.id as i").statements[0].source  # type: ignore[union-attr]
    rows = [{"id": i, "key": "k", "x": x, "y": 0.0, "t": i} for i, x in enumerate([3, 1, 2, 2, 9])]
    make, _ = operator_of(chain)
    for plan in (make, replace(make, interpreted=True)):
        assert [row["e1_0"] for row in rows_of(plan().process(batch_of(rows), 0))] == [1, 0, 2, 3]


def siddhi(text: str, records: list[tuple[str, int]]) -> list[dict[str, object]]:
    """Run a chain over records of given streams and values x, a second apart; return the ids taken."""
    chain = parse(text).statements[0].source  # type: ignore[union-attr]
    assert isinstance(chain, s.Chain)
    events = [
        Happening(stream, i * 1_000_000, {"id": i, "key": "k", "x": x, "y": float(x), "t": i * 1_000_000})
        for i, (stream, x) in enumerate(records)
    ]
    make, ports = operator_of(chain)
    return run(make, ports, events, [])


def test_every_before_a_group_starts_anew_when_the_group_is_complete() -> None:
    records = [("a", 1), ("a", 1), ("b", 1), ("a", 1), ("b", 1)]
    found = siddhi("from every (e1=a -> e2=b) select e1.id", records)
    assert found == [{"e1_0": 0, "e2_0": 2}, {"e1_0": 3, "e2_0": 4}]


def test_every_before_one_event_starts_with_each_of_them() -> None:
    records = [("a", 1), ("a", 1), ("b", 1)]
    assert siddhi("from every e1=a -> e2=b select e1.id", records) == [{"e1_0": 0, "e2_0": 2}, {"e1_0": 1, "e2_0": 2}]


def test_without_every_a_pattern_is_matched_once() -> None:
    records = [("a", 1), ("b", 1), ("a", 1), ("b", 1)]
    assert siddhi("from e1=a -> e2=b select e1.id", records) == [{"e1_0": 0, "e2_0": 1}]


def test_a_count_at_the_start_of_a_sequence_takes_the_longest_run() -> None:
    records = [("b", 9), ("a", 5), ("a", 6), ("b", 7)]
    found = siddhi("from every e1=a+, e2=b[x > e1[0].x] select e1.id", records)
    assert found == [{"e1_0": 1, "e1_1": 2, "e1_2": None, "e2_0": 3}]


def test_a_count_of_two_is_two_places() -> None:
    records = [("a", 1), ("a", 1), ("a", 1), ("b", 1)]
    plain = siddhi("from every e1=a, e2=a, e3=b select e1.id", records)
    assert plain == [{"e1_0": 1, "e2_0": 2, "e3_0": 3}]
    found = siddhi("from every e1=a<2>, e2=b select e1.id", records)
    assert found == [{"e1_0": 1, "e1_1": 2, "e1_2": None, "e2_0": 3}]


def test_of_a_count_with_bounds_the_run_that_ends_in_time_is_found() -> None:
    records = [("a", 1), ("a", 1), ("a", 1), ("a", 1), ("b", 1)]
    found = siddhi("from every e1=a<2:3>, e2=b select e1.id", records)
    assert found == [{"e1_0": 1, "e1_1": 2, "e1_2": 3, "e2_0": 4}]


def test_a_record_that_begins_beyond_an_optional_first_event_begins_another_at_it() -> None:
    chain = parse("from every e1=a?, e2=a select e1.id as i").statements[0].source  # type: ignore[union-attr]
    records = [{"id": i, "key": "k", "x": 0, "y": 0.0, "t": i} for i in range(3)]
    events = [Happening("a", record["t"], record) for record in records]
    make, ports = operator_of(chain)
    wanted = [(None, 0), (0, 1), (1, 2)]  # as Siddhi finds in `every e1=a*, e2=a`
    for found in (run(make, ports, events, []), expected(chain, events, ports)):
        assert [(row["e1_0"], row["e2_0"]) for row in found] == wanted


def test_an_optional_last_event_does_not_delay_a_match() -> None:
    found = siddhi("from every e1=a, e2=b[x > e1.x]* select e1.id", [("a", 5), ("a", 6)])
    assert [row["e1_0"] for row in found] == [0, 1]


def test_of_two_alternatives_the_left_one_is_taken_when_both_hold() -> None:
    found = siddhi("from every e1=a[x > 5], e2=a[x > e1.x] or e3=a[x == 7] select e1.id", [("a", 6), ("a", 7)])
    assert found == [{"e1_0": 0, "e2_0": 1, "e3_0": None}]


def test_an_open_without_a_close_is_found_when_its_time_is_up() -> None:
    records = [("a", 1), ("b", 1), ("a", 2), ("a", 3)]
    found = siddhi("from every e1=a -> not b[x == e1.x] for 1500 ms select e1.id", records)
    assert [row["e1_0"] for row in found] == [2, 3]
