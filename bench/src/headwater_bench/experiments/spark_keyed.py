"""Steps with state by key on Spark: ours, by bucket of keys, and by hand in a group for each key.

A rate is that of the median micro-batch: how long a query takes to start does not count, and all have the same batches.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from headwater.cores import whole_cores
from headwater.data.column import Array, nullable
from headwater.flow import Batch, Flow
from headwater.flow.state import Cell, Rows
from headwater.io import Collect, Discard, Parquet
from headwater.metrics import Report
from headwater.steps import Kalman
from headwater.steps.regression import sliding_regression
from headwater_bench.experiments import handwritten
from headwater_bench.riot.scans import Interpolate

STEPS = ("kalman", "interpolation", "sliding regression")
SYSTEMS = ("ours", "apply_in_pandas", "transform_with_state")
_SCHEMA = "msg long, key long, value float"
_LEAST = 13.0  #: a value below counts as missing in interpolation: 8 % of them, as in ETL


class Line:
    """A straight line through a key's last ten values, prolonged by ten; as numbers, not as a text."""

    makes = tuple(f"value{k}" for k in range(10))
    state = {"last": Cell("float32", shape=(10,)), "count": Cell("int64")}  # noqa: RUF012  # what a scan has

    def run(self, batch: Batch, slots: Array, state: dict[str, Array]) -> Rows:
        """Return predictions for the records that have a full window before them."""
        rows, out = np.empty(batch.length, np.int64), np.empty((batch.length, 10), np.float32)
        count = sliding_regression(slots, batch["value"], state["last"], state["count"], rows, out)
        return rows[:count], {f"value{k}": out[:count, k].copy() for k in range(10)}


class Bench:
    """One step over records of so many keys, read in micro-batches of one size."""

    def __init__(self, spark: Any, folder: Path, batch: int, batches: int, keys: int) -> None:
        self._spark, self._programs = spark, handwritten.programs(spark)
        self._folder, self._batch = folder, batch
        _write(folder / "all", batch, batches, keys)
        _write(folder / "few", min(batch, 1000), 3, min(keys, 100))

    def rate(self, step: str, system: str) -> float:
        """Return records per second of the median micro-batch of one run."""
        if system != "ours":
            return 1e3 * self._batch / handwritten.batch_ms(self._frame(step, system, "all"))
        report = _run(_flow(step, self._folder / "all", Discard()), self._batch)
        return 1e3 * self._batch / float(report.extra["spark"]["batch_ms"]["p50"])

    def differences(self, step: str) -> list[str]:
        """Run all three over a few records and say where results differ from ours."""
        sink = Collect()
        _run(_flow(step, self._folder / "few", sink), 1000)
        ours = {row["msg"]: _values(row) for row in sink.records}
        texts = []
        for system in SYSTEMS[1:]:
            theirs = {row["msg"]: _values(row) for row in handwritten.collected(self._frame(step, system, "few"))}
            if not ours or ours.keys() != theirs.keys():
                texts.append(f"{system}: {len(ours)} and {len(theirs)} results")
            elif not np.allclose([ours[msg] for msg in ours], [theirs[msg] for msg in ours], rtol=1e-4, atol=1e-4):
                texts.append(f"{system}: other values")
        return texts

    def _frame(self, step: str, system: str, folder: str) -> Any:
        records = handwritten.records(self._spark, self._folder / folder / "cut", _SCHEMA, files=1)
        return getattr(self._programs.keyed, system)(records, self._programs.keyed.TASKS[step])


def _run(flow: Flow, batch: int) -> Report:
    from headwater import spark
    from headwater.flow.ranges import Sizes

    return spark.run(flow, sizes=Sizes(whole_cores(), batch_records=batch))


def _flow(step: str, folder: Path, sink: Any) -> Flow:
    flow = Flow(step.replace(" ", "-"))
    records = flow.read("records", Parquet(folder / "records.parquet"))
    one = {"msg": int, "key": int, "value": "float32"}
    if step == "kalman":
        results = records.key_by("key").scan("kalman", Kalman(), out=one)
    elif step == "interpolation":
        observations = records.map_batches("observed", _observed, out={**one, "obs": int})
        results = observations.key_by("key").scan("interpolate", Interpolate(5)).select("result", "msg", "key", "value")
    else:
        many = {"msg": int, "key": int, **{f"value{k}": "float32" for k in range(10)}}
        results = records.key_by("key").scan("line", Line(), out=many)
    results.write("out", sink)
    return flow


def _observed(batch: Batch) -> Batch:
    """Give the records what ETL's interpolation reads: a kind of observation, and gaps that are no values."""
    values = batch["value"]
    ones = np.ones(batch.length, np.int64)
    return batch.with_columns({"value": nullable(values, values >= _LEAST), "obs": ones})


def _values(row: dict[str, Any]) -> list[float]:
    if "value" in row:
        return [row["value"]]
    return row["values"] if "values" in row else [row[f"value{k}"] for k in range(10)]


def _write(folder: Path, batch: int, batches: int, keys: int) -> None:
    """Write all records into one file, and cut by micro-batches, which is how Spark's own source reads so many at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "cut").mkdir(parents=True)
    rng = np.random.default_rng(1)
    records = batch * batches
    values = rng.normal(20, 5, records).astype(np.float32)
    table = pa.table({"msg": np.arange(records), "key": rng.integers(0, keys, records), "value": values})
    pq.write_table(table, folder / "records.parquet", row_group_size=batch)
    for number in range(batches):
        part = folder / "cut" / f"{number}.parquet"
        pq.write_table(table.slice(number * batch, batch), part)
        os.utime(part, (number, number))  # it takes the oldest first
