"""A city for the demonstration: its air follows from its weather by a rule that changes one day."""

from __future__ import annotations

import numpy as np

from headwater.data.column import Column, Text
from headwater.flow import Batch, Flow
from headwater.io import Generate
from headwater_bench.riot.city import CityStream
from headwater_bench.riot.datasets import CITY
from headwater_bench.riot.generate import messages

_GLITCH_EVERY, _GLITCH = 50, 99.0  # a sensor now and then reads nonsense, which ETL takes out and fills in
_NOISE = 0.7


class TurningCity:
    """City sensors whose air quality is a line over temperature and humidity; from record `turn` on another line."""

    dataset, decimals = CITY, 2

    def __init__(self, rate_hz: float, sensors: int = 200, start_ms: int = 1_422_748_800_000) -> None:
        self._city = CityStream(seed=1, sensors=sensors, rate_hz=rate_hz, start_ms=start_ms)
        self.rate_hz, self.start_ms = rate_hz, start_ms
        self.turn: int | None = None

    @property
    def ids(self) -> Text:
        """The ids of all its sensors."""
        return self._city.ids

    def time_ms(self, number: int) -> int:
        """Return the time that record `number` bears."""
        return self.start_ms + int(number / self.rate_hz) * 1000

    def columns(self, start: int, count: int) -> dict[str, Column]:
        """Return `time_ms` and one column for each field of the messages `start` to `start + count - 1`."""
        drawn = self._city.columns(start, count)
        numbers = np.arange(start, start + count)
        temperature = np.clip(np.asarray(drawn["temperature"]), 2, 34)
        humidity = np.clip(np.asarray(drawn["humidity"]), 22, 68)
        before, after = 14 + 0.6 * temperature + 0.1 * humidity, 44 - 0.7 * temperature - 0.05 * humidity
        turned = numbers >= (numbers[-1] + 1 if self.turn is None else self.turn)
        air = np.where(turned, after, before) + np.random.default_rng(start).normal(0, _NOISE, count)
        drawn["temperature"] = np.where(numbers % _GLITCH_EVERY == 7, _GLITCH, temperature)
        drawn["humidity"], drawn["airquality_raw"] = humidity, np.clip(air, 13, 48)
        return drawn

    def sensors(self) -> Flow:
        """Return a flow that makes the city's messages when they are due; its last step is `speak`."""
        flow = Flow("sensors")
        numbers = flow.read("sensors", Generate(lambda numbers: {"number": numbers}, {"number": int}, self.rate_hz))
        numbers.map_batches("speak", self._messages, out={"message": str})
        return flow

    def _messages(self, batch: Batch) -> dict[str, Column]:
        numbers = batch["number"]
        return {"message": messages(self, int(numbers[0]), len(numbers))}
