"""Filters of observations: what does not pass loses its value, not its place."""

from __future__ import annotations

import numpy as np

from headwater.data.batch import Batch
from headwater.data.column import Text, nullable, parts
from headwater.operators import DEAD, Operator, Output
from headwater.operators.operator import dead_letters
from headwater.steps.bloom import BloomFilter
from headwater_bench.riot.datasets import Dataset
from headwater_bench.riot.kernels.ranges import inside


class RangeFilter:
    """Takes the value from an observation that lies outside the range of its kind."""

    def __init__(self, dataset: Dataset) -> None:
        ranges = [dataset.ranges.get(name, (-np.inf, np.inf)) for name in dataset.observed]
        self._low = np.array([low for low, _ in ranges], np.float32)
        self._high = np.array([high for _, high in ranges], np.float32)

    def __call__(self, batch: Batch) -> Batch:
        """Return the batch with values taken out."""
        values, valid = parts(batch["value"])
        assert isinstance(values, np.ndarray)
        passes = np.empty(batch.length, np.bool_)
        inside(batch["obs"], values, self._low, self._high, passes)
        if valid is not None:
            passes &= valid
        return batch.with_columns({"value": nullable(values, passes)})


class BloomCheck:
    """Takes the value from the observation that names a sensor, when the sensor is certainly unknown."""

    def __init__(self, dataset: Dataset, known: BloomFilter) -> None:
        self._id, self._known = dataset.id, known

    def __call__(self, batch: Batch) -> Batch:
        """Return the batch with values taken out."""
        first_rows = np.flatnonzero(batch["obs"] == 0)
        ids: Text = batch[self._id]
        strange = first_rows[~self._known.contains(ids if len(first_rows) == batch.length else ids.take(first_rows))]
        if not len(strange):
            return batch
        values, valid = parts(batch["value"])
        mask = np.ones(batch.length, np.bool_) if valid is None else valid.copy()
        mask[strange] = False
        return batch.with_columns({"value": nullable(values, mask)})


class KnownSensors(Operator):
    """Passes the observations of known sensors, or all when none are named; the others are dead letters."""

    def __init__(self, dataset: Dataset, known: BloomFilter | None, step: str = "bloom") -> None:
        self._id, self._known, self._step = dataset.id, known, step

    def process(self, batch: Batch, port: int) -> Output:
        """Return the observations that pass."""
        if self._known is None:
            return batch
        passes = self._known.contains(batch[self._id])
        if passes.all():
            return batch
        strange = batch.filter(~passes)
        reasons = [f"sensor {name!r} is not a known one" for name in strange[self._id].tolist()]
        return [(0, batch.filter(passes)), (DEAD, dead_letters(self._step, reasons, strange))]


def known_ids(ids: Text, capacity: int = 20_000_000, false_positives: float = 0.01) -> BloomFilter:
    """Return a filter of the benchmark's size that knows these ids."""
    ids_filter = BloomFilter(capacity, false_positives)
    ids_filter.add(ids)
    return ids_filter
