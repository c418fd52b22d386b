"""A table of readings by hand: smoothed by sensor, then means in windows; two ways, each as fast as we could make it.

`arrow` sorts the rows of each partition and streams them through a compiled loop; `pandas` hands each sensor's rows to a
function as a whole. Both give the windows that are over at the moment `over_us`; neither leaves anything for a stream to go
on from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

OUT = "sensor long, start long, n long, mean double"


@numba.njit(nogil=True)
def windows(sensor, value, at, size, estimate, variance, window, count, total, out_sensor, out_start, out_n, out_mean):
    count_out = 0
    for i in range(len(sensor)):
        s = sensor[i]
        before = variance[s] + np.float32(0.125)
        gain = before / (before + np.float32(0.32))
        estimate[s] += gain * (value[i] - estimate[s])
        variance[s] = (np.float32(1) - gain) * before
        start = at[i] // size * size
        if count[s] and start != window[s]:
            out_sensor[count_out], out_start[count_out], out_n[count_out] = s, window[s], count[s]
            out_mean[count_out] = total[s] / count[s]
            count_out += 1
            count[s], total[s] = 0, 0.0
        window[s] = start
        count[s] += 1
        total[s] += estimate[s]
    return count_out


class Sensors:
    """What is kept of sensors 0 to `sensors`."""

    def __init__(self, sensors: int, size_us: int) -> None:
        self.size_us = size_us
        self.estimate, self.variance = np.zeros(sensors, np.float32), np.full(sensors, 30, np.float32)
        self.window, self.count = np.zeros(sensors, np.int64), np.zeros(sensors, np.int64)
        self.total = np.zeros(sensors)

    def take(self, sensor: np.ndarray, value: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, ...]:
        n = len(sensor)
        out = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n)
        state = self.estimate, self.variance, self.window, self.count, self.total
        many = windows(sensor, value, at, self.size_us, *state, *out)
        return tuple(column[:many] for column in out)

    def over(self, over_us: int) -> tuple[np.ndarray, ...]:
        which = np.flatnonzero((self.count > 0) & (self.window + self.size_us <= over_us))
        return which, self.window[which], self.count[which], self.total[which] / self.count[which]


def arrow(table: DataFrame, until_us: int, over_us: int, sensors: int, size_us: int) -> DataFrame:
    rows = _before(table, until_us).repartition("sensor").sortWithinPartitions("at")
    return rows.mapInArrow(_streamed(over_us, sensors, size_us), OUT)


def pandas(table: DataFrame, until_us: int, over_us: int, sensors: int, size_us: int) -> DataFrame:
    def run(rows: pd.DataFrame) -> pd.DataFrame:
        rows = rows.sort_values("at", kind="stable")
        one = Sensors(1, size_us)
        zeros = np.zeros(len(rows), np.int64)
        windows_out = one.take(zeros, rows["value"].to_numpy(), rows["at"].to_numpy())
        _, start, n, mean = (np.concatenate(parts) for parts in zip(windows_out, one.over(over_us), strict=True))
        return pd.DataFrame({"sensor": rows["sensor"].iat[0], "start": start, "n": n, "mean": mean})

    return _before(table, until_us).groupBy("sensor").applyInPandas(run, OUT)


def _before(table: DataFrame, until_us: int) -> DataFrame:
    return table.select("sensor", "value", F.unix_micros("at").alias("at")).where(F.col("at") < until_us)


def _streamed(over_us: int, sensors: int, size_us: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        state = Sensors(sensors, size_us)
        names = ["sensor", "start", "n", "mean"]
        for batch in batches:
            windows_out = state.take(*(batch.column(name).to_numpy() for name in ("sensor", "value", "at")))
            yield pa.RecordBatch.from_arrays([pa.array(column) for column in windows_out], names=names)
        yield pa.RecordBatch.from_arrays([pa.array(column) for column in state.over(over_us)], names=names)

    return run
