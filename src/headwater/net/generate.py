"""Nets of any size for experiments: clouds × sites × devices, a fleet of Pis, a city."""

from __future__ import annotations

from itertools import product

import numpy as np

from headwater.errors import NetError
from headwater.net.arrays import Floats, Ints
from headwater.net.device import AZURE_D2, PI_2, PI_2_BATTERY, PI_3, RYZEN, DeviceClass
from headwater.net.net import Net
from headwater.net.wan import Coordinates, Matrix, Wan

VEITH_SIZES = tuple(product((10, 100, 500), repeat=3))
"""The (clouds, sites, devices per site) of the 27 published nets."""


def cloud_edge(
    clouds: int,
    sites: int,
    devices: int,
    *,
    seed: int = 0,
    classes: tuple[DeviceClass, ...] = (PI_2, PI_3, RYZEN),
    lan_s: tuple[float, float] = (0.015e-3, 0.8e-3),
    wan_s: tuple[float, float] = (0.065, 0.085),
) -> Net:
    """Draw the net of Veith et al.: each cloud a zone of one device, each site `devices` of edge classes.

    The last class is the cloud's, the others alternate. Latencies are uniform: one per device to its
    gateway, one per pair of zones.
    """
    for what, count in (("clouds", clouds), ("sites", sites), ("devices", devices)):
        if count < 1:
            raise NetError(f"a cloud-edge net needs at least 1 of its {what}; got {count}")
    random, edge = np.random.default_rng(seed), sites * devices
    lan = np.zeros(clouds + edge)
    lan[clouds:] = random.uniform(*lan_s, edge)
    kinds = np.full(clouds + edge, len(classes) - 1, np.uint16)
    kinds[clouds:] = np.tile(np.arange(devices, dtype=np.uint16) % (len(classes) - 1), sites)
    return Net(
        name=f"cloud-edge-{clouds}x{sites}x{devices}",
        classes=classes,
        zones=tuple(f"cloud-{i}" for i in range(clouds)) + tuple(f"site-{i}" for i in range(sites)),
        first=_starts([1] * clouds + [devices] * sites),
        class_of=kinds,
        lan_s=lan,
        wan=_uniform_wan(random, clouds + sites, wan_s),
    )


def pis_and_vm(
    devices: int,
    *,
    pi: DeviceClass = PI_2_BATTERY,
    vm: DeviceClass = AZURE_D2,
    lan_s: float = 0.1e-3,
    wan_s: float = 0.124,
) -> Net:
    """The net of Ghosh and Simmhan: identical Pis in one site, numbered first, and one rented machine."""
    if devices < 1:
        raise NetError(f"a fleet needs at least 1 device; got {devices}")
    return Net(
        name=f"pis-{devices}",
        classes=(pi, vm),
        zones=("field", "vm"),
        first=_starts([devices, 1]),
        class_of=np.array([0] * devices + [1], np.uint16),
        lan_s=np.array([lan_s] * devices + [0.0]),
        wan=Matrix(np.array([[0.0, wan_s - lan_s], [wan_s - lan_s, 0.0]])),
    )


def city(
    lampposts: int,
    *,
    per_cabinet: int = 100,
    clouds: int = 2,
    width_km: float = 30.0,
    seed: int = 0,
    classes: tuple[DeviceClass, ...] = (PI_2, PI_3, RYZEN),
) -> Net:
    """Draw lampposts in groups around street cabinets, with clouds some hundred kilometres off.

    Zones have coordinates, so a million cabinets need two numbers each. The first device of a cabinet is
    its own computer, of the second class; the others are of the first.
    """
    cabinets = -(-lampposts // per_cabinet)
    sizes = [1] * clouds + [per_cabinet + 1] * cabinets
    if lampposts % per_cabinet:
        sizes[-1] = lampposts % per_cabinet + 1
    random, first = np.random.default_rng(seed), _starts(sizes)
    kinds = np.zeros(int(first[-1]), np.uint16)
    kinds[:clouds] = 2
    kinds[first[clouds:-1]] = 1
    lan = random.uniform(0.5e-3, 3e-3, int(first[-1]))
    lan[:clouds] = 0.0
    lan[first[clouds:-1]] = 0.05e-3
    far = random.uniform(300, 900, clouds), random.uniform(300, 900, clouds)
    near = random.uniform(0, width_km, cabinets), random.uniform(0, width_km, cabinets)
    return Net(
        name=f"city-{lampposts}",
        classes=classes,
        zones=tuple(f"cloud-{i}" for i in range(clouds)) + tuple(f"cabinet-{i}" for i in range(cabinets)),
        first=first,
        class_of=kinds,
        lan_s=lan,
        # 5 µs per kilometre of fibre, doubled because cables do not run straight; 2 ms in routers
        wan=Coordinates(np.concatenate([far[0], near[0]]), np.concatenate([far[1], near[1]]), 2e-3, 10e-6),
    )


def _starts(sizes: list[int]) -> Ints:
    return np.concatenate([[0], np.cumsum(np.array(sizes, np.int64))])


def _uniform_wan(random: np.random.Generator, zones: int, wan_s: tuple[float, float]) -> Wan:
    latency: Floats = random.uniform(*wan_s, (zones, zones))
    latency = np.triu(latency, 1)
    return Matrix(latency + latency.T)
