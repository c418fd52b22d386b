"""Every RIoTBench task, one record at a time, slow and plain: what the compiled kernels are compared with."""

from __future__ import annotations

import json
import math
from typing import Any


def senml(raw: bytes, fields: dict[str, str]) -> tuple[int, dict[str, float | str]] | None:
    """Return base time and values of a message, or None when it is not one."""
    try:
        document = json.loads(raw.decode("utf-8"), parse_constant=_no_constant)
        time_ms = _whole(document["bt"])
        names = [entry["n"] for entry in document["e"]]
        values = {entry["n"]: _first(entry.get("v"), entry.get("sv")) for entry in document["e"]}
        if not isinstance(document["e"], list) or any(type(name) is not str for name in names):
            return None
        if any(names.count(name) != 1 for name in fields):
            return None
        return time_ms, {name: _typed(values[name], kind) for name, kind in fields.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _first(v: Any, sv: Any) -> Any:
    return sv if v is None else v


def _whole(value: Any) -> int:
    if type(value) not in (int, str) or abs(int(value)) > 2**63 // 1000 - 1:
        raise ValueError(value)
    return int(value)


def _typed(value: Any, kind: str) -> float | str:
    if type(value) not in (str, int, float):
        raise TypeError(value)
    if kind == "text":
        text = value if isinstance(value, str) else json.dumps(value)
        text.encode("utf-8")  # raises for half of a surrogate pair
        return text
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(value)
    return number
