"""PRED by hand: a class by a decision tree, and the error of a regression in units of the latest average.

Class and forecast are expressions, or numpy on Arrow batches; the averages by sensor, and the latest of them all, are
state that every record has to pass in order: one group.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import senml
import state
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

LABELS = ("BAD", "GOOD", "VERYGOOD")
BORDERS = (22.0, 29.0)
WEIGHTS = {"temperature": -0.5106896760749683, "humidity": 0.1550345386077423, "dust": -0.0043941074441107295}
INTERCEPT = 37.442739000196276
BLOCK = 5

PREDICTED = "msg long, source string, klass int, measured float, predicted float"
_ESTIMATED = "msg long, source string, klass int, predicted float, error float"


def native(messages: DataFrame) -> DataFrame:
    rows = senml.native(messages)
    air = F.col("airquality_raw")
    klass = F.when(air <= BORDERS[0], 0).when(air <= BORDERS[1], 1).otherwise(2)
    forecast = F.lit(INTERCEPT)
    for name, weight in WEIGHTS.items():
        forecast = forecast + F.col(name).cast("double") * weight
    estimates = rows.select(
        "msg",
        "source",
        klass.alias("klass"),
        air.alias("measured"),
        forecast.cast("float").alias("predicted"),
    )
    return _results(estimates, state.in_pandas)


def arrow(messages: DataFrame) -> DataFrame:
    return _results(messages.mapInArrow(_predict, PREDICTED), state.in_pandas)


def transform(messages: DataFrame) -> DataFrame:
    return _results(messages.mapInArrow(_predict, PREDICTED), state.transformed)


def _predict(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict(predicted(batch))


def predicted(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    columns = senml.parsed_columns(batch)
    air = columns["airquality_raw"].to_numpy()
    forecast = np.full(len(air), INTERCEPT)
    for name, weight in WEIGHTS.items():
        forecast += weight * columns[name].to_numpy().astype(np.float64)
    return {
        "msg": columns["msg"],
        "source": columns["source"],
        "klass": pa.array(np.searchsorted(BORDERS, air, side="left").astype(np.int32)),
        "measured": columns["airquality_raw"],
        "predicted": pa.array(forecast.astype(np.float32)),
    }


def _results(rows: DataFrame, keep: state.Keep) -> DataFrame:
    """Return two results for each message."""
    estimated = keep(rows.withColumn("one", F.lit(0)).groupBy("one"), estimate, _ESTIMATED)
    labels = F.array(*(F.lit(label) for label in LABELS))
    dtc = F.struct(
        F.lit("DTC").alias("kind"), F.col("klass").cast("float").alias("result"), labels[F.col("klass")].alias("label")
    )
    mlr = F.struct(F.lit("MLR").alias("kind"), F.col("error").alias("result"), F.lit("").alias("label"))
    both = estimated.select("msg", "source", "predicted", F.explode(F.array(dtc, mlr)).alias("r"))
    return both.select("msg", "source", "predicted", "r.*")


def estimate(key: tuple[int], frames: Iterator[pd.DataFrame], before: bytes | None) -> tuple[pd.DataFrame, bytes]:
    rows = pd.concat(list(frames)).sort_values("msg", ignore_index=True)
    latest, sums, counts = 0.0, {}, {}
    if before is not None:
        latest, sums, counts = msgspec.msgpack.decode(before)
    # what is left of a block from before goes in front as rows of its own
    open_ = pd.DataFrame({"source": list(sums), "sum": list(sums.values()), "count": [counts[s] for s in sums]})
    mine = pd.DataFrame({"source": rows["source"], "sum": rows["measured"], "count": 1})
    every = pd.concat([open_, mine], ignore_index=True) if sums else mine
    by = every.groupby("source", sort=False)
    seen = by["count"].cumsum().to_numpy()
    total = by["sum"].cumsum().to_numpy(np.float64)
    ends = seen % BLOCK == 0
    complete = every[ends].assign(total=total[ends])
    means = (complete["total"] - complete.groupby("source", sort=False)["total"].shift(fill_value=0.0)) / BLOCK
    averages = np.full(len(every), np.nan, np.float32)
    averages[ends] = means
    averages = pd.Series(averages[len(open_) :]).shift(fill_value=latest).ffill().to_numpy()
    ending = every.assign(seen=seen, total=total).groupby("source", sort=False).last()
    complete_total = complete.groupby("source", sort=False)["total"].last().reindex(ending.index, fill_value=0.0)
    rest = ending["seen"] % BLOCK
    still = rest > 0
    last = means.iloc[-1] if len(means) else latest
    state_of = float(last), (ending["total"] - complete_total)[still].to_dict(), rest[still].to_dict()
    with np.errstate(divide="ignore", invalid="ignore"):
        rows["error"] = ((rows["measured"] - rows["predicted"]) / averages).astype(np.float32)
    return rows[["msg", "source", "klass", "predicted", "error"]], msgspec.msgpack.encode(state_of)
