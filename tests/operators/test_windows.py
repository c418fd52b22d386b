"""Windows against a plain reference that looks at all records at once, and state that moves between operators."""

import statistics
import tracemalloc
from collections import Counter as Multiset

import numpy as np
import pytest
from driving import Outputs, drive
from hypothesis import given
from hypothesis import strategies as st

from headwater import Batch, Count, Flow, Schema, Session, Sliding, Tumbling, agg, col, engine, io
from headwater.errors import FlowError, SnapshotError
from headwater.operators import build
from headwater.operators.operator import Select
from headwater.operators.snapshot import pack_state, unpack_state

SCHEMA = Schema.of({"key": str, "x": float, "at": "time"})
LARGE = 2**56
AGGREGATES = {
    "n": agg.count(),
    "total": agg.sum("x"),
    "mean": agg.mean("x"),
    "exact": agg.mean(col.x.cast(int) * LARGE + 1),  # their sum may leave 64 bits, and most of it may cancel out
    "std": agg.std("x"),
    "low": agg.min("x"),
    "high": agg.max("x"),
    "first": agg.first("x"),
    "last": agg.last("key"),
    "different": agg.distinct("x"),
    "spread": agg.custom(lambda v: float(v.max() - v.min()), "x", "float"),
    "listed": agg.custom(lambda v: " ".join(map(str, v.tolist())), "x", "text"),
}
S = 1_000_000
WINDOWS = {
    "tumbling": Tumbling("10 s"),
    "sliding": Sliding("10 s", "4 s"),
    "even": Sliding("12 s", "3 s"),
    "session": Session("3 s"),
    "count": Count(3),
    "sliding count": Count(4, every=2),
}

rows = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["a", "b", "c"]),
            "x": st.one_of(st.none(), st.integers(-50, 50).map(float)),
            "at": st.integers(0, 60).map(lambda s: s * S),
        }
    ),
    max_size=60,
)
LATENESS = 5 * S


def step_for(window):
    flow = Flow("w")
    stream = flow.read("r", io.Items([], SCHEMA)).event_time("t", "at", lateness="5 s")
    stream.key_by("key").window("w", window, **AGGREGATES)
    return flow.steps["w"]


def batched(records, sizes):
    """Cut records into batches, each with the watermark that event_time would give it."""
    batches, newest, at = [], -(2**62), 0
    while at < len(records):
        size = sizes[len(batches) % len(sizes)]
        part = records[at : at + size]
        batch = Batch.of_rows(part, SCHEMA)
        newest = max(newest, *(r["at"] for r in part))
        batch.watermark = newest - LATENESS
        batches.append(batch)
        at += size
    return batches


def aggregated(records):
    values = [r["x"] for r in records if r["x"] is not None]
    some = bool(values)
    return {
        "n": len(records),
        "total": sum(values) if some else None,
        "mean": statistics.fmean(values) if some else None,
        "exact": float(sum(int(v) * LARGE + 1 for v in values)) / len(values) if some else None,
        "std": statistics.pstdev(values) if some else None,
        "low": min(values) if some else None,
        "high": max(values) if some else None,
        "first": values[0] if some else None,
        "last": records[-1]["key"],
        "different": len(set(values)),
        "spread": max(values) - min(values) if some else None,
        "listed": " ".join(map(str, values)) if some else None,
    }


def in_time(records, batches, window):
    """Return the records that are not late, and the late ones, by the rule: every window that holds it is closed."""
    good, late, watermark, i = [], [], -(2**63), 0
    open_sessions: dict = {}
    for batch in batches:
        for record in records[i : i + batch.length]:
            at = record["at"]
            if isinstance(window, Session):
                near = [s for s in open_sessions.get(record["key"], []) if s[0] - 3 * S < at < s[1] + 3 * S]
                is_late = not near and at + 3 * S <= watermark
                if not is_late:
                    rest = [s for s in open_sessions.get(record["key"], []) if s not in near]
                    merged = (min([at, *(s[0] for s in near)]), max([at, *(s[1] for s in near)]))
                    open_sessions[record["key"]] = [*rest, merged]
            else:
                every = window.every_us if isinstance(window, Sliding) else window.size_us
                is_late = at - at % every + window.size_us <= watermark
            (late if is_late else good).append((record, watermark))
        i += batch.length
        watermark = max(watermark, batch.watermark)
        for key, sessions in open_sessions.items():
            open_sessions[key] = [s for s in sessions if s[1] + 3 * S > watermark]
    return good, [r for r, _ in late]


