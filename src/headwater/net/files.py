"""Nets in files: TOML or JSON to write by hand, a compact binary form for millions of devices.

The binary form is a NumPy archive without pickles: `lan_s` (8 bytes per device), `class_of` (2 bytes),
`first`, the WAN's arrays and a JSON header. Reading needs the arrays and a copy of one: 20 bytes per device
at most.
"""

from __future__ import annotations

import json
import math
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from headwater.errors import NetError
from headwater.net import table
from headwater.net.arrays import Floats
from headwater.net.device import from_table, to_table
from headwater.net.net import Net
from headwater.net.wan import Coordinates, Gateways, Matrix, Wan, Without


def read(path: str | Path) -> Net:
    """Read a net from a `.toml`, `.json` or `.npz` file."""
    path = Path(path)
    if not path.exists():
        raise NetError(f"there is no net file '{path}'")
    match path.suffix:
        case ".toml":
            return table.net_from_table(_parse(path, tomllib.loads), path.stem)
        case ".json":
            return table.net_from_table(_parse(path, _json), path.stem)
        case ".npz":
            return _read_npz(path)
    raise NetError(f"net file '{path}' must end in .toml, .json or .npz; got '{path.suffix}'")


def write(net: Net, path: str | Path) -> None:
    """Write a net to a `.toml`, `.json` or `.npz` file."""
    path = Path(path)
    match path.suffix:
        case ".toml":
            path.write_text(_toml(table.net_to_table(net)))
        case ".json":
            path.write_text(as_json(net))
        case ".npz":
            _write_npz(net, path)
        case _:
            raise NetError(f"net file '{path}' must end in .toml, .json or .npz; got '{path.suffix}'")


def as_json(net: Net) -> str:
    """Return a net as the text of a `.json` file."""
    return json.dumps(_without_infinity(table.net_to_table(net)), indent=1, allow_nan=False)


def _json(text: str) -> object:
    def refuse(name: str) -> object:
        raise NetError(
            f"JSON has no {name}; leave out a limit that is none, and write null for a way that is not there"
        )

    return json.loads(text, parse_constant=refuse)


def _without_infinity(value: object) -> object:
    """Write null where there is no way: JSON has no infinity."""
    match value:
        case dict():
            return {key: _without_infinity(one) for key, one in value.items()}
        case list():
            return [_without_infinity(one) for one in value]
        case float() if math.isinf(value):
            return None
    return value


def _parse(path: Path, loads: object) -> Mapping[str, object]:
    assert callable(loads)
    try:
        document = loads(path.read_text())
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, UnicodeDecodeError) as slip:
        raise NetError(f"net file '{path}' cannot be parsed: {slip}") from slip
    if not isinstance(document, dict):
        raise NetError(f"net file '{path}' must hold a table; got {type(document).__name__}")
    return document


def _write_npz(net: Net, path: Path) -> None:
    header = {
        "version": 1,
        "name": net.name,
        "classes": {c.name: to_table(c) for c in net.classes},
        "zones": net.zones,
        "trust": net.trust,
        "names": net.names,
        "sensors": net.sensors,
        "spark": net.spark,
        "says": net.says,
        "wan": type(net.wan).__name__,
    }
    np.savez(
        path,
        allow_pickle=False,
        header=np.frombuffer(json.dumps(header, allow_nan=False).encode(), np.uint8),
        first=net.first,
        class_of=net.class_of,
        lan_s=net.lan_s,
        **_wan_arrays(net.wan),
    )


def _wan_arrays(wan: Wan) -> dict[str, Floats]:
    match wan:
        case Matrix():
            return {"wan": wan.latency_s}
        case Gateways():
            return {"wan": wan.up_s}
        case Coordinates():
            return {"wan": np.stack([wan.x, wan.y]), "scale": np.array([wan.base_s, wan.s_per_unit])}
        case Without():
            raise NetError("a net with cut links is not written; write the whole net and cut the links again")
    raise NetError(f"a WAN of type {type(wan).__name__} has no binary form")


def _read_npz(path: Path) -> Net:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as data:
            header = json.loads(data["header"].tobytes())
            if header.get("version") != 1:
                raise NetError(f"net file '{path}' has version {header.get('version')}; this program reads 1")
            return Net(
                name=header["name"],
                classes=tuple(from_table(name, fields) for name, fields in header["classes"].items()),
                zones=tuple(header["zones"]),
                first=data["first"].astype(np.int64, copy=False),
                class_of=data["class_of"].astype(np.uint16, copy=False),
                lan_s=data["lan_s"].astype(np.float64, copy=False),
                wan=_wan(header["wan"], data),
                trust=tuple(header["trust"]),
                names=None if header["names"] is None else tuple(header["names"]),
                sensors=tuple((str(source), int(device)) for source, device in header.get("sensors", ())),
                spark=tuple((str(zone), str(master)) for zone, master in header.get("spark", ())),
                says=tuple((str(zone), str(key), value) for zone, key, value in header.get("says", ())),
            )
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as slip:
        raise NetError(f"net file '{path}' is not a net of ours: {slip}") from slip


def _wan(kind: str, data: Mapping[str, Floats]) -> Wan:
    match kind:
        case "Matrix":
            return Matrix(data["wan"])
        case "Gateways":
            return Gateways(data["wan"])
        case "Coordinates":
            x, y = data["wan"]
            base, scale = data["scale"]
            return Coordinates(x, y, float(base), float(scale))
    raise NetError(f"unknown kind of WAN '{kind}'; expected Matrix, Gateways or Coordinates")


def _toml(net: Mapping[str, object]) -> str:
    lines = [f"name = {json.dumps(net['name'])}", ""]
    for name, fields in dict(net["classes"]).items():  # type: ignore[call-overload]  # our own table
        lines += [f"[classes.{json.dumps(name)}]", *(f"{k} = {_value(v)}" for k, v in fields.items()), ""]
    lines += ["[wan]", *(f"{k} = {_value(v)}" for k, v in dict(net["wan"]).items()), ""]  # type: ignore[call-overload]
    for zone in list(net["zones"]):  # type: ignore[call-overload]
        lines += ["[[zones]]", *(f"{k} = {_value(v)}" for k, v in zone.items()), ""]
    return "\n".join(lines)


def _value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case float() if math.isinf(value):
            return "inf"
        case list():
            return "[" + ", ".join(_value(v) for v in value) + "]"
        case dict():
            return "{" + ", ".join(f"{k} = {_value(v)}" for k, v in value.items()) + "}"
    return json.dumps(value)
