"""Generated FIT messages: body sensors at 50 Hz."""

from __future__ import annotations

from typing import Any

import numpy as np

from headwater.data.column import Column, Text
from headwater.errors import FlowError
from headwater_bench.riot.datasets import FIT
from headwater_bench.riot.draws import Blocks, Ints


class FitStream:
    """Body sensors of `subjects` people, each sampled at 50 Hz; made up, within the ranges that are known."""

    dataset, decimals = FIT, 5

    def __init__(self, seed: int = 1, subjects: int = 10, start_ms: int = 1_417_890_600_000) -> None:
        if subjects < 1:
            raise FlowError(f"a FIT stream needs subjects; got {subjects}")
        self.subjects, self.start_ms = subjects, start_ms
        self.ids = Text.of([f"subject{i + 1}" for i in range(subjects)])
        rng = np.random.default_rng([seed, 2**32])
        ranges = np.array([FIT.ranges.get(name, (-1.0, 1.0)) for name in FIT.numbers[:-1]])
        self._middle, self._width = ranges.mean(axis=1), ranges[:, 1] - ranges[:, 0]
        self._pace_hz = rng.uniform(0.5, 2.0, subjects)
        self._phase = rng.uniform(0, 2 * np.pi, len(ranges))
        self._blocks = Blocks(seed, self._draw)

    def columns(self, start: int, count: int) -> dict[str, Column]:
        """Return `time_ms` and one column for each field of a message."""
        numbers = np.arange(start, start + count)
        values = self._blocks.take(start, count)["values"]
        out: dict[str, Column] = {
            "time_ms": self.start_ms + numbers // self.subjects * 20,
            "subjectId": self.ids.take(numbers % self.subjects),
        }
        for k, name in enumerate(FIT.numbers[:-1]):
            out[name] = values[:, k].copy()
        out["label"] = (numbers // self.subjects // 3000 % 13).astype(np.float64)  # a minute of each activity
        return out

    def _draw(self, rng: np.random.Generator, numbers: Ints) -> dict[str, Any]:
        seconds = numbers // self.subjects / 50
        turn = 2 * np.pi * self._pace_hz[numbers % self.subjects] * seconds
        wave = np.sin(turn[:, None] + self._phase) * 0.25
        noise = rng.standard_normal(wave.shape) * 0.05
        return {"values": np.round(self._middle + self._width * (wave + noise), 5)}
