"""Generated GRID messages: smart meters."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np

from headwater.data.column import Column, Text
from headwater.errors import FlowError
from headwater_bench.riot.datasets import GRID
from headwater_bench.riot.draws import Blocks, Ints


class GridStream:
    """Smart meters that report half-hourly consumption, log-normal, a tenth outside the benchmark's range.

    No sample of this stream is public: its range is all that is known of its values.
    """

    dataset, decimals = GRID, 3

    def __init__(self, seed: int = 1, meters: int = 6435, start_ms: int = 1_247_511_001_000) -> None:
        if meters < 1:
            raise FlowError(f"a GRID stream needs meters; got {meters}")
        self.meters, self.start_ms = meters, start_ms
        self.ids = Text.of([f"meter{i:07d}" for i in range(meters)])
        low, high = GRID.ranges["energyconsumed"]
        self._mean = (np.log(low) + np.log(high)) / 2
        self._sd = (np.log(high) - np.log(low)) / (2 * NormalDist().inv_cdf(0.95))
        self._typical = np.random.default_rng([seed, 2**32]).standard_normal(meters)
        self._blocks = Blocks(seed, self._draw)

    def columns(self, start: int, count: int) -> dict[str, Column]:
        """Return `time_ms` and one column for each field of a message."""
        numbers = np.arange(start, start + count)
        return {
            "time_ms": self.start_ms + numbers // self.meters * 1_800_000,
            "meterid": self.ids.take(numbers % self.meters),
            "energyconsumed": self._blocks.take(start, count)["energy"],
        }

    def _draw(self, rng: np.random.Generator, numbers: Ints) -> dict[str, Any]:
        normal = (rng.standard_normal(len(numbers)) + self._typical[numbers % self.meters]) / np.sqrt(2)
        return {"energy": np.round(np.exp(self._mean + self._sd * normal), 3)}
