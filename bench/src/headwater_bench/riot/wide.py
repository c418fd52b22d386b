"""ETL without taking messages apart: the same steps on one row for each message."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from headwater.data.batch import Batch
from headwater.data.column import Array, Column, nullable
from headwater.flow.state import Cell, Rows
from headwater.steps.bloom import BloomFilter
from headwater.steps.interpolate import fill_rows
from headwater_bench.riot.datasets import Dataset
from headwater_bench.riot.kernels.ranges import blank_outside

# In these rows a missing value is a NaN, which no message can hold: one array then says all there is to say.


class WideRange:
    """Takes the values out of a row that lie outside their ranges."""

    def __init__(self, dataset: Dataset) -> None:
        self._names = [name for name in dataset.numbers if name in dataset.ranges]
        ranges = [dataset.ranges[name] for name in self._names]
        self._low = np.array([low for low, _ in ranges], np.float32)
        self._high = np.array([high for _, high in ranges], np.float32)

    def __call__(self, batch: Batch) -> Batch:
        """Return the batch with values taken out."""
        values = np.array([batch[name] for name in self._names])
        blank_outside(values, self._low, self._high)
        return batch.with_columns(dict(zip(self._names, values, strict=True)))


class WideBloom:
    """Asks whether each row's sensor is known; as in the original, the answer changes no output."""

    def __init__(self, dataset: Dataset, known: BloomFilter) -> None:
        self._id, self._known = dataset.id, known

    def __call__(self, batch: Batch) -> Batch:
        """Return the batch."""
        self._known.contains(batch[self._id])
        return batch


class WideInterpolate:
    """Fills each missing value of a row with the mean of the sensor's last valid ones, or 0."""

    def __init__(self, dataset: Dataset) -> None:
        self._names = dataset.numbers
        window, many = dataset.interpolate, len(dataset.numbers)
        self.makes = self.reads = tuple(self._names)
        self.state: Mapping[str, Cell] = {
            "last": Cell("float32", shape=(many, window)),
            "count": Cell("int64", shape=(many,)),
        }

    def run(self, batch: Batch, slots: Array, state: dict[str, Array]) -> Rows:
        """Return the rows without gaps."""
        values = np.array([batch[name] for name in self._names])
        fill_rows(slots, values, state["last"], state["count"])
        filled: dict[str, Column] = dict(zip(self._names, values, strict=True))
        return filled


class NanToNull:
    """Lets the values that were taken out stay missing, for a stream that is not interpolated."""

    def __init__(self, dataset: Dataset) -> None:
        self._names = dataset.numbers

    def __call__(self, batch: Batch) -> Batch:
        """Return the batch with proper nulls."""
        return batch.with_columns({name: nullable(batch[name], ~np.isnan(batch[name])) for name in self._names})
