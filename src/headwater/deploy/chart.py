"""Where the sites of a net are, for whoever draws them: in the plane where the net has coordinates, and how far apart."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np

from headwater.net.net import Net
from headwater.net.wan import Coordinates

MOST = 64
"""Sites of a net that are drawn; of a larger one those with a part of the flow are, without where they are."""


class Place(msgspec.Struct, frozen=True):
    """A site as the net has it."""

    name: str
    x: float | None  #: in the unit of the net; None in a net without coordinates
    y: float | None
    cloud: bool
    trust: str
    devices: int
    price: float  #: of its dearest device, an hour


class Chart(msgspec.Struct, frozen=True):
    """A net as it is drawn."""

    net: str
    places: list[Place] = []
    latency_s: list[list[float | None]] = []  #: between any two of them; None where there is no way

    @classmethod
    def of(cls, net: Net) -> Chart:
        """Return the chart of a net."""
        if len(net.zones) > MOST:
            return cls(net.name)
        everywhere = range(len(net.zones))
        rows = [net.wan.row(zone) for zone in everywhere]
        return cls(
            net.name,
            [_place(net, zone) for zone in everywhere],
            [[float(s) if math.isfinite(s) else None for s in row] for row in rows],
        )

    def between(self, one: str, other: str) -> float | None:
        """Return the seconds from a site to another; None where that is not known."""
        number = {place.name: at for at, place in enumerate(self.places)}
        if one not in number or other not in number:
            return None
        return self.latency_s[number[one]][number[other]]

    def describe(self) -> dict[str, Any]:
        """Describe the sites; how far apart they are is told of links."""
        return {"name": self.net, "sites": [msgspec.structs.asdict(place) for place in self.places]}


def _place(net: Net, zone: int) -> Place:
    kinds = [net.classes[int(kind)] for kind in np.unique(net.class_of[net.first[zone] : net.first[zone + 1]])]
    wan = net.wan if isinstance(net.wan, Coordinates) else None
    return Place(
        net.zones[zone],
        None if wan is None else float(wan.x[zone]),
        None if wan is None else float(wan.y[zone]),
        cloud=bool(net.cloud_zones[zone]),
        trust=net.trust[zone],
        devices=len(net.devices_of(zone)),
        price=max((kind.price_per_hour for kind in kinds), default=0.0),
    )
