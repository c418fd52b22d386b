"""The handwritten PySpark programs that experiments compare with, from `bench/spark` of the source tree."""

from __future__ import annotations

import importlib
import statistics
import sys
import tempfile
import time
from pathlib import Path
from shutil import rmtree
from types import SimpleNamespace
from typing import Any

from headwater.errors import RunError

_NAMES = ("senml", "keyed", "state", "etl", "stats", "pred", "vectors", "buckets", "program", "history")


def folder() -> Path:
    """Return where the programs are."""
    place = Path(__file__).parents[3] / "spark"
    if not place.is_dir():
        raise RunError(f"the handwritten programs are not in {place}: this experiment runs in the source tree")
    return place


def programs(spark: Any) -> SimpleNamespace:
    """Return the programs as modules, and let Spark's workers import them."""
    where = folder()
    sys.path.insert(0, str(where))
    try:
        modules = {name: importlib.import_module(name) for name in _NAMES}
    finally:
        sys.path.remove(str(where))
    for name in _NAMES:
        spark.sparkContext.addPyFile(str(where / f"{name}.py"))
    # a union of two stages with state is safe here: neither follows the other
    spark.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
    return SimpleNamespace(**modules)


def records(spark: Any, folder: Path, schema: str, files: int = 1000) -> Any:
    """Return a stream of the Parquet files in a folder, so many in a micro-batch."""
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", files).parquet(str(folder))


def seconds(frame: Any) -> float:
    """Run a streaming query over all that is there, write nowhere, and return how long it took."""
    return _run(frame.writeStream.format("noop"))[0]


def batch_ms(frame: Any) -> float:
    """Run a streaming query over all that is there, write nowhere, and return how long its median micro-batch took."""
    return statistics.median(_run(frame.writeStream.format("noop"))[1])


def collected(frame: Any) -> list[dict[str, Any]]:
    """Run a streaming query over all that is there and return its rows."""
    tables: list[Any] = []
    _run(frame.writeStream.foreachBatch(lambda rows, number: tables.append(rows.toArrow())))
    return [row for table in tables for row in table.to_pylist()]


def _run(writer: Any) -> tuple[float, list[float]]:
    """Return how long a query took, and each of its micro-batches in milliseconds."""
    checkpoint = tempfile.mkdtemp(prefix="headwater-bench-")
    try:
        began = time.perf_counter()
        options = writer.outputMode("append").option("checkpointLocation", checkpoint)
        query = options.trigger(availableNow=True).start()
        query.awaitTermination()
        spent = time.perf_counter() - began
        return spent, [p.durationMs["triggerExecution"] for p in query.recentProgress if p.numInputRows]
    finally:
        rmtree(checkpoint, ignore_errors=True)
