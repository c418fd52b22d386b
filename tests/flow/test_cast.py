"""Casts: text that was written reads back, ISO 8601 is read as Python reads it, and what is no counterpart is missing."""

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import Batch, Flow, Schema, col, engine, io
from headwater.errors import FlowError
from headwater.operators.expression import compile_expression

ONE = Schema.of({"s": str, "at": "time", "i": int, "x": float, "f": "float32", "p": bool})


def column(expr, name, values):
    """Compute an expression over one column of values."""
    rows = [{**dict.fromkeys(ONE), name: value} for value in values]
    return compile_expression(expr, ONE)(Batch.of_rows(rows, ONE)).tolist()


moments = st.datetimes(timezones=st.none() | st.integers(-1439, 1439).map(lambda m: timezone(timedelta(minutes=m))))


def micros(moment):
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@given(
    moments,
    st.sampled_from(["T", " "]),
    st.sampled_from(["auto", "minutes", "seconds", "milliseconds", "microseconds"]),
)
def test_iso_text_casts_to_the_moment_that_python_reads(moment, between, digits):
    written = moment.isoformat(between, digits)
    assert column(col.s.cast("time"), "s", [written]) == [micros(datetime.fromisoformat(written))]
    if moment.tzinfo is None:
        assert column(col.s.cast(datetime), "s", [f"{written}Z"]) == [micros(datetime.fromisoformat(written))]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2026-11-15", "2026-11-15"),
        ("2024-02-29", "2024-02-29"),
        (" 2026-11-15T08:00 ", "2026-11-15T08:00"),
        ("2026-11-15T08:00:00,25Z", "2026-11-15T08:00:00.250"),
        ("2026-11-15T08:00:00.123456789Z", "2026-11-15T08:00:00.123456"),
        ("2026-11-15T08:00:00+0200", "2026-11-15T06:00"),
        ("2026-11-15T08:00:00-05", "2026-11-15T13:00"),
        ("2023-02-29", None),
        ("2026-13-01", None),
        ("2026-11-15T24:00", None),
        ("2026-11-15T08", None),
        ("2026-11-15T08:00:00.Z", None),
        ("2026-11-15T08:00:00+2", None),
        ("2026-11-15 08:00 UTC", None),
        ("yesterday", None),
        ("", None),
        ("0000-01-01", None),
        ("1500000", "1970-01-01T00:00:01.5"),
    ],
)
def test_what_is_a_moment_and_what_is_missing(text, wanted):
    expected = None if wanted is None else micros(datetime.fromisoformat(wanted))
    assert column(col.s.cast("time"), "s", [text, "2000-01-01"]) == [expected, micros(datetime(2000, 1, 1))]


@given(st.integers(-(2**63), 2**63 - 1), st.floats(), st.floats(width=32), st.booleans(), st.datetimes())
def test_text_that_is_written_reads_back(i, x, f, p, moment):
    for name, value in {"i": i, "x": x, "f": f, "p": p, "at": micros(moment)}.items():
        there, kind = col[name].cast(str), ONE[name]
        [text] = column(there, name, [value])
        [back] = column(there.cast(kind), name, [value])
        assert back == value or (back != back and value != value), (text, back, value)
        if name == "f":
            assert len(text) <= len(str(np.float32(f)))


def test_a_cast_takes_python_types_and_says_what_others_there_are():
    assert str(col.s.cast(int)) == "col.s.cast('int')"
    with pytest.raises(FlowError, match="cannot cast to 'list'; types are bool, int, float"):
        col.s.cast(list)
    with pytest.raises(FlowError, match="did you mean 'float'"):
        col.s.cast("flaot")


def test_event_time_of_text_says_how_and_that_works():
    rows = [
        {"id": "a", "when": "2026-11-15T08:00:00+01:00"},
        {"id": "b", "when": "soon"},
        {"id": "c", "when": "2026-11-15"},
    ]
    flow, out, dead = Flow("times"), io.Collect(), io.Collect()
    read = flow.read("rows", io.Items(rows, {"id": str, "when": str}))
    with pytest.raises(FlowError) as told:
        read.event_time("clock", "when")
    hint = str(told.value).partition("did you mean ")[2].partition(" before it")[0]
    assert hint == ".with_columns('time', when=col.when.cast('time'))"
    eval(f"read{hint}", {"read": read, "col": col}).event_time("clock", "when", lateness="1 day").write("out", out)
    flow.dead_letters.write("dead", dead)
    engine.run(flow)
    assert {(r["id"], r["when"]) for r in out.records} == {
        ("a", micros(datetime(2026, 11, 15, 7))),
        ("c", micros(datetime(2026, 11, 15))),
    }
    assert [(r["step"], r["error"]) for r in dead.records] == [("clock", "no 'when'")]


@pytest.mark.parametrize(
    ("kind", "hint"),
    [(int, "col.t.cast('time')"), (float, "(col.t * 1_000_000).cast('time')")],
)
def test_event_time_of_numbers_says_in_which_unit(kind, hint):
    with pytest.raises(FlowError, match="since 1970") as told:
        Flow("f").read("r", io.Items([], {"t": kind})).event_time("e", "t")
    assert f"t={hint}" in str(told.value)