def expected_of(window, records, batches):
    """Work out all results from all records at once."""
    if isinstance(window, Count):
        return _counted(window, records), []
    good, late = in_time(records, batches, window)
    groups: dict = {}
    if isinstance(window, Session):
        return _sessions(good), late
    every = window.every_us if isinstance(window, Sliding) else window.size_us
    for record, watermark in good:
        start = record["at"] - record["at"] % every
        while start + window.size_us > record["at"]:
            if start + window.size_us > watermark:  # a window that has closed takes nothing more
                groups.setdefault((record["key"], start, start + window.size_us), []).append(record)
            start -= every
    return [
        {"key": key, "start": start, "end": end, **aggregated(inside)} for (key, start, end), inside in groups.items()
    ], late


def _sessions(good):
    sessions: list = []
    order = {id(record): i for i, (record, _) in enumerate(good)}
    for record, _ in good:
        near = [s for s in sessions if s["key"] == record["key"] and s["lo"] - 3 * S < record["at"] < s["hi"] + 3 * S]
        merged = {"key": record["key"], "lo": record["at"], "hi": record["at"], "records": []}
        for s in near:
            merged["lo"], merged["hi"] = min(merged["lo"], s["lo"]), max(merged["hi"], s["hi"])
            merged["records"] += s["records"]
            sessions.remove(s)
        merged["records"].append(record)
        merged["records"].sort(key=lambda r: order[id(r)])
        sessions.append(merged)
    return [{"key": s["key"], "start": s["lo"], "end": s["hi"] + 3 * S, **aggregated(s["records"])} for s in sessions]


def _counted(window, records):
    results, kept = [], {}
    for record in records:
        mine = kept.setdefault(record["key"], [])
        mine.append(record)
        n = len(mine)
        if window.every is None and n == window.size:
            results.append({"key": record["key"], **aggregated(mine)})
            mine.clear()
        elif window.every and n >= window.size and (n - window.size) % window.every == 0:
            results.append({"key": record["key"], **aggregated(mine[-window.size :])})
    return results


def rounded(records):
    """Return results so that they compare by value: floats to nine digits, order apart."""
    return Multiset(tuple((n, round(v, 9) + 0.0 if isinstance(v, float) else v) for n, v in r.items()) for r in records)


sizes = st.lists(st.integers(1, 20), min_size=1, max_size=4)


@pytest.mark.parametrize("name", [n for n in WINDOWS if n != "session"])
@given(records=rows, sizes=sizes)
def test_a_window_gives_what_a_look_at_all_records_gives(name, records, sizes):
    window, batches = WINDOWS[name], batched(records, sizes)
    out = drive(build(step_for(window)), batches)
    wanted, late = expected_of(window, records, batches)
    assert rounded(out.main) == rounded(wanted)
    assert out.late == late
    assert not out.dead


@given(records=rows, sizes=sizes)
def test_a_session_gives_what_a_look_at_all_records_gives(records, sizes):
    records = sorted(records, key=lambda r: r["at"])
    batches = batched(records, sizes)
    out = drive(build(step_for(WINDOWS["session"])), batches)
    wanted, late = expected_of(WINDOWS["session"], records, batches)
    assert rounded(out.main) == rounded(wanted)
    assert out.late == late == []


@given(records=rows, sizes=sizes)
def test_sessions_that_a_late_record_joins_become_one(records, sizes):
    batches = batched(records, sizes)
    out = drive(build(step_for(WINDOWS["session"])), batches)
    wanted, late = expected_of(WINDOWS["session"], records, batches)
    assert rounded(out.main) == rounded(wanted)
    assert out.late == late


@pytest.mark.parametrize("name", WINDOWS)
@given(records=rows, sizes=sizes, cut=st.integers(0, 60))
def test_a_snapshot_at_any_point_goes_on_elsewhere(name, records, sizes, cut):
    step, batches = step_for(WINDOWS[name]), batched(records, sizes)
    whole = drive(build(step), batches)
    before = build(step)
    out = drive(before, batches[:cut], end=False)
    after = build(step)
    after.restore(before.snapshot())
    drive(after, batches[cut:], into=out)
    assert rounded(out.main) == rounded(whole.main)
    assert out.late == whole.late


