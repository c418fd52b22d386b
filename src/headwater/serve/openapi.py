"""The OpenAPI document, made of the table of routes: it cannot describe what is not there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from headwater import __version__
from headwater.serve.routes import JSON, ROUTES, Route

_TEXT, _NUMBER, _WHOLE, _TRUTH = ({"type": kind} for kind in ("string", "number", "integer", "boolean"))
_PHASES = ["stopped", "starting", "running", "stopping", "waiting", "refused", "ended", "removed"]


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _perhaps(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _list(name: str) -> dict[str, Any]:
    return {"type": "array", "items": _named(name)}


def _named(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


_LATENCY = _object(p50=_NUMBER, p95=_NUMBER, p99=_NUMBER)

SCHEMAS: dict[str, Any] = {
    "object": {"type": "object"},
    "Text": _TEXT,
    "Error": _object(error=_TEXT),
    "Health": _object(healthy=_TRUTH),
    "Readiness": _object(ready=_TRUTH),
    "Server": _object(
        version=_TEXT, folder=_TEXT, state=_TEXT, healthy=_TRUTH, ready=_TRUTH, stopping=_TRUTH, flows=_WHOLE
    ),
    "Flow": _object(
        name=_TEXT,
        file=_TEXT,
        state={"type": "string", "enum": _PHASES},
        for_s={**_NUMBER, "description": "how long it has been in this state"},
        why={**_TEXT, "description": "why it died, was refused or waits; empty otherwise"},
        change_refused={**_perhaps(_TEXT), "description": "why a changed file has not taken over; the old one runs on"},
        wanted=_TRUTH,
        restarts=_WHOLE,
        next_start_s={**_perhaps(_NUMBER), "description": "in how many seconds it is started again"},
        pid=_perhaps(_WHOLE),
        runner=_TEXT,
        checkpoint=_perhaps(_TEXT),
        report={**_perhaps({"type": "object"}), "description": "of its last run that came to an end"},
    ),
    "Flows": _list("Flow"),
    "Graph": _object(
        flow=_TEXT,
        steps={
            "type": "array",
            "items": _object(
                name=_TEXT,
                kind=_TEXT,
                does=_TEXT,
                role={"type": "string", "enum": ["source", "step", "sink"]},
                column={**_WHOLE, "description": "from left to right, if it is drawn"},
                line={**_TEXT, "description": "where it is written"},
                parallel=_WHOLE,
                on_error=_TEXT,
                outputs={"type": "object"},
            ),
        },
        streams={
            "type": "array",
            "items": _object(
                **{"from": _TEXT}, port=_TEXT, to=_TEXT, grouping=_TEXT, keys={"type": "array", "items": _TEXT}
            ),
        },
    ),
    "Log": _object(lines={"type": "array", "items": _TEXT}),
    "Counts": _object(
        at_s=_NUMBER,
        records_in=_WHOLE,
        records_out={"type": "object", "additionalProperties": _WHOLE},
        latency_ms=_LATENCY,
        latency_counts={
            "type": "array",
            "items": {"type": "array", "items": _NUMBER},
            "description": "age at the sinks: pairs of milliseconds, up to which, and of records, by doubling",
        },
        emit_latency_ms=_LATENCY,
        backpressure_s=_NUMBER,
        watermarks_us={"type": "object", "additionalProperties": _WHOLE},
        steps={"type": "array", "items": {"type": "object"}},
    ),
    "Sample": _object(
        at={**_NUMBER, "description": "seconds since 1970"},
        total={**_named("Counts"), "description": "since the flow was started"},
        last={**_named("Counts"), "description": "since the sample before; at_s is how long that was"},
        process=_object(
            cpu_s=_NUMBER, cores={**_NUMBER, "description": "since the sample before"}, memory_bytes=_WHOLE
        ),
        checkpoints={**_perhaps({"type": "object"}), "description": "how many were made, and what the last one took"},
    ),
    "Records": _object(
        step=_TEXT,
        **{"in": {"type": "array", "items": {"type": "object"}}},
        out={"type": "array", "items": {"type": "object"}},
    ),
    "Query": {
        "type": "object",
        "properties": {"step": _TEXT, "query": _TEXT, "limit": {**_WHOLE, "description": "at most so many records"}},
        "required": ["step", "query"],
        "additionalProperties": False,
    },
    "Queried": _object(
        fault=_perhaps(_object(line=_WHOLE, column=_WHOLE, offending=_TEXT, says=_TEXT)),
        stream={**_TEXT, "description": "what the records are called in the query"},
        looked_at=_WHOLE,
        matches={"type": "array", "items": {"type": "object"}},
    ),
    "Samples": _list("Sample"),
    "Checkpoint": _object(
        number=_WHOLE,
        bytes=_WHOLE,
        restorable=_TRUTH,
        why=_TEXT,
        since=_perhaps(_WHOLE),
        flow=_TEXT,
        made=_TEXT,
        positions={"type": "object"},
        state_bytes={"type": "object"},
        waiting={"type": "object"},
    ),
    "Checkpoints": _list("Checkpoint"),
    "Letter": _object(
        id=_WHOLE,
        step=_TEXT,
        error=_TEXT,
        record={"description": "the record, where it is JSON; else the text that could not be read"},
        at_ns=_WHOLE,
        created_ns=_WHOLE,
    ),
    "Letters": _object(letters=_list("Letter"), more=_TRUTH),
    "Replay": {
        "type": "object",
        "properties": {
            "ids": {"type": "array", "items": _WHOLE, "description": "all, where there are none"},
            "step": _perhaps(_TEXT),
            "set": {"type": "object", "description": "fields that are changed in each record first"},
        },
        "additionalProperties": False,
    },
    "Replayed": _object(
        released={"type": "array", "items": _WHOLE},
        kept={"type": "object", "additionalProperties": _TEXT},
        report=_perhaps({"type": "object"}),
    ),
}


def described(
    routes: Sequence[Route] = ROUTES, about: str = "Flows of a folder, run by headwater serve"
) -> dict[str, Any]:
    """Return the document that describes routes."""
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headwater",
            "version": __version__,
            "description": about,
        },
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    names = re.findall(r"\{(\w+)\}", route.path)
    parameters = [{"name": name, "in": "path", "required": True, "schema": _TEXT} for name in names]
    parameters += [
        {"name": name, "in": "query", "schema": _TEXT, "description": about} for name, about in route.query.items()
    ]
    answers: dict[str, Any] = {str(route.success): _content(route.about, route.kind, route.gives)}
    answers["default"] = _content("What is wrong", JSON, "Error")
    operation: dict[str, Any] = {
        "summary": route.about,
        "operationId": f"{route.method.lower()}{re.sub(r'[^a-z0-9]+', '_', route.path)}".strip("_"),
        "parameters": parameters,
        "responses": answers,
        "security": [] if route.public else [{"token": []}],
    }
    if route.body:
        operation["requestBody"] = {"content": {JSON: {"schema": _named(route.body)}}}
    return operation


def _content(about: str, kind: str, schema: str) -> dict[str, Any]:
    return {"description": about, "content": {kind.partition(";")[0]: {"schema": _named(schema)}}}
