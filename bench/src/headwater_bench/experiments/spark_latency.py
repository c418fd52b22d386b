"""How long micro-batches and records take on Spark at a modest rate, beside a query that does nothing."""

from __future__ import annotations

import statistics
import tempfile
import time
from shutil import rmtree
from typing import Any

from headwater.histogram import Histogram
from headwater_bench.riot.etl import etl
from headwater_bench.riot.sources import generated

_FEW = 5  #: micro-batches at least
_WARM = 0.4  #: of the time passes before anything counts: Java compiles, Python workers start


def of_etl(rate: float, seconds: float) -> dict[str, float]:
    """Run ETL on generated messages; return the median micro-batch, and what records took from creation to sink."""
    from headwater import spark

    messages = generated("city", rate, count=int(rate * seconds))
    report = spark.run(etl(messages, wide=True), sample_s=0.5)
    warm = next((s.latency for s in report.samples if s.at_s >= _WARM * seconds), Histogram())
    latency = report.last.latency.minus(warm)
    if not latency.count:  # all came at once, when everything was warm or nothing was
        latency = report.last.latency
    spark_told = report.extra["spark"]
    return {
        "batch": float(spark_told["batch_ms"]["p50"]),
        "p50": round(latency.percentile(50) / 1e6, 1),
        "p99": round(latency.percentile(99) / 1e6, 1),
        "batches": spark_told["batches"],
    }


def empty_ms(spark: Any, seconds: float) -> float:
    """Return the median micro-batch of a query that takes a thousand rows a second and drops them."""
    checkpoint = tempfile.mkdtemp(prefix="headwater-bench-")
    rows = spark.readStream.format("rate").option("rowsPerSecond", 1000).option("numPartitions", 1).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    try:
        began = time.monotonic()
        times_ms: list[int] = []
        while query.isActive and (time.monotonic() < began + seconds or len(times_ms) < _FEW):
            time.sleep(0.1)
            times_ms = [p.durationMs["triggerExecution"] for p in query.recentProgress if p.numInputRows]
    finally:
        query.stop()
        rmtree(checkpoint, ignore_errors=True)
    return float(statistics.median(times_ms[int(_WARM * len(times_ms)) :]))
