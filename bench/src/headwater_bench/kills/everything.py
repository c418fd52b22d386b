"""The case that has all: two generators, state by key, windows of event time, a join, a query; four kinds of files."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headwater import Flow, agg, col, engine, io
from headwater.data.column import Array
from headwater.flow.windows import Tumbling
from headwater_bench.kills.case import FIELDS, Discrepancy, Rows, make_records, state_of, summed

RECORDS = 6_000
RATE = 30_000


class Everything:
    """A flow with every kind of state, whose every result can be told from all others; compared with an undisturbed run."""

    ends, pace = True, 1.0
    points: tuple[str, ...] = ("text", "SQLite", "Parquet")

    def __init__(self, parallel: int = 1, lanes: int = 1) -> None:
        how = "2 lanes" if lanes > 1 else f"{parallel} instances" if parallel > 1 else "1 instance"
        self.name = f"generators → text, CSV, SQLite, Parquet ({how})"
        self.lanes, self._parallel = lanes, parallel
        self._whole: dict[str, Rows] = {}  # what each sink holds in the end of an undisturbed run
        self._state: dict[str, int] = {}

    def rehearse(self, folder: Path) -> None:
        """Run it undisturbed; children are forked from here, so all that is compiled is by now."""
        warm, whole = folder / "warm", folder / "whole"
        for each in (warm, whole):
            each.mkdir(parents=True)
        for seconds in (0.1, None):
            engine.run(self.flow(warm), checkpoint=warm / "checkpoint", every="10 ms", seconds=seconds)
        engine.run(self._flow(whole, 1e9), checkpoint=whole / "checkpoint", workers=1)
        self._whole, self._state = _contents(whole), state_of(whole)
        lacking = [name for name, rows in self._whole.items() if not rows]
        assert not lacking, f"sinks of the undisturbed run that hold nothing: {lacking}"

    def prepare(self, folder: Path) -> None:
        """Nothing is to be made ready."""

    def feed(self, folder: Path) -> Callable[[], None] | None:
        """Nobody feeds generators."""

    def is_complete(self, folder: Path) -> bool:
        """It ends by itself."""
        return False

    def flow(self, folder: Path) -> Flow:
        """Describe the flow of one round."""
        return self._flow(folder, RATE)

    def _flow(self, folder: Path, rate: float) -> Flow:
        flow, parallel = Flow("killed"), self._parallel
        left = flow.read("left", _numbers(rate)).event_time("time", "at", lateness="2 s")
        right = flow.read("right", _numbers(rate)).event_time("its time", "at", lateness="2 s")
        keyed = left.key_by("key")
        summed(left, parallel).write("text", io.JsonLines(folder / "text.jsonl"))
        minutes = keyed.window("minute", Tumbling("1 min"), count=agg.count(), highest=agg.max("n"), parallel=parallel)
        minutes.write("csv", io.Csv(folder / "windows.csv"))
        joined = keyed.join("pair", right.key_by("key"), within="1 s", parallel=parallel)
        pairs = joined.select("pairs", "key", n=col.n, other=col["its time_n"])
        pairs.write("table", io.Sqlite(folder / "pairs.db", "pairs"))
        flow.query(
            "query",
            "from every a = time -> b = time[a.key == b.key and b.n == a.n + 13] within 1 min "
            "select a.n as first, b.n as second, a.key as key insert into found",
        ).write("parquet", io.ParquetTable(folder / "found"))
        return flow

    def judge(self, folder: Path) -> Discrepancy:
        """Hold what is there in the end against the undisturbed run."""
        discrepancy, actual = Discrepancy(), _contents(folder)
        for name, whole in self._whole.items():
            discrepancy.hold(name, actual[name], whole)
        if self.lanes == 1:
            discrepancy.hold_state(state_of(folder), self._state)
        return discrepancy


def _numbers(rate: float) -> io.Generate:
    """Records whose moments are up to a second out of order."""

    def make(numbers: Array) -> dict[str, Any]:
        return {**make_records(numbers), "at": numbers * 100_000 + (numbers * 7919 % 11) * 100_000}

    return io.Generate(make, {**FIELDS, "at": "time"}, rate=rate, count=RECORDS)


def _contents(folder: Path) -> dict[str, Rows]:
    """Read back what the sinks hold, as other programs would."""
    import pyarrow.dataset as dataset

    rows = dataset.dataset(folder / "found", format="parquet", exclude_invalid_files=False).to_table().to_pylist()
    with sqlite3.connect(folder / "pairs.db") as database:
        pairs = database.execute("select * from pairs").fetchall()
    lines = (folder / "text.jsonl").read_text().splitlines()
    return {
        "text": Counter(tuple(json.loads(line).values()) for line in lines),
        "csv": Counter((line,) for line in (folder / "windows.csv").read_text().splitlines()[1:]),
        "table": Counter(pairs),
        "parquet": Counter(tuple(row.values()) for row in rows),
    }