@pytest.mark.parametrize("name", WINDOWS)
@given(records=rows, sizes=sizes, cut=st.integers(0, 60))
def test_state_moves_by_key(name, records, sizes, cut):
    """Half of the keys move to another operator; each goes on with its own records."""
    step, batches = step_for(WINDOWS[name]), batched(records, sizes)
    whole = drive(build(step), batches)
    stays, moves = build(step), build(step)
    out = drive(stays, batches[:cut], end=False)
    half = Select(1, 2)
    moves.restore(stays.snapshot(half))
    stays.forget(half)
    for operator, part in ((stays, 0), (moves, 1)):
        rest = []
        for batch in batches[cut:]:
            mine = batch.filter(Select(part, 2).rows([batch["key"]]))
            mine.watermark = batch.watermark
            rest.append(mine)
        drive(operator, rest, into=out)
    assert rounded(out.main) == rounded(whole.main)
    assert rounded(out.late) == rounded(whole.late)


def test_a_record_without_a_key_is_a_dead_letter():
    flow = Flow("w")
    schema = Schema.of({"key": float, "x": float})
    flow.read("r", io.Items([], schema)).key_by("key").window("w", Count(1), n=agg.count())
    batch = Batch.of({"key": [1.0, float("nan"), None], "x": [1.0, 2.0, 3.0]}, schema)
    out = Outputs()
    out.add(build(flow.steps["w"]).process(batch, 0))
    assert [r["key"] for r in out.main] == [1.0]
    assert [letter["error"] for letter in out.dead] == ["the key is missing or not a number"] * 2


NAN = float("nan")


@pytest.mark.parametrize("window", [Tumbling("10 s"), Session("10 s"), Count(4)])
@pytest.mark.parametrize(
    ("kind", "values", "different"),
    [
        ("float", [NAN, 1.0, NAN, NAN], 2),
        ("text", ["a", "a\0", "a", "b"], 3),
        ("any", [[1], [2], [1], [2]], 2),
        ("any", [{"a": 1, "b": [2]}, {"b": [2], "a": 1}, [1], "x"], 3),
        ("any", [1, True, 1.0, "1"], 3),
    ],
)
def test_different_values_are_counted_whatever_their_type(window, kind, values, different):
    flow = Flow("w")
    schema = Schema.of({"key": str, "x": kind, "at": "time"})
    stream = flow.read("r", io.Items([], schema)).event_time("t", "at").key_by("key")
    stream.window("w", window, n=agg.distinct("x"))
    batch = Batch.of({"key": ["a"] * 4, "x": values, "at": [0, 1, 2, 3]}, schema)
    out = drive(build(flow.steps["w"]), [batch])
    assert [row["n"] for row in out.main] == [different]
    assert out.dead == []


def test_one_long_text_takes_no_room_for_each_of_its_window():
    flow = Flow("w")
    schema = Schema.of({"key": str, "x": str, "at": "time"})
    stream = flow.read("r", io.Items([], schema)).event_time("t", "at").key_by("key")
    stream.window("w", Tumbling("10 s"), n=agg.distinct("x"), longest=agg.custom(lambda v: max(map(len, v)), "x", int))
    texts = ["y" * 100_000, *map(str, range(2000))]
    batch = Batch.of({"key": ["a"] * len(texts), "x": texts, "at": [0] * len(texts)}, schema)
    tracemalloc.start()
    try:
        out = drive(build(flow.steps["w"]), [batch])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [(row["n"], row["longest"]) for row in out.main] == [(2001, 100_000)]
    assert most < 50_000_000


def test_a_custom_aggregate_that_fails_costs_its_own_result_alone():
    def picky(values):
        if values.max() > 5:
            raise ValueError("too high")
        return float(values.sum())

    flow = Flow("w")
    schema = Schema.of({"key": str, "x": float})
    stream = flow.read("r", io.Items([], schema)).key_by("key")
    stream.window("w", Count(2), total=agg.custom(picky, "x", "float"))
    out = drive(build(flow.steps["w"]), [Batch.of({"key": ["a", "b", "a", "b"], "x": [1.0, 9.0, 2.0, 1.0]}, schema)])
    assert out.main == [{"key": "a", "total": 3.0}, {"key": "b", "total": None}]
    line = picky.__code__.co_firstlineno + 2
    assert [letter["error"] for letter in out.dead] == [f"ValueError: too high (test_windows.py:{line}, in picky)"]


