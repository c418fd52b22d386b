"""A net with something added, for "what if": the rest keeps its names."""

from __future__ import annotations

import dataclasses

import numpy as np

from headwater.errors import NetError, listed, suggestion
from headwater.net.device import KNOWN, DeviceClass
from headwater.net.net import Net


def with_devices(net: Net, zone: str, kind: str | DeviceClass, count: int = 1, lan_s: float | None = None) -> Net:
    """The net with `count` more devices of a class in a zone that it has.

    A class is one of the net's, one that comes with Headwater, or a new one. New devices stand as far from the zone's
    gateway as the middle one of those that are there, unless `lan_s` says otherwise. Every old device keeps its name.
    """
    if count < 1:
        raise NetError(f"at least 1 device must be added; got {count}")
    at = net.zone(zone)
    classes, number = _class(net, kind)
    here = net.devices_of(at)
    if lan_s is None:
        lan_s = float(np.median(net.lan_s[here.start : here.stop])) if len(here) else 0.0
    first = net.first.copy()
    first[at + 1 :] += count
    names = net.names
    if names is not None or len(here) == 1:  # a device that was alone bears its zone's name, and keeps it
        old = names if names is not None else tuple(net.device_name(d) for d in range(len(net)))
        names = (*old[: here.stop], *_new_names(zone, len(here), count, set(old)), *old[here.stop :])
    return dataclasses.replace(
        net,
        classes=classes,
        first=first,
        class_of=np.insert(net.class_of, here.stop, np.full(count, number, net.class_of.dtype)),
        lan_s=np.insert(net.lan_s, here.stop, np.full(count, lan_s)),
        names=names,
        sensors=tuple((source, device + count * (device >= here.stop)) for source, device in net.sensors),
    )


def _class(net: Net, kind: str | DeviceClass) -> tuple[tuple[DeviceClass, ...], int]:
    numbers = {c.name: number for number, c in enumerate(net.classes)}
    if isinstance(kind, str):
        if kind in numbers:
            return net.classes, numbers[kind]
        if kind not in KNOWN:
            classes = {**numbers, **KNOWN}
            raise NetError(
                f"net '{net.name}' has no class '{kind}'; classes are {listed(classes)}{suggestion(kind, classes)}"
            )
        kind = KNOWN[kind]
    elif kind.name in numbers:
        if net.classes[numbers[kind.name]] != kind:
            raise NetError(f"net '{net.name}' has another class '{kind.name}'; call the new one differently")
        return net.classes, numbers[kind.name]
    return (*net.classes, kind), len(net.classes)


def _new_names(zone: str, first: int, count: int, names: set[str]) -> list[str]:
    fresh: list[str] = []
    number = first
    while len(fresh) < count:
        if f"{zone}/{number}" not in names:
            fresh.append(f"{zone}/{number}")
        number += 1
    return fresh
