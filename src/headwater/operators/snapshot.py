"""State as bytes: MessagePack with a version, arrays as raw bytes with their type. No pickle."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from headwater.errors import SnapshotError
from headwater.flow.batch import Batch
from headwater.flow.column import Nullable, Text

VERSION = 1


def packed(kind: str, state: dict[str, Any]) -> bytes:
    """Encode state made of plain values, arrays, columns and batches."""
    return msgspec.msgpack.encode({"version": VERSION, "kind": kind, "state": _plain(state)})


def unpacked(kind: str, data: bytes) -> dict[str, Any]:
    """Decode what `packed` made for the same kind of step, or say what it is instead."""
    try:
        document = msgspec.msgpack.decode(data)
        found, version = document["kind"], document["version"]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise SnapshotError(
            f"expected the state of a {kind} step, got {len(data)} bytes that are none: {error}"
        ) from None
    if version != VERSION:
        raise SnapshotError(f"state of a {kind} step has version {version}; this Headwater reads version {VERSION}")
    if found != kind:
        raise SnapshotError(f"expected the state of a {kind} step, got that of a {found} step")
    state: dict[str, Any] = _restored(document["state"])
    return state


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Text):
        packed_text = value[np.arange(len(value))]
        return {"": "text", "data": packed_text.data.tobytes(), "offsets": packed_text.offsets.tobytes()}
    if isinstance(value, Nullable):
        return {"": "nullable", "values": _plain(value.values), "valid": _plain(value.valid)}
    if isinstance(value, Batch):
        return {"": "batch", "columns": _plain(value.columns), "stamps": _plain(value.stamps)}
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return {"": "objects", "items": [_plain(item) for item in value.tolist()]}
        return {"": "array", "dtype": value.dtype.str, "shape": list(value.shape), "data": value.tobytes()}
    if isinstance(value, np.generic):
        return value.item()
    return value


def _restored(value: Any) -> Any:
    if isinstance(value, list):
        return [_restored(item) for item in value]
    if not isinstance(value, dict):
        return value
    match value.get(""):
        case None:
            return {name: _restored(item) for name, item in value.items()}
        case "text":
            data, offsets = (np.frombuffer(bytearray(value[part]), np.uint8) for part in ("data", "offsets"))
            return Text(data, offsets.view(np.int32))
        case "nullable":
            return Nullable(_restored(value["values"]), _restored(value["valid"]))
        case "objects":
            out = np.empty(len(value["items"]), object)
            out[:] = [_restored(item) for item in value["items"]]
            return out
        case "batch":
            stamps = _restored(value["stamps"])
            return Batch(_restored(value["columns"]), len(stamps), stamps)
        case "array":
            dtype = np.dtype(value["dtype"])
            if dtype.hasobject:
                raise SnapshotError(f"state holds an array of {dtype}, which no snapshot of ours has")
            return np.frombuffer(value["data"], dtype).reshape(value["shape"]).copy()
        case other:
            raise SnapshotError(f"state holds an unknown kind of value {other!r}")