@pytest.mark.parametrize("window", [Count(2), Count(2, every=1)], ids=["tumbling", "sliding"])
@pytest.mark.parametrize(("kind", "total"), [(float, 3.0), (int, 3), (str, "3"), ("float", 3.0)])
def test_the_type_of_a_custom_aggregate_may_be_pythons_own(window, kind, total):
    flow = Flow("w")
    schema = Schema.of({"key": str, "x": int})
    stream = flow.read("r", io.Items([], schema)).key_by("key")
    stream.window("w", window, total=agg.custom(lambda values: type(total)(values.sum()), "x", kind))
    out = drive(build(flow.steps["w"]), [Batch.of({"key": ["a", "a"], "x": [1, 2]}, schema)])
    assert (out.main, out.dead) == ([{"key": "a", "total": total}], [])
    assert type(out.main[0]["total"]) is type(total)


@pytest.mark.parametrize(
    ("kind", "shown"), [("flaot", "'flaot'.*did you mean 'float'"), (list, "'list'"), ([1], r"\[1\]")]
)
def test_a_custom_aggregate_of_an_unknown_type_is_refused_while_building(kind, shown):
    with pytest.raises(FlowError, match=f"the result of max has unknown type {shown}"):
        agg.custom(max, "x", kind)


@pytest.mark.parametrize(
    ("kind", "unfit", "fit"),
    [(int, 2**70, 1), (float, 2**2000, 1.0), ("time", 2**70, 1), (str, "\ud800", "x")],
    ids=["int", "float", "time", "text"],
)
def test_a_custom_result_that_fits_no_column_costs_its_own_window_alone(kind, unfit, fit):
    flow, out, dead = Flow("unfit"), io.Collect(), io.Collect()
    rows = [{"k": k, "x": x, "at": 0} for k, x in [("a", 1), ("b", 5), ("c", 1)]]
    stream = flow.read("r", io.Items(rows, {"k": str, "x": int, "at": "time"})).event_time("t", "at").key_by("k")
    shown = agg.custom(lambda values: unfit if values[0] == 5 else fit, "x", kind)
    stream.window("w", Tumbling("10 s"), shown=shown).write("out", out)
    flow.dead_letters.write("dead", dead)
    engine.run(flow)
    assert {row["k"]: row["shown"] for row in out.records} == {"a": fit, "b": None, "c": fit}
    assert [(letter["step"], '"k":"b"' in letter["record"]) for letter in dead.records] == [("w", True)]


def test_a_custom_result_of_another_type_names_its_column():
    flow = Flow("w")
    schema = Schema.of({"key": str, "x": int})
    flow.read("r", io.Items([], schema)).key_by("key").window("w", Count(1), share=agg.custom(lambda _: 0.5, "x", int))
    out = drive(build(flow.steps["w"]), [Batch.of({"key": ["a"], "x": [1]}, schema)])
    assert "column 'share': expected int, got float 0.5" in out.dead[0]["error"]


def test_the_state_of_another_kind_of_step_is_refused():
    tumbling, counted = build(step_for(WINDOWS["tumbling"])), build(step_for(WINDOWS["count"]))
    with pytest.raises(
        SnapshotError, match="expected the state of a count window step, got that of a time window step"
    ):
        counted.restore(tumbling.snapshot())
    with pytest.raises(SnapshotError, match="bytes that are none"):
        counted.restore(b"\x00nonsense")


def test_a_state_that_knows_no_order_of_arrival_gives_its_values_before_those_that_come():
    records = [{"key": "a", "x": float(i), "at": at * S} for i, at in enumerate([7, 2, 6, 8, 3])]
    before, after = build(step_for(WINDOWS["sliding"])), build(step_for(WINDOWS["sliding"]))
    drive(before, batched(records[:3], [3]), end=False)
    saved = unpack_state("time window", before.snapshot())
    for part in saved["slices"]:
        for sums in part["sums"]:
            sums.pop("places", None)
    after.restore(pack_state("time window", saved))
    found = {row["start"]: row["listed"] for row in drive(after, batched(records[3:], [2])).main}
    assert found[0] == "1.0 0.0 2.0 3.0 4.0"  # slice by slice, as far as nothing else is known


