"""STATS without taking messages apart: one row for each message in, one row for each message and kind of result out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from headwater.data.batch import Batch
from headwater.data.column import Array, Column, Text
from headwater.data.text_format import decimal_texts, float32_rows, float32_texts
from headwater.flow.state import Cell, Rows
from headwater.steps.distinct import distinct_count
from headwater_bench.riot.kernels.wide import kalman_rows, moment_rows, regression_rows


def values_of(batch: Batch, names: Sequence[str]) -> Array:
    """Return the named columns as the rows of a new matrix."""
    return np.array([batch[name] for name in names], np.float32)


class WideKalman:
    """Smooths each sensor's values by Kalman filters of one dimension."""

    def __init__(
        self, names: Sequence[str], process_noise: float = 0.125, sensor_noise: float = 0.32, error: float = 30
    ) -> None:
        self._names, self._noise = tuple(names), (process_noise, sensor_noise)
        self.makes = self.reads = self._names
        self.state: Mapping[str, Cell] = {
            "estimate": Cell("float32", shape=(len(self._names),)),
            "variance": Cell("float32", error),
        }

    def run(self, batch: Batch, slots: Array, state: dict[str, Array]) -> Rows:
        """Return the estimates."""
        values = values_of(batch, self._names)
        kalman_rows(slots, values, state["estimate"], state["variance"], *self._noise)
        smoothed: dict[str, Column] = dict(zip(self._names, values, strict=True))
        return smoothed


class WideRegression:
    """Predicts each sensor's next values from lines through its last ones; a text is each followed by #."""

    def __init__(self, names: Sequence[str], window: int = 10, horizon: int = 10) -> None:
        self._names, self._horizon, self._kind = tuple(names), horizon, Text.of(["SLR"])
        self.makes, self.reads = ("kind", *self._names), self._names
        self.state: Mapping[str, Cell] = {
            "last": Cell("float32", shape=(len(self._names), window)),
            "count": Cell("int64"),
        }

    def run(self, batch: Batch, slots: Array, state: dict[str, Array]) -> Rows:
        """Return predictions for the rows that have a full window before them."""
        rows = np.empty(batch.length, np.int64)
        out = np.empty((len(self._names), batch.length, self._horizon), np.float32)
        values = values_of(batch, self._names)
        count = regression_rows(slots, values, state["last"], state["count"], rows, out)
        by_kind = out[:, :count].reshape(-1, self._horizon)
        return rows[:count], _results(self._kind, self._names, Text(*float32_rows(by_kind, "#")), count)


class WideMoment:
    """Estimates the second-order moment of each sensor's values from ten of them."""

    def __init__(self, names: Sequence[str], places: int = 10, seed: int = 1) -> None:
        self._names, self._seed, self._kind = tuple(names), seed, Text.of(["SOM"])
        many = len(self._names)
        self.makes, self.reads = ("kind", *self._names), self._names
        self.state: Mapping[str, Cell] = {
            "items": Cell("float32", shape=(many, places)),
            "counts": Cell("int64", shape=(many, places)),
            "seen": Cell("int64"),
            "used": Cell("int64", shape=(many,)),
        }

    def run(self, batch: Batch, slots: Array, state: dict[str, Array]) -> Rows:
        """Return the estimates after each row."""
        values = values_of(batch, self._names)
        out = np.empty_like(values)
        cells = state["items"], state["counts"], state["seen"], state["used"]
        moment_rows(slots, values, *cells, self._seed, out)
        return _results(self._kind, self._names, Text(*float32_texts(out.ravel())), batch.length)


class WideDistinct:
    """Estimates how many distinct sensors there are; all kinds come from the same ones, so one sketch serves all."""

    def __init__(self, names: Sequence[str], item: str, bits: int = 5) -> None:
        self._names, self._item, self._kind = tuple(names), item, Text.of(["DA"])
        self.makes, self.reads = ("kind", *self._names), (item,)
        self.state: Mapping[str, Cell] = {"ranks": Cell("int64", shape=(2**bits + 1,))}

    def run(self, batch: Batch, slots: Array, state: dict[str, Array]) -> Rows:
        """Return the estimate after each row, once for each kind."""
        out = np.empty(batch.length, np.int64)
        items: Text = batch[self._item]
        distinct_count(slots, items.data, items.offsets, state["ranks"], out)
        result = Text(*decimal_texts(out.astype(np.float64), 0))
        kind = self._kind.take(np.zeros(batch.length, np.int64))
        return {"kind": kind, **dict.fromkeys(self._names, result)}


def _results(kind: Text, names: Sequence[str], texts: Text, rows: int) -> dict[str, Column]:
    """Return one column of results for each kind of observation, out of texts that come kind by kind."""
    columns: dict[str, Column] = {name: texts[k * rows : (k + 1) * rows] for k, name in enumerate(names)}
    return {"kind": kind.take(np.zeros(rows, np.int64)), **columns}
