"""What payloads of messages and requests hold: JSON objects with the columns of a schema, or texts as they are."""

from __future__ import annotations

from headwater.data.schema import Schema
from headwater.errors import FlowError


def payload_schema(schema: Schema | None, payload: str, source: object) -> Schema:
    """Return the columns that payloads of a source have: those given, or one for texts that are taken as they are."""
    if schema is not None:
        return schema
    if payload == "text":
        return Schema.of({"text": str})
    raise FlowError(
        f"reading JSON from {source} takes a schema, such as schema={{'id': str, 'x': float}}; "
        "or take payloads as they are with payload='text'"
    )
