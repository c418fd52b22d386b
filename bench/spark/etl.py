"""ETL by hand: parse, take out values outside their ranges, interpolate by sensor, annotate, write SenML.

Interpolation remembers the last valid values of each sensor, so it needs Spark's arbitrary state; all the rest are
Spark's own functions, or a mapInArrow for the parser.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd
import senml
import state
from keyed import GAP, filled, in_order
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

RANGES = {
    "temperature": (0.7, 35.1),
    "humidity": (20.3, 69.1),
    "light": (0.0, 5153.0),
    "dust": (83.36, 3322.67),
    "airquality_raw": (12.0, 49.0),
}
UNITS = {"source": "string", "longitude": "lon", "latitude": "lat", "temperature": "far"} | {
    "humidity": "per",
    "light": "per",
    "dust": "per",
    "airquality_raw": "per",
}


def native(messages: DataFrame, notes: Mapping[str, tuple[str, str]]) -> DataFrame:
    return _etl(senml.native(messages), notes, state.in_pandas)


def arrow(messages: DataFrame, notes: Mapping[str, tuple[str, str]]) -> DataFrame:
    return _etl(senml.arrow(messages), notes, state.in_pandas)


def transform(messages: DataFrame, notes: Mapping[str, tuple[str, str]]) -> DataFrame:
    return _etl(senml.arrow(messages), notes, state.transformed)


def _etl(rows: DataFrame, notes: Mapping[str, tuple[str, str]], keep: state.Keep) -> DataFrame:
    ranged = rows.withColumns({name: _within(name, *bounds) for name, bounds in RANGES.items()})
    filled = keep(ranged.groupBy("source"), interpolate, senml.ROW)
    sensors = rows.sparkSession.createDataFrame(
        [(name, *words) for name, words in notes.items()], "source string, location string, type string"
    )
    return filled.join(F.broadcast(sensors), "source").withColumn("senml", _senml())


def _within(name: str, low: float, high: float) -> Column:
    value = F.col(name)
    least, most = F.lit(low).cast("float"), F.lit(high).cast("float")
    return F.when((value >= least) & (value <= most), value)


def interpolate(key: tuple[str], frames: Iterator[pd.DataFrame], before: bytes | None) -> tuple[pd.DataFrame, bytes]:
    rows = in_order(frames)
    last = np.full((len(RANGES), GAP), np.nan, np.float32)
    if before is not None:
        last = np.frombuffer(before, np.float32).reshape(last.shape).copy()
    for k, name in enumerate(RANGES):
        rows[name], last[k] = filled(rows[name].astype(np.float32, copy=False), last[k])
    return pd.DataFrame(rows), last.tobytes()


def _senml() -> Column:
    parts, before = [], '{"e":['
    for name, unit in {**UNITS, "location": "string", "type": "string"}.items():
        kind = "sv" if name in ("source", "location", "type") else "v"
        parts += [F.lit(f'{before}{{"{kind}":"'), F.col(name).cast("string")]
        before = f'","u":"{unit}","n":"{name}"}},'
    return F.concat(*parts, F.lit(before[:-1] + '],"bt":"'), F.col("timestamp").cast("string"), F.lit('"}'))
