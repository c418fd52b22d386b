"""A net: zones of devices, joined by a WAN. Plain arrays, so that ten million devices stay small."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headwater.errors import NetError, suggestion
from headwater.net.arrays import Flags, Floats, Ints, Kinds
from headwater.net.device import DeviceClass
from headwater.net.wan import Held, Wan, Without


@dataclass(frozen=True, eq=False)
class Net:
    """Where steps could run.

    Devices are numbered zone by zone: those of zone z are `first[z] … first[z + 1] − 1`. Two devices are
    `wan + lan + lan` seconds apart, a device and itself 0. Each device has one access link, as fast as its
    class says.
    """

    name: str
    classes: tuple[DeviceClass, ...]
    zones: tuple[str, ...]
    first: Ints
    class_of: Kinds
    lan_s: Floats
    wan: Wan
    trust: tuple[str, ...] = ()
    """The trust zone of each zone; empty means that all are 'open'."""
    names: tuple[str, ...] | None = None
    """Device names; without them a device is called after its zone and place in it."""
    sensors: tuple[tuple[str, int], ...] = ()
    """Where records come from: the name of a flow's source, and the device that it stands at."""
    spark: tuple[tuple[str, str], ...] = ()
    """Zones whose parts run on Spark, when their flow is deployed: the name, and Spark's master."""
    says: tuple[tuple[str, str, float | str], ...] = ()
    """What the site of a zone says of itself where this machine plays it: the zone, which of its options, and the value."""

    def __post_init__(self) -> None:
        if not self.trust:
            object.__setattr__(self, "trust", ("open",) * len(self.zones))
        self._check_zones()
        self._check_devices()
        for array in (self.first, self.class_of, self.lan_s):
            array.flags.writeable = False

    def _check_zones(self) -> None:
        where = f"net '{self.name}'"
        if not self.zones:
            raise NetError(f"{where} has no zones; it needs at least one site or cloud")
        if len(set(self.zones)) < len(self.zones):
            twice = next(z for z in self.zones if self.zones.count(z) > 1)
            raise NetError(f"{where} has two zones called '{twice}'")
        if len(self.first) != len(self.zones) + 1 or self.first[0] != 0 or (np.diff(self.first) < 0).any():
            raise NetError(f"{where}: first must rise from 0 with one entry per zone and one more")
        if len(self.wan) != len(self.zones):
            raise NetError(f"{where} has {len(self.zones)} zones; its WAN describes {len(self.wan)}")
        if len(self.trust) != len(self.zones):
            raise NetError(f"{where} has {len(self.zones)} zones and {len(self.trust)} trust zones")
        for zone, _ in self.spark:
            if zone not in self.zones:
                raise NetError(f"{where} has no zone '{zone}', which is said to run on Spark")

    def _check_devices(self) -> None:
        where, count = f"net '{self.name}'", int(self.first[-1])
        if count == 0:
            raise NetError(f"{where} has no devices")
        if len(self.class_of) != count or len(self.lan_s) != count:
            raise NetError(
                f"{where} numbers {count} devices; got {len(self.class_of)} classes, {len(self.lan_s)} delays"
            )
        if int(self.class_of.max()) >= len(self.classes):
            raise NetError(
                f"{where} has {len(self.classes)} device classes; a device names class {self.class_of.max()}"
            )
        least = float(self.lan_s.min())  # NaN if any is NaN: one pass, no mask over ten million devices
        if not least >= 0:
            device = int(np.flatnonzero(~(self.lan_s >= 0))[0])
            raise NetError(
                f"{where}: LAN latency of device '{self.device_name(device)}' must be 0 s or more; "
                f"got {self.lan_s[device]}"
            )
        self._check_names(where, count)
        for source, device in self.sensors:
            if not 0 <= device < count:
                raise NetError(f"{where}: sensor '{source}' stands at device {device}; there are {count}")
        if len(dict(self.sensors)) < len(self.sensors):
            twice = Counter(source for source, _ in self.sensors).most_common(1)[0][0]
            raise NetError(f"{where} has sensor '{twice}' twice; a source is in one place")

    def _check_names(self, where: str, count: int) -> None:
        """No two devices may answer to one name, whether it was given or made from zone and place."""
        if self.names is not None:
            if len(self.names) != count:
                raise NetError(f"{where} needs {count} different device names; got {len(self.names)}")
            if len(set(self.names)) < count:
                twice = Counter(self.names).most_common(1)[0][0]
                raise NetError(f"{where} needs {count} different device names; '{twice}' is there twice")
            return
        for number, zone in enumerate(self.zones):
            if "/" not in zone or len(self.devices_of(number)) != 1:
                continue
            other, _, place = zone.rpartition("/")
            inside = self._zone_by_name.get(other)
            if inside is not None and len(self.devices_of(inside)) > 1 and self._device_at(inside, place) is not None:
                raise NetError(
                    f"{where}: '{zone}' is both the only device of zone '{zone}' and device {place} of zone '{other}'; "
                    "call one of the zones otherwise, or give the devices names"
                )

    def _device_at(self, zone: int, place: str) -> int | None:
        """The device at a place of a zone, as `device_name` writes it."""
        plain = place.isascii() and place.isdecimal() and (place == "0" or place[0] != "0")
        if plain and int(place) < len(self.devices_of(zone)):
            return int(self.first[zone]) + int(place)
        return None

    def __len__(self) -> int:
        return int(self.first[-1])

    @cached_property
    def is_cloud(self) -> Flags:
        """For each class, whether it is rented in a cloud."""
        return np.array([c.cloud for c in self.classes])

    @cached_property
    def cloud_zones(self) -> Flags:
        """For each zone, whether all its devices are rented in a cloud."""
        cloud = self.is_cloud[self.class_of]
        per_zone = np.add.reduceat(cloud, self.first[:-1].clip(max=len(self) - 1), dtype=np.int64)
        sizes = np.diff(self.first)
        return np.asarray((sizes > 0) & (per_zone == sizes))

    @cached_property
    def access_bps(self) -> Floats:
        """For each class, the bits per second of its access link."""
        return np.array([c.access_bps for c in self.classes])

    def zone_of(self, devices: Ints | int) -> Ints:
        """The zone of each device."""
        return np.asarray(np.searchsorted(self.first, devices, side="right") - 1)

    def devices_of(self, zone: int) -> range:
        """The devices of a zone."""
        return range(int(self.first[zone]), int(self.first[zone + 1]))

    def latency_s(self, a: Ints | int, b: Ints | int) -> Floats:
        """Seconds between two devices, pair by pair."""
        a, b = np.asarray(a), np.asarray(b)
        far = self.wan.between(self.zone_of(a), self.zone_of(b)) + self.lan_s[a] + self.lan_s[b]
        return np.where(np.equal(a, b), 0.0, far)

    def bandwidth_bps(self, a: Ints | int, b: Ints | int) -> Floats:
        """Bits per second between two devices: the slower access link; unlimited inside a device."""
        slower = np.minimum(self.access_bps[self.class_of[a]], self.access_bps[self.class_of[b]])
        return np.where(np.equal(a, b), np.inf, slower)

    def device_name(self, device: int) -> str:
        """The name of a device: its own, its zone's if it is alone there, or `zone/place`."""
        if self.names is not None:
            return self.names[device]
        zone = int(self.zone_of(device))
        start, stop = int(self.first[zone]), int(self.first[zone + 1])
        return self.zones[zone] if stop - start == 1 else f"{self.zones[zone]}/{device - start}"

    def device(self, name: str) -> int:
        """The number of the device called `name`."""
        if self.names is not None:
            number = self._by_name.get(name)
            if number is not None:
                return number
        else:
            alone = self._zone_by_name.get(name)
            if alone is not None and len(self.devices_of(alone)) == 1:
                return int(self.first[alone])
            zone, _, place = name.rpartition("/")
            zone_number = self._zone_by_name.get(zone)
            number = self._device_at(zone_number, place) if zone_number is not None else None
            if number is not None:
                return number
        some = ", ".join(f"'{self.device_name(d)}'" for d in range(min(3, len(self))))
        slip = suggestion(name, self.zones[:1000])  # of many, to compare with all takes longer than to look
        raise NetError(f"net '{self.name}' has no device '{name}'; its {len(self):,} devices begin {some}{slip}")

    def zone(self, name: str) -> int:
        """The number of the zone called `name`."""
        if name not in self._zone_by_name:
            some = ", ".join(f"'{z}'" for z in self.zones[:4])
            raise NetError(f"net '{self.name}' has no zone '{name}'; its zones begin {some}")
        return self._zone_by_name[name]

    def with_waits(self, wait_s: float) -> Net:
        """The same net, for records that wait before they cross from one zone to another."""
        return dataclasses.replace(self, wan=Held(self.wan, wait_s))

    def without_links(self, cut: Iterable[tuple[int, int]]) -> Net:
        """The same net with the WAN links between some pairs of zones gone."""
        return dataclasses.replace(self, wan=Without(self.wan, tuple(cut)))

    @cached_property
    def _by_name(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names or ())}

    @cached_property
    def _zone_by_name(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.zones)}
