"""The benchmark's forms of the keyed steps: observations are told by number, results are texts with the task's name."""

from __future__ import annotations

import numpy as np

from headwater import steps
from headwater.data.batch import Batch
from headwater.data.column import Array, Column, Text
from headwater.data.text_format import decimal_texts, float32_rows, float32_texts
from headwater.flow.state import Rows

RESULTS = ("obs", "kind", "result")  #: the columns that a result of any kind has


class Interpolate(steps.Interpolate):
    """Fills gaps as the product's step does; observation 0, which names the sensor, becomes 0."""

    def __init__(self, window: int) -> None:
        super().__init__(window)
        self.reads = ("value", "obs")

    def run(self, batch: Batch, slots: Array, state: dict[str, Array]) -> Rows:
        """Return the values with the gaps filled."""
        return super().run(batch, np.where(batch["obs"] == 0, -1, slots), state)


class SlidingRegression(steps.SlidingRegression):
    """Predicts each key's next ten values; `result` is each followed by #."""

    def __init__(self, obs: Text) -> None:
        super().__init__(horizon=10)
        self.makes, self.reads = RESULTS, (self.column, "obs")
        self._obs, self._kind = obs, Text.of(["SLR"])

    def run(self, batch: Batch, slots: Array, state: dict[str, Array]) -> Rows:
        """Return predictions for the records that have a full window before them."""
        rows, ahead = self.forecasts(batch, slots, state)
        return rows, _results(batch["obs"][rows], self._obs, self._kind, Text(*float32_rows(ahead, "#")))


class SecondMoment(steps.SecondMoment):
    """Estimates the second-order moment of each key's values."""

    def __init__(self, obs: Text) -> None:
        super().__init__()
        self.makes, self.reads = RESULTS, (self.column, "obs")
        self._obs, self._kind = obs, Text.of(["SOM"])

    def run(self, batch: Batch, slots: Array, state: dict[str, Array]) -> Rows:
        """Return the estimate after each record."""
        moments = self.moments(batch, slots, state)
        return _results(batch["obs"], self._obs, self._kind, Text(*float32_texts(moments)))


class DistinctCount(steps.DistinctCount):
    """Estimates how many distinct sensors each kind of observation has come from."""

    def __init__(self, obs: Text, item: str) -> None:
        super().__init__(item)
        self.makes, self.reads = RESULTS, (self.column, "obs")
        self._obs, self._kind = obs, Text.of(["DA"])

    def run(self, batch: Batch, slots: Array, state: dict[str, Array]) -> Rows:
        """Return the estimate after each record."""
        counts = self.counts(batch, slots, state).astype(np.float64)
        return _results(batch["obs"], self._obs, self._kind, Text(*decimal_texts(counts, 0)))


def _results(obs: Array, names: Text, kind: Text, result: Text) -> dict[str, Column]:
    return {"obs": names.take(obs), "kind": kind.take(np.zeros(len(obs), np.int64)), "result": result}
