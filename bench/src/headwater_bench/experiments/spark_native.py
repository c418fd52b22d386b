"""A flow of windows on Spark in both meanings: by our steps in Python, and by Spark's own operators in Java.

Records come in order, so that both have the same results: out of one file, since of several at once Spark takes the
largest first. A rate counts from a query's start to its end.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from headwater import Flow, Tumbling, agg, col
from headwater.io import Collect, Discard, SparkTable
from headwater.spark.options import MEANINGS, Meaning

KEYS = 1_000
_FIELDS = {"key": int, "value": float, "n": int, "at": "time", "note": str}
_SPAN_S = 300  #: of event time
_FEW = 5_000  #: records whose results are compared


class Bench:
    """Count, mean and maximum in windows of 10 s, of those records that a filter leaves."""

    def __init__(self, folder: Path, records: int, keys: int = KEYS) -> None:
        self.records = records
        self._all, self._few = folder / "all", folder / "few"
        _write(self._all, records, keys)
        _write(self._few, min(records, _FEW), min(keys, 20))

    def rate(self, meaning: Meaning) -> float:
        """Return records per second of one run."""
        from headwater import spark

        return self.records / spark.run(_flow(self._all, Discard()), meaning=meaning).seconds

    def differences(self) -> list[str]:
        """Run both over a few records, and say where results differ."""
        from headwater import spark

        rows_by_meaning: dict[Meaning, list[tuple[Any, ...]]] = {}
        for meaning in MEANINGS:
            out = Collect()
            spark.run(_flow(self._few, out), meaning=meaning)
            rows_by_meaning[meaning] = sorted(tuple(record.values()) for record in out.records)
        ours, theirs = rows_by_meaning["headwater"], rows_by_meaning["spark"]
        if not ours or [row[:4] for row in ours] != [row[:4] for row in theirs]:
            return [f"{len(ours)} windows of ours and {len(theirs)} of Spark's, or other counts"]
        close = np.allclose([row[4:] for row in ours], [row[4:] for row in theirs], rtol=1e-12)
        return [] if close else ["other means or maxima"]


def _flow(folder: Path, sink: Any) -> Flow:
    flow = Flow("windows")
    readings = flow.read("readings", SparkTable(str(folder), _FIELDS))
    timed = readings.filter("positive", col.value > 0).event_time("timed", "at", lateness="1 s")
    windows = timed.key_by("key").window(
        "windows", Tumbling("10 s"), count=agg.count(), mean=agg.mean("value"), high=agg.max("value")
    )
    windows.write("out", sink)
    return flow


def _write(folder: Path, records: int, keys: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True)
    random, rows = np.random.default_rng(1), np.arange(records)
    columns = {
        "key": random.integers(0, keys, records),
        "value": random.normal(1, 1, records),
        "n": rows,
        "at": pa.array(1_700_000_000_000_000 + rows * _SPAN_S * 1_000_000 // records, pa.timestamp("us", "UTC")),
        "note": pa.array(["a note that nobody reads"] * records),
    }
    pq.write_table(pa.table(columns), folder / "readings.parquet", row_group_size=2**17)
