"""A net as nested tables, the common shape of its TOML and JSON files.

name = "farm"
[classes.gateway]
cpu_ips = 5e9
[wan]
kind = "gateways"            # or "matrix" with latency_s, or "coordinates" with base_s and s_per_unit
[[zones]]
name = "barn"
trust = "farm"               # optional
up_s = 0.02                  # its half of the way; x and y under "coordinates"
kind = "spark"               # optional: what is deployed there runs on Spark, with a master such as "local[2]"
price = 0.1                  # optional, as are carbon, cores, uplink and lanes: what its site says of itself, under
                             # `headwater up`; a figure that changes is a file of hours, "prices.csv", or
                             # "command: …" that prints it
devices = [{class = "gateway", lan_s = 0.001, count = 3}]      # name = "…", sensors = ["…"] where count is 1
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from headwater.errors import NetError, listed, suggestion
from headwater.net.arrays import Floats
from headwater.net.device import KNOWN, DeviceClass, from_table, to_table
from headwater.net.net import Net
from headwater.net.wan import Coordinates, Gateways, Matrix, Wan

_MOST = 100_000_000  # devices of one entry; where more are wanted, a count has some zeros too many

WAN_KEYS = {
    "matrix": {"kind", "latency_s"},
    "gateways": {"kind"},
    "coordinates": {"kind", "base_s", "s_per_unit"},
}
FIGURES = ("price", "carbon", "cores")
"""What a site says of itself: numbers of 0 or more, or where it finds them; `uplink` is text, `lanes` a number or "auto"."""

_WHERE = re.compile(r"command:.+|.+\.csv")
"""Where a site finds a figure that changes: what a command prints, or a file of hours and values beside that of the net."""


def net_from_table(table: Mapping[str, Any], stem: str) -> Net:
    """Build a net from parsed tables; every unknown key is an error."""
    _check_keys("a net file", table, {"name", "classes", "wan", "zones"})
    classes = _classes(table.get("classes", {}))
    zones = table.get("zones")
    if not isinstance(zones, list) or not zones:
        raise NetError("a net file needs at least one [[zones]] table")
    names, trust, sizes, lan, device_names = [], [], [], [], []
    kinds, sensors = list[int](), list[tuple[str, int]]()
    for zone in zones:
        if not isinstance(zone, Mapping) or not isinstance(zone.get("name"), str):
            raise NetError(f"every zone needs a name; got {zone!r:.80}")
        if not zone["name"]:
            raise NetError("a zone's name is never empty; give each [[zones]] table a name")
        keys = {"name", "trust", "devices", "up_s", "x", "y", "kind", "master", "uplink", "lanes", *FIGURES}
        _check_keys(f"zone '{zone['name']}'", zone, keys)
        devices = _devices(zone, classes)
        names.append(zone["name"])
        trust.append(str(zone.get("trust", "open")))
        sizes.append(len(devices))
        for kind, lan_s, name, sources in devices:
            sensors += [(source, len(kinds)) for source in sources]
            kinds.append(kind)
            lan.append(lan_s)
            device_names.append(name)
    net = Net(
        name=str(table.get("name", stem)),
        classes=tuple(classes.values()),
        zones=tuple(names),
        first=np.concatenate([[0], np.cumsum(np.array(sizes, np.int64))]),
        class_of=np.array(kinds, np.uint16),
        lan_s=np.array(lan, np.float64),
        wan=_wan(table.get("wan", {"kind": "gateways"}), zones),
        trust=tuple(trust),
        sensors=tuple(sensors),
        spark=_on_spark(zones),
        says=tuple(line for zone in zones for line in _site_options(zone)),
    )
    if not any(device_names):
        return net
    return dataclasses.replace(
        net, names=tuple(each or net.device_name(number) for number, each in enumerate(device_names))
    )


def net_to_table(net: Net) -> dict[str, Any]:
    """The tables that `net_from_table` reads back as the same net."""
    zones: list[dict[str, Any]] = []
    standing: dict[int, list[str]] = {}
    masters = dict(net.spark)
    for source, device in net.sensors:
        standing.setdefault(device, []).append(source)
    for number, name in enumerate(net.zones):
        zone: dict[str, Any] = {"name": name}
        if net.trust[number] != "open":
            zone["trust"] = net.trust[number]
        match net.wan:
            case Gateways():
                zone["up_s"] = float(net.wan.up_s[number])
            case Coordinates():
                zone["x"], zone["y"] = float(net.wan.x[number]), float(net.wan.y[number])
        if name in masters:
            zone["kind"], zone["master"] = "spark", masters[name]
        zone |= {key: value for at, key, value in net.says if at == name}
        zone["devices"] = [_device_table(net, d, standing.get(d, [])) for d in net.devices_of(number)]
        zones.append(zone)
    return {
        "name": net.name,
        "classes": {c.name: to_table(c) for c in net.classes},
        "wan": _wan_table(net.wan),
        "zones": zones,
    }


def _on_spark(zones: list[Any]) -> tuple[tuple[str, str], ...]:
    """Return the zones whose parts run on Spark, each with its master."""
    zones_on_spark: list[tuple[str, str]] = []
    for zone in zones:
        kind, master = zone.get("kind", "engine"), zone.get("master")
        if kind not in ("engine", "spark"):
            raise NetError(f"the kind of zone '{zone['name']}' is 'engine' or 'spark'; got {kind!r}")
        if kind == "engine" and master is not None:
            raise NetError(f"zone '{zone['name']}' has a master, which is Spark's; say kind = 'spark' too")
        if kind == "spark":
            zones_on_spark.append((zone["name"], str(master or "local[*]")))
    return tuple(zones_on_spark)


def _site_options(zone: Mapping[str, Any]) -> list[tuple[str, str, float | str]]:
    """Return what the site of a zone says of itself."""
    where, lines = f"zone '{zone['name']}'", list[tuple[str, str, float | str]]()
    for key in FIGURES:
        if isinstance(zone.get(key), str) and _WHERE.fullmatch(zone[key]):
            lines.append((zone["name"], key, zone[key]))
        elif key in zone:
            value = _number(where, key, zone[key])
            if not 0 <= value < float("inf"):
                raise NetError(f"{where}: {key} must be a number of 0 or more; got {value:g}")
            lines.append((zone["name"], key, value))
    if "uplink" in zone:
        if not isinstance(zone["uplink"], str):
            raise NetError(f"{where}: uplink is text such as 'rate=500 kB/s'; got {zone['uplink']!r:.80}")
        lines.append((zone["name"], "uplink", zone["uplink"]))
    if "lanes" in zone:
        lanes = zone["lanes"]
        if lanes != "auto" and (isinstance(lanes, bool) or not isinstance(lanes, int) or lanes < 1):
            raise NetError(f"{where}: lanes is 'auto' or a whole number of at least 1; got {lanes!r:.80}")
        lines.append((zone["name"], "lanes", lanes))
    return lines


def _device_table(net: Net, device: int, sensors: list[str]) -> dict[str, Any]:
    out: dict[str, Any] = {
        "class": net.classes[int(net.class_of[device])].name,
        "lan_s": float(net.lan_s[device]),
    }
    if net.names is not None:
        out["name"] = net.names[device]
    if sensors:
        out["sensors"] = sensors
    return out


def _wan_table(wan: Wan) -> dict[str, Any]:
    match wan:
        case Matrix():
            return {"kind": "matrix", "latency_s": wan.latency_s.tolist()}
        case Gateways():
            return {"kind": "gateways"}
        case Coordinates():
            return {"kind": "coordinates", "base_s": wan.base_s, "s_per_unit": wan.s_per_unit}
    raise NetError(f"a WAN of type {type(wan).__name__} has no table form; cut links again after reading")


def _classes(table: Mapping[str, Any]) -> dict[str, DeviceClass]:
    classes = {name: from_table(name, fields) for name, fields in table.items()}
    return classes if classes else dict(KNOWN)


def _devices(zone: Mapping[str, Any], classes: Mapping[str, DeviceClass]) -> list[tuple[int, float, str, list[str]]]:
    order, out = list(classes), []
    for group in zone.get("devices", []):
        where = f"zone '{zone['name']}'"
        _check_keys(f"a device of {where}", group, {"class", "lan_s", "count", "name", "sensors"})
        kind = group.get("class")
        if kind not in classes:
            raise NetError(f"{where} has a device of class {kind!r}; known classes: {', '.join(order)}")
        count, name = group.get("count", 1), group.get("name", "")
        if not isinstance(count, int) or count < 1:
            raise NetError(f"{where}: count of '{kind}' must be a whole number above 0; got {count!r}")
        if count > _MOST:
            raise NetError(f"{where}: count of '{kind}' is at most {_MOST:,} in one entry; got {count:,}")
        if name and count > 1:
            raise NetError(f"{where}: device '{name}' cannot be {count} devices; leave name out or count at 1")
        sensors = group.get("sensors", [])
        if not isinstance(sensors, list) or not all(isinstance(source, str) and source for source in sensors):
            raise NetError(f"{where}: sensors must be a list of names of sources; got {sensors!r:.80}")
        if sensors and count > 1:
            raise NetError(f"{where}: sensor '{sensors[0]}' cannot stand at {count} devices; list its device by itself")
        out += [(order.index(kind), _seconds(where, "lan_s", group.get("lan_s", 0.0)), name, sensors)] * count
    return out


def _wan(table: Mapping[str, Any], zones: list[Mapping[str, Any]]) -> Wan:
    kind = table.get("kind")
    if kind not in WAN_KEYS:
        raise NetError(f"wan.kind must be one of {', '.join(WAN_KEYS)}; got {kind!r}")
    _check_keys("wan", table, WAN_KEYS[kind])
    if kind == "matrix":
        rows = table.get("latency_s")
        if rows is None:
            raise NetError("wan.kind 'matrix' needs wan.latency_s, a square list of rows of seconds between zones")
        try:
            return Matrix(_matrix(rows))
        except (TypeError, ValueError) as slip:
            raise NetError(f"wan.latency_s must be a square list of rows of seconds: {slip}") from slip
    if kind == "gateways":
        return Gateways(np.array([_seconds(f"zone '{z['name']}'", "up_s", z.get("up_s", 0.0)) for z in zones]))
    for zone in zones:
        if "x" not in zone or "y" not in zone:
            raise NetError(f"zone '{zone['name']}' needs x and y, because wan.kind is 'coordinates'")
    xs = np.array([_number(f"zone '{z['name']}'", "x", z["x"]) for z in zones])
    ys = np.array([_number(f"zone '{z['name']}'", "y", z["y"]) for z in zones])
    base = _number("wan", "base_s", table.get("base_s", 0.0))
    return Coordinates(xs, ys, base, _number("wan", "s_per_unit", table.get("s_per_unit", 0.0)))


def _matrix(rows: Any) -> Floats:
    """A table of seconds; None, which is JSON's null, is no way at all."""
    return np.array([[np.inf if value is None else value for value in row] for row in rows], np.float64)


def _seconds(where: str, key: str, value: object) -> float:
    """A latency; None, which is JSON's null, is no way at all."""
    return float("inf") if value is None else _number(where, key, value)


def _number(where: str, key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NetError(f"{where}: {key} must be a number; got {value!r}")
    return float(value)


def _check_keys(where: str, table: object, keys: set[str]) -> None:
    if not isinstance(table, Mapping):
        raise NetError(f"{where} must be a table; got {table!r:.80}")
    for key in table:
        if key not in keys:
            slip = suggestion(key, keys) or f"; known: {listed(keys)}"
            raise NetError(f"{where} has an unknown key '{key}'{slip}")
