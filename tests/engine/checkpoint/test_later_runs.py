"""A run that ends with its sources, and later ones that go on with what has come meanwhile."""

from __future__ import annotations

import json

import pytest

from headwater import Flow, Session, Sliding, Tumbling, agg, col, engine, io
from headwater.errors import InputError

FIELDS = {"k": str, "v": int, "at": "time"}


@pytest.fixture
def given(tmp_path):
    """Adds records to the file that flows read: a key, a number, and a second of the first hours of a day."""

    def add(*records):
        with (tmp_path / "in.jsonl").open("a") as file:
            for key, value, second in records:
                at = f"2026-05-01T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"
                file.write(json.dumps({"k": key, "v": value, "at": at}) + "\n")

    return add


def run(flow, tmp_path):
    report = engine.run(flow, checkpoint=tmp_path / "state")
    out = tmp_path / "out.jsonl"
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else [], report


def windowed(tmp_path, window):
    flow = Flow("w")
    reads = flow.read("reads", io.JsonLines(tmp_path / "in.jsonl", FIELDS)).event_time("clock", "at")
    windows = reads.key_by("k").window("win", window, n=agg.count(), total=agg.sum("v"))
    windows.write("out", io.JsonLines(tmp_path / "out.jsonl"))
    return flow


@pytest.mark.parametrize(
    ("window", "per_record"),
    [(Tumbling("10 s"), 1), (Sliding("20 s", every="10 s"), 2), (Session("10 s"), 1)],
    ids=["tumbling", "sliding", "session"],
)
def test_records_that_come_after_the_end_have_their_windows(tmp_path, given, window, per_record):
    """They had all been late: time had come to its end with the sources."""
    given(("a", 1, 1))
    first, _ = run(windowed(tmp_path, window), tmp_path)
    given(("a", 2, 3601))
    rows, report = run(windowed(tmp_path, window), tmp_path)
    assert [row["total"] for row in rows] == [1] * per_record + [2] * per_record
    assert rows[: len(first)] == first
    assert report.late == 0


def test_a_record_of_a_window_that_the_end_has_closed_is_late_and_counted(tmp_path, given):
    given(("a", 1, 1))
    run(windowed(tmp_path, Tumbling("10 s")), tmp_path)
    given(("a", 2, 2), ("a", 4, 12))
    rows, report = run(windowed(tmp_path, Tumbling("10 s")), tmp_path)
    assert [row["total"] for row in rows] == [1, 4]
    assert report.late == 1


def test_a_window_of_processing_time_goes_on_with_what_a_later_run_brings(tmp_path, given):
    window = Tumbling("1 h", time="processing")
    given(("a", 1, 1))
    run(windowed(tmp_path, window), tmp_path)
    given(("a", 2, 2))
    rows, report = run(windowed(tmp_path, window), tmp_path)
    assert [row["total"] for row in rows] == [1, 2]
    assert report.late == 0


def test_a_partner_may_come_in_a_later_run(tmp_path, given):
    def joined():
        flow = Flow("pairs")
        reads = flow.read("reads", io.JsonLines(tmp_path / "in.jsonl", FIELDS)).event_time("clock", "at")
        odd, even = reads.filter("odd", col.v % 2 == 1), reads.filter("even", col.v % 2 == 0)
        odd.key_by("k").join("both", even.key_by("k"), within="10 s").write("out", io.JsonLines(tmp_path / "out.jsonl"))
        return flow

    given(("a", 1, 1))
    run(joined(), tmp_path)
    given(("a", 2, 4), ("a", 3, 5), ("a", 5, 3600), ("a", 6, 3601))
    rows, report = run(joined(), tmp_path)
    pairs = {(row["v"], row["even_v"]) for row in rows}
    assert pairs == {(1, 2), (3, 2), (5, 6)}
    assert report.late == 0


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_a_file_that_was_replaced_is_not_read_on_from_the_middle(tmp_path, ending):
    """With one that was longer, reading had gone on amid a row: a number that nobody had written."""
    path = tmp_path / f"in.{ending}"

    def fill(numbers):
        lines = [str(n) if ending == "csv" else json.dumps({"n": n}) for n in numbers]
        path.write_text("\n".join(["n", *lines] if ending == "csv" else lines) + "\n")

    def flow():
        made = Flow("plain")
        source = io.Csv(path, {"n": int}) if ending == "csv" else io.JsonLines(path, {"n": int})
        made.read("r", source).write("o", io.JsonLines(tmp_path / "out.jsonl"))
        return made

    fill(range(1, 101))
    run(flow(), tmp_path)
    fill(range(100_001, 100_201))
    with pytest.raises(InputError, match=r"in\.(csv|jsonl) from byte .*: it is not the file that was read up to there"):
        run(flow(), tmp_path)
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 100
    fill(range(1, 151))  # the one that was read, and more
    assert len(run(flow(), tmp_path)[0]) == 150


def test_a_last_line_that_had_no_end_is_no_other_file(tmp_path):
    path = tmp_path / "in.csv"

    def flow():
        made = Flow("plain")
        made.read("r", io.Csv(path, {"n": int})).write("o", io.JsonLines(tmp_path / "out.jsonl"))
        return made

    path.write_text("n\n1\n2")
    run(flow(), tmp_path)
    path.write_text("n\n1\n2\n3\n")
    rows, _ = run(flow(), tmp_path)
    assert [row["n"] for row in rows] == [1, 2, 3]
