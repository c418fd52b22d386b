"""The keyed tasks as scans: interpolation, Kalman, regression, moment, distinct count, average."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from headwater.data.batch import Batch
from headwater.data.column import Array, Column, Text, parts
from headwater.data.text_format import decimal_texts, float32_rows, float32_texts
from headwater.flow.state import Cell, Rows
from headwater.riot.kernels.average import block_average
from headwater.riot.kernels.distinct import distinct_count
from headwater.riot.kernels.interpolate import interpolate
from headwater.riot.kernels.kalman import kalman
from headwater.riot.kernels.moment import second_moment
from headwater.riot.kernels.regression import sliding_regression


class Interpolate:
    """Fills a gap with the mean of the key's last `window` valid values, or 0; observation 0 becomes 0."""

    def __init__(self, window: int) -> None:
        self.state: Mapping[str, Cell] = {
            "last": Cell("float32", shape=(window,)),
            "count": Cell("int64"),
        }

    def run(self, batch: Batch, slots: Array, state: dict[str, Array]) -> Rows:
        """Return the values with the gaps filled."""
        values, valid = parts(batch["value"])
        assert isinstance(values, np.ndarray)
        there = np.ones(batch.length, np.bool_) if valid is None else valid
        out = np.empty(batch.length, np.float32)
        kept = np.where(batch["obs"] == 0, -1, slots)
        interpolate(kept, values, there, state["last"], state["count"], out)
        return {"value": out}


class Kalman:
    """Smooths each key's values by a Kalman filter of one dimension."""

    def __init__(self, process_noise: float = 0.125, sensor_noise: float = 0.32, error: float = 30) -> None:
        self.process_noise, self.sensor_noise = process_noise, sensor_noise
        self.state: Mapping[str, Cell] = {"estimate": Cell("float32"), "variance": Cell("float32", error)}

    def run(self, batch: Batch, slots: Array, state: dict[str, Array]) -> Rows:
        """Return the estimates."""
        out = np.empty(batch.length, np.float32)
        noise = self.process_noise, self.sensor_noise
        kalman(slots, batch["value"], state["estimate"], state["variance"], *noise, out)
        return {"value": out}


class SlidingRegression:
    """Predicts each key's next values from a line through its last ones; `result` is each followed by #."""

    def __init__(self, obs: Text, window: int = 10, horizon: int = 10) -> None:
        self.horizon = horizon
        self._obs, self._kind = obs, Text.of(["SLR"])
        self.state: Mapping[str, Cell] = {
            "last": Cell("float32", shape=(window,)),
            "count": Cell("int64"),
        }

    def run(self, batch: Batch, slots: Array, state: dict[str, Array]) -> Rows:
        """Return predictions for the records that have a full window before them."""
        rows = np.empty(batch.length, np.int64)
        out = np.empty((batch.length, self.horizon), np.float32)
        made = sliding_regression(slots, batch["value"], state["last"], state["count"], rows, out)
        rows = rows[:made]
        result = Text(*float32_rows(out[:made], "#"))
        return rows, _results(batch["obs"][rows], self._obs, self._kind, result)


class SecondMoment:
    """Estimates the second-order moment of each key's values from ten of them."""

    def __init__(self, obs: Text, places: int = 10, seed: int = 1) -> None:
        self.seed = seed
        self._obs, self._kind = obs, Text.of(["SOM"])
        self.state: Mapping[str, Cell] = {
            "items": Cell("float32", shape=(places,)),
            "counts": Cell("int64", shape=(places,)),
            "seen": Cell("int64"),
            "used": Cell("int64"),
        }

    def run(self, batch: Batch, slots: Array, state: dict[str, Array]) -> Rows:
        """Return the estimate after each record."""
        out = np.empty(batch.length, np.float32)
        cells = state["items"], state["counts"], state["seen"], state["used"]
        second_moment(slots, batch["value"], *cells, self.seed, out)
        return _results(batch["obs"], self._obs, self._kind, Text(*float32_texts(out)))


class DistinctCount:
    """Estimates how many distinct sensors each kind of observation has come from."""

    def __init__(self, obs: Text, item: str, bits: int = 5) -> None:
        self.item = item
        self._obs, self._kind = obs, Text.of(["DA"])
        self.state: Mapping[str, Cell] = {"ranks": Cell("int64", shape=(2**bits + 1,))}

    def run(self, batch: Batch, slots: Array, state: dict[str, Array]) -> Rows:
        """Return the estimate after each record."""
        out = np.empty(batch.length, np.int64)
        items: Text = batch[self.item]
        distinct_count(slots, items.data, items.offsets, state["ranks"], out)
        result = Text(*decimal_texts(out.astype(np.float64), 0))
        return _results(batch["obs"], self._obs, self._kind, result)


class BlockAverage:
    """The mean of every `size` values of a key, with the last of them."""

    def __init__(self, size: int, value: str) -> None:
        self.size, self.value = size, value
        self.state: Mapping[str, Cell] = {"total": Cell("float32"), "count": Cell("int64")}

    def run(self, batch: Batch, slots: Array, state: dict[str, Array]) -> Rows:
        """Return the means that became complete."""
        rows, means = self.means(batch, slots, state)
        return rows, {"value": means}

    def means(self, batch: Batch, slots: Array, state: dict[str, Array]) -> tuple[Array, Array]:
        """Return which records completed a mean, and the means."""
        rows, out = np.empty(batch.length, np.int64), np.empty(batch.length, np.float32)
        values = batch[self.value].astype(np.float32, copy=False)
        made = block_average(slots, values, state["total"], state["count"], self.size, rows, out)
        return rows[:made], out[:made]


def _results(obs: Array, names: Text, kind: Text, result: Text) -> dict[str, Column]:
    return {"obs": names.take(obs), "kind": kind.take(np.zeros(len(obs), np.int64)), "result": result}
