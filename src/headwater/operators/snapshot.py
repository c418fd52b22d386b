"""State as bytes, with a version and the kind of step it belongs to."""

from __future__ import annotations

from typing import Any

from headwater.data.codec import decode, encode
from headwater.errors import SnapshotError

VERSION = 2


def pack_state(kind: str, state: dict[str, Any]) -> bytes:
    """Encode state: it comes back as it is; `headwater.data.codec` says of what it may be made."""
    try:
        return encode([VERSION, kind, state])
    except TypeError as error:
        raise SnapshotError(f"the state of a {kind} step cannot be saved: {error}") from None


def unpack_state(kind: str, data: bytes) -> dict[str, Any]:
    """Decode what `pack_state` made for the same kind of step, or say what it is instead."""
    try:
        version, actual, *contents = decode(data)
    except (ValueError, TypeError) as error:
        raise SnapshotError(
            f"expected the state of a {kind} step, got {len(data)} bytes that are none: {error}"
        ) from None
    if version != VERSION:
        raise SnapshotError(f"state of a {kind} step has version {version}; this Headwater reads version {VERSION}")
    if actual != kind:
        raise SnapshotError(f"expected the state of a {kind} step, got that of a {actual} step")
    content: dict[str, Any] = contents[0]
    return content
