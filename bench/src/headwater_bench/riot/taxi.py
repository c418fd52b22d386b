"""Generated TAXI messages: trips in New York."""

from __future__ import annotations

from typing import Any

import numpy as np

from headwater.data.column import Column, Text
from headwater.data.text_format import decimal_texts
from headwater.errors import FlowError
from headwater_bench.riot.datasets import TAXI
from headwater_bench.riot.draws import Blocks, Ints, Marginal, correlated, names


class TaxiStream:
    """Taxi trips in New York, stamped with the minute of their end."""

    dataset, decimals = TAXI, 2
    #: trip time, distance
    marginals = (
        Marginal(
            *(0, 0, 0, 60, 120, 180, 300, 420, 480, 600, 720, 900, 1080, 1380, 1620, 1860, 1980, 2280, 3060),
            places=0,
        ),
        Marginal(
            *(0, 0, 0, 0.33, 0.59, 0.83, 1.23, 1.67, 2.14, 2.9, 3.83, 5.12, 7.07, 10.57, 16.68, 18.66, 19.53),
            *(20.24, 22.3),
            places=2,
        ),
    )

    def __init__(
        self, seed: int = 1, taxis: int = 20_355, rate_hz: float = 4000, start_ms: int = 1_358_101_800_000
    ) -> None:
        if taxis < 1 or rate_hz <= 0:
            raise FlowError(f"a TAXI stream needs taxis and a rate; got {taxis} taxis, {rate_hz} per second")
        self.rate_hz, self.start_ms, self.taxis = rate_hz, start_ms, taxis
        rng = np.random.default_rng([seed, 2**32])
        self.ids = Text.of_bytes(names(rng, taxis, 32, b"0123456789ABCDEF"))
        self._licences = Text.of_bytes(names(rng, taxis, 32, b"0123456789ABCDEF"))
        self._root = correlated({(0, 1): 0.94}, 2)
        self._blocks = Blocks(seed, self._draw)

    def columns(self, start: int, count: int) -> dict[str, Column]:
        """Return `time_ms` and one column for each field of a message."""
        drawn = self._blocks.take(start, count)
        time_ms = self.start_ms + ((np.arange(start, start + count) / self.rate_hz) // 60 * 60_000).astype(np.int64)
        out: dict[str, Column] = {
            "time_ms": time_ms,
            "taxi_identifier": self.ids.take(drawn["taxi"]),
            "hack_license": self._licences.take(drawn["licence"]),
            "pickup_datetime": _moments(time_ms // 1000 - drawn["time"].astype(np.int64)),
            "payment_type": _PAYMENTS.take(drawn["card"].astype(np.int64)),
            "trip_time_in_secs": drawn["time"],
            "trip_distance": drawn["distance"],
        }
        for k, name in enumerate(("pickup_longitude", "pickup_latitude", "dropoff_longitude", "dropoff_latitude")):
            out[name] = Text(*decimal_texts(drawn["position"][:, k].copy(), 6))
        for name in ("fare_amount", "surcharge", "mta_tax", "tip_amount", "tolls_amount", "total_amount"):
            out[name] = drawn[name]
        return out

    def _draw(self, rng: np.random.Generator, numbers: Ints) -> dict[str, Any]:
        count = len(numbers)
        normal = rng.standard_normal((count, 2)) @ self._root.T
        time, distance = (m.bend(normal[:, k]) for k, m in enumerate(self.marginals))
        # The regression that the benchmark's own model found, with its scatter, in steps of half a dollar.
        scatter = np.clip(rng.standard_t(2, count) * 2.5, -6, 100)
        fare = np.clip(np.rint((3.574 + 0.002168 * time + 2.3472 * distance + scatter) * 2) / 2, 2.5, 165)
        card = rng.random(count) < 0.489
        tip = np.where(card & (rng.random(count) < 0.953), np.rint(fare * rng.normal(0.2, 0.05, count) * 100) / 100, 0)
        tip = np.maximum(tip, 0)
        tolls = np.where(rng.random(count) < 0.012 * np.exp(0.22 * distance).clip(1, 60), 4.8, 0.0)
        surcharge = np.where(rng.random(count) < 0.95, 0.5, 0.0)
        tax = np.where(rng.random(count) < 0.997, 0.5, 0.0)
        position = rng.normal((-73.98, 40.75, -73.97, 40.75), 0.03, (count, 4))
        position[rng.random(count) < 0.02] = 0
        return {
            "taxi": rng.integers(0, self.taxis, count),
            "licence": rng.integers(0, self.taxis, count),
            "time": time,
            "distance": distance,
            "card": card,
            "position": position,
            "fare_amount": fare,
            "surcharge": surcharge,
            "mta_tax": tax,
            "tip_amount": tip,
            "tolls_amount": tolls,
            "total_amount": fare + surcharge + tax + tip + tolls,
        }


_PAYMENTS = Text.of(["CSH", "CRD"])


def _moments(seconds: Ints) -> Text:
    """Write moments as `2013-01-13 23:36:00`; there are few days among them, so only those are looked up."""
    days, day = np.unique(seconds // 86400, return_inverse=True)
    dates = np.frombuffer("".join(np.datetime_as_string(days.astype("datetime64[D]"))).encode(), np.uint8)
    letters = np.empty((len(seconds), 19), np.uint8)
    letters[:, :10] = dates.reshape(-1, 10)[day]
    letters[:, 10:] = np.frombuffer(b" 00:00:00", np.uint8)
    of_day = seconds % 86400
    for at, part in ((11, of_day // 3600), (14, of_day // 60 % 60), (17, of_day % 60)):
        letters[:, at] += (part // 10).astype(np.uint8)
        letters[:, at + 1] += (part % 10).astype(np.uint8)
    return Text(letters.ravel(), np.arange(len(seconds) + 1, dtype=np.int32) * np.int32(19))
