"""Generated CITY messages: environment sensors in seven cities."""

from __future__ import annotations

from typing import Any

import numpy as np

from headwater.data.column import Column, Text
from headwater.data.text_format import decimal_texts
from headwater.errors import FlowError
from headwater_bench.riot.datasets import CITY
from headwater_bench.riot.draws import Blocks, Ints, Marginal, correlated, names, typical


class CityStream:
    """Environment sensors in seven cities; a message every 1 / `rate_hz` seconds of data time.

    As in the sample, up to 28 sensors share a site: its position, and what is typical of it.
    """

    dataset, decimals = CITY, 2
    #: temperature, humidity, light, dust, air quality
    marginals = (
        Marginal(
            *(-8.1, -6.6, -5.1, -2.3, 2.9, 5.2, 9.4, 13.1, 20.7, 23.9, 26.8, 27.9, 29.2, 32.2, 34.4, 36.8),
            *(37.7, 38.3, 40.3),
            places=1,
        ),
        Marginal(
            *(12.0, 16.3, 17.4, 18.5, 23.0, 30.3, 36.3, 40.2, 44.6, 48.0, 52.4, 56.8, 64.1, 70.4, 74.2, 81.1),
            *(86.6, 91.6, 99.9),
            places=1,
        ),
        Marginal(*(0,) * 10, 68, 245, 562, 1129, 1949, 3389, 4574, 6184, 9800, places=0),
        Marginal(
            *(
                0.62,
                0.62,
                0.62,
                24.6,
                75.6,
                158,
                323,
                472,
                627,
                798,
                1077,
                1375,
                1786,
                2399,
                3143,
                4100,
                4710,
            ),
            *(5220, 10428),
            places=2,
        ),
        Marginal(4, 6, 9, 10, 13, 15, 17, 20, 22, 24, 26, 29, 32, 39, 53, 92, 142, 143, 970, places=0),
    )
    #: the share of each field's variance that lies between sites
    site_share = np.array([0.956, 0.75, 0.558, 0.483, 0.398])
    #: Pearson correlations to come out, in the copula's own terms
    correlations: dict[tuple[int, int], float] = {  # noqa: RUF012  # a table, never changed
        (0, 1): 0.33,
        (0, 2): 0.20,
        (0, 3): -0.17,
        (1, 2): -0.18,
        (2, 3): -0.16,
    }
    places = (
        (103.8, 1.35),
        (-43.2, -22.9),
        (-122.4, 37.8),
        (121.5, 31.2),
        (6.2, 46.2),
        (-71.1, 42.4),
        (77.6, 13.0),
    )
    per_site = 28

    def __init__(
        self, seed: int = 1, sensors: int = 2700, rate_hz: float = 5000, start_ms: int = 1_422_748_800_000
    ) -> None:
        if sensors < 1 or rate_hz <= 0:
            raise FlowError(f"a CITY stream needs sensors and a rate; got {sensors} sensors, {rate_hz} per second")
        self.rate_hz, self.start_ms, self.sensors = rate_hz, start_ms, sensors
        self.sites = -(-sensors // self.per_site)
        rng = np.random.default_rng([seed, 2**32])
        drawn = names(rng, self.sites, 22, b"abcdefghijklmnopqrstuvwxyz0123456789")
        self.ids = Text.of_bytes([b"ci4%b%d" % (drawn[i // 28], i % 28) for i in range(sensors)])
        self._root = correlated(self.correlations, 5)
        self._typical = typical(rng, self.sites, self._root) * np.sqrt(self.site_share)
        position = np.array(self.places)[np.arange(self.sites) % 7] + rng.normal(0, 0.05, (self.sites, 2))
        swapped = rng.random(self.sites) < 0.1  # some of the real sensors have them the wrong way round
        position[swapped] = position[swapped][:, ::-1]
        self._longitude = Text(*decimal_texts(position[:, 0].copy(), 6))
        self._latitude = Text(*decimal_texts(position[:, 1].copy(), 6))
        self._blocks = Blocks(seed, self._draw)

    def columns(self, start: int, count: int) -> dict[str, Column]:
        """Return `time_ms` and one column for each field of a message."""
        drawn = self._blocks.take(start, count)
        site = drawn["sensor"] // self.per_site
        out: dict[str, Column] = {
            "time_ms": self.start_ms + ((np.arange(start, start + count) / self.rate_hz) // 1 * 1000).astype(np.int64),
            "source": self.ids.take(drawn["sensor"]),
            "longitude": self._longitude.take(site),
            "latitude": self._latitude.take(site),
        }
        for k, name in enumerate(CITY.numbers):
            out[name] = drawn["values"][:, k].copy()
        return out

    def _draw(self, rng: np.random.Generator, numbers: Ints) -> dict[str, Any]:
        # Sites report in turn, in an order that changes from round to round; the sensor of a site by chance.
        sites = self.sites
        rounds = -(-len(numbers) // sites)
        order = np.argsort(rng.random((rounds, sites)), axis=1).ravel()[: len(numbers)]
        sensor = order * self.per_site + rng.integers(0, self.per_site, len(numbers))
        sensor = np.where(sensor < self.sensors, sensor, order * self.per_site)
        normal = rng.standard_normal((len(numbers), 5)) @ self._root.T * np.sqrt(1 - self.site_share)
        normal += self._typical[order]
        values = np.stack([m.bend(normal[:, k]) for k, m in enumerate(self.marginals)], axis=1)
        return {"sensor": sensor, "values": values}
