"""Words that schemas of JSON are written with."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "number"}
WHOLE: Schema = {"type": "integer"}
TRUTH: Schema = {"type": "boolean"}
ANY_OBJECT: Schema = {"type": "object"}


def object_of(**properties: Schema) -> Schema:
    """Return the schema of an object that has all of these."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def request_of(required: dict[str, Schema], **others: Schema) -> Schema:
    """Return the schema of what is sent: it may have `others`, and nothing else."""
    return {
        "type": "object",
        "properties": required | others,
        "required": list(required),
        "additionalProperties": False,
    }


def map_of(schema: Schema) -> Schema:
    """Return the schema of an object whose values, whatever their names, are of one kind."""
    return {"type": "object", "additionalProperties": schema}


def list_of(schema: Schema) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": schema}


def one_of(*words: str) -> Schema:
    """Return the schema of text that is one of these."""
    return {"type": "string", "enum": list(words)}


def perhaps(schema: Schema) -> Schema:
    """Return the schema of something that may be null."""
    return {"anyOf": [schema, {"type": "null"}]}


def about(schema: Schema, text: str) -> Schema:
    """Return a schema with what it means."""
    return {**schema, "description": text}


def named(name: str) -> Schema:
    """Return a reference to a schema of the same document."""
    return {"$ref": f"#/components/schemas/{name}"}