def test_a_mean_goes_on_from_a_sum_that_was_kept_as_a_float():
    records = [{"key": "a", "x": float(x), "at": i * S} for i, x in enumerate([50, 50, 50, -2])]
    before, after = build(step_for(WINDOWS["tumbling"])), build(step_for(WINDOWS["tumbling"]))
    drive(before, batched(records[:3], [3]), end=False)
    saved = unpack_state("time window", before.snapshot())
    mean = saved["slices"][0]["sums"][list(AGGREGATES).index("exact")]
    del mean["high"]
    mean["total"] = np.array([150.0 * LARGE])
    after.restore(pack_state("time window", saved))
    [row] = drive(after, batched(records[3:], [1])).main
    assert row["exact"] == 148 * LARGE / 4


def test_memory_of_closed_windows_is_given_back():
    operator = build(step_for(WINDOWS["tumbling"]))
    sizes = []
    for minute in range(50):
        batch = Batch.of({"key": [f"k{minute}"], "x": [1.0], "at": np.array([minute * 60 * S])}, SCHEMA)
        operator.process(batch, 0)
        operator.advance(minute * 60 * S)
        sizes.append(len(operator.snapshot()))
    assert sizes[-1] <= sizes[1] + 8


@pytest.mark.parametrize("order", ["in order", "in none"])
def test_a_result_has_the_stamps_of_its_last_record_in_whatever_order_windows_come(order):
    step = step_for(Tumbling("10 s"))
    seconds = [1, 2, 3, 11, 12, 21] if order == "in order" else [11, 1, 21, 2, 12, 3]
    keys = {1: "a", 2: "b", 3: "a", 11: "b", 12: "b", 21: "a"}
    given_rows = [{"key": keys[s], "x": float(s), "at": s * S} for s in seconds]
    batch = Batch.of_rows(given_rows, SCHEMA)
    batch.stamps[:, 0], batch.stamps[:, 1] = seconds, [s * 100 for s in seconds]
    operator = build(step)
    assert operator.process(batch, 0) is None
    out = operator.advance(30 * S)
    assert isinstance(out, list)
    [(_, results)] = out
    told = zip(results["key"].tolist(), (results["start"] // S).tolist(), results.stamps.tolist(), strict=True)
    assert sorted(told) == [
        ("a", 0, [3, 300]), ("a", 20, [21, 2100]), ("b", 0, [2, 200]), ("b", 10, [12, 1200]),
    ]  # fmt: skip
    assert Multiset(results["total"].tolist()) == Multiset([4.0, 2.0, 23.0, 21.0])


def test_means_of_32_bits_are_added_up_in_64():
    schema = Schema.of({"key": str, "x": "float32", "at": "time"})
    flow = Flow("w")
    timed = flow.read("r", io.Items([], schema)).event_time("t", "at").key_by("key")
    timed.window("w", Tumbling("10 s"), mean=agg.mean("x"), total=agg.sum("x")).write("out", io.Discard())
    operator = build(flow.steps["w"])
    values = [2.0**24] + [0.5] * 8
    operator.process(Batch.of_rows([{"key": "a", "x": x, "at": S} for x in values], schema), 0)
    out = operator.advance(10 * S)
    assert isinstance(out, list)
    [(_, results)] = out
    assert results["mean"].tolist() == pytest.approx([(2.0**24 + 4) / 9], rel=1e-12)


@pytest.mark.parametrize("what", ["tumbling", "sliding", "session", "join"])
def test_a_record_that_lost_its_time_on_the_way_costs_itself_alone(what):
    flow, out, dead = Flow("lost"), io.Collect(), io.Collect()
    rows = [{"key": "a", "x": float(n), "at": n * S} for n in range(20)]
    stream = flow.read("rows", io.Items(rows, SCHEMA)).event_time("time", "at")
    stream = stream.map("lose", lambda row: {**row, "at": None if row["x"] == 3 else row["at"]}, out=SCHEMA)
    if what == "join":
        others = flow.read("others", io.Items(rows, SCHEMA)).event_time("their time", "at").key_by("key")
        stream.key_by("key").join("joined", others, within="0 s").write("out", out)
    else:
        stream.key_by("key").window("counted", WINDOWS[what], n=agg.count()).write("out", out)
    flow.dead_letters.write("dead", dead)
    engine.run(flow)
    windows = {n: 2 + (n % 4 < 2) if what == "sliding" else 1 for n in range(20) if n != 3}
    assert sum(row.get("n", 1) for row in out.records) == sum(windows.values())
    assert [(row["step"], row["error"]) for row in dead.records] == [
        ("joined" if what == "join" else "counted", "the time, 'at', is missing")
    ]
