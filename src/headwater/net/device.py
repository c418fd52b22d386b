"""Classes of devices: what a Raspberry Pi or a rented machine can do, draws and costs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

from headwater.errors import NetError, suggestion

UNLIMITED = ("memory_bytes", "access_bps", "battery_mah")
"""What a device may have without end."""


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """Devices that differ only in where they stand.

    Money is counted for every device that hosts a step. `battery_mah` is what a device may draw in one
    `recharge_s`; infinite means mains power.

    >>> round(PI_2_BATTERY.budget_ma, 1)
    358.3
    """

    name: str
    cpu_ips: float
    """Instructions per second."""
    memory_bytes: float = math.inf
    access_bps: float = math.inf
    """Bits per second of the one link that joins the device to its site; both directions share it. 0 is no link at all."""
    cloud: bool = False
    battery_mah: float = math.inf
    recharge_s: float = 86_400.0
    harvest_ma: float = 0.0
    """Mean current of a solar panel, added to what the battery gives."""
    idle_ma: float = 0.0
    busy_ma: float = 0.0
    """Current at full load; a step at utilisation u adds u · (busy − idle)."""
    radio_mas_per_byte: float = 0.0
    price_per_hour: float = 0.0
    egress_per_gb: float = 0.0
    """Money per gigabyte that leaves the device for another zone."""

    def __post_init__(self) -> None:
        if not self.name:
            raise NetError("a device class needs a name; got ''")
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, float | int) and not isinstance(value, bool):
                self._check_number(field.name, float(value))

    def _check_number(self, field: str, value: float) -> None:
        if math.isnan(value):
            raise NetError(f"device class '{self.name}': {field} must be a number; got NaN")
        if math.isinf(value) and field not in UNLIMITED:
            raise NetError(f"device class '{self.name}': {field} must be finite; got {value:g}")
        if value < 0 or (value == 0 and field in ("cpu_ips", "recharge_s")):
            limit = "above 0" if field in ("cpu_ips", "recharge_s") else "0 or more"
            raise NetError(f"device class '{self.name}': {field} must be {limit}; got {value:g}")

    @property
    def budget_ma(self) -> float:
        """The mean current that the device can keep up from one recharge to the next."""
        return self.battery_mah * 3600 / self.recharge_s + self.harvest_ma


def from_table(name: str, table: Mapping[str, object]) -> DeviceClass:
    """Read one class from a parsed TOML or JSON table; an unknown key is an error.

    >>> from_table("cam", {"cpu_ips": 1e9}).cpu_ips
    1000000000.0
    """
    types = {f.name: f.type for f in dataclasses.fields(DeviceClass) if f.name != "name"}
    values: dict[str, float | bool] = {}
    for key, value in table.items():
        if key not in types:
            raise NetError(f"device class '{name}' has an unknown key '{key}'{suggestion(key, types)}")
        if key == "cloud":
            if not isinstance(value, bool):
                raise NetError(f"device class '{name}': cloud must be true or false; got {value!r}")
            values[key] = value
        elif isinstance(value, bool) or not isinstance(value, int | float):
            raise NetError(f"device class '{name}': {key} must be a number; got {value!r}")
        else:
            values[key] = float(value)
    if "cpu_ips" not in values:
        raise NetError(f"device class '{name}' needs cpu_ips, its instructions per second")
    return DeviceClass(name, **values)  # type: ignore[arg-type]  # each value was checked against its key above


def to_table(device: DeviceClass) -> dict[str, float | bool]:
    """The fields of a class that differ from their defaults, for a file."""
    return {
        f.name: getattr(device, f.name)
        for f in dataclasses.fields(device)
        if f.name != "name" and getattr(device, f.name) != f.default
    }


# Veith et al. print MIPS; only thousands of MIPS make an edge that can work (see docs/place-a-flow.md).
PI_2 = DeviceClass("pi-2", cpu_ips=4.74e9, memory_bytes=1e9, access_bps=100e6)
PI_3 = DeviceClass("pi-3", cpu_ips=5.02e9, memory_bytes=1e9, access_bps=100e6)
RYZEN = DeviceClass("ryzen-1800x", cpu_ips=304.51e9, memory_bytes=1e12, access_bps=1e9, cloud=True)

# Ghosh and Simmhan: a Pi 2 on an 8,600 mAh pack recharged daily, and a machine at about 5 dollars a day.
PI_2_BATTERY = DeviceClass("pi-2-battery", cpu_ips=4.74e9, memory_bytes=1e9, access_bps=96e6, battery_mah=8600.0)
AZURE_D2 = DeviceClass("azure-d2", cpu_ips=30e9, memory_bytes=7e9, access_bps=64e6, cloud=True, price_per_hour=5 / 24)
KNOWN = {device.name: device for device in (PI_2, PI_3, RYZEN, PI_2_BATTERY, AZURE_D2)}
