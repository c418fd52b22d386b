"""The OpenAPI document, made of the table of routes: it cannot describe what is not there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from headwater import __version__
from headwater.serve.routes import JSON, ROUTES, Route
from headwater.serve.schema import TEXT, Schema, named
from headwater.serve.schemas import SCHEMAS


def openapi_document(
    routes: Sequence[Route] = ROUTES,
    about: str = "Flows of a folder, run by headwater serve",
    schemas: Mapping[str, Schema] = SCHEMAS,
) -> dict[str, Any]:
    """Return the document that describes routes; `schemas` are those of what they take and give."""
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
            "schemas": dict(schemas),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    names = re.findall(r"\{(\w+)\}", route.path)
    parameters = [{"name": name, "in": "path", "required": True, "schema": TEXT} for name in names]
    parameters += [
        {"name": name, "in": "query", "schema": TEXT, "description": about} for name, about in route.query.items()
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
        operation["requestBody"] = {"content": {JSON: {"schema": named(route.body)}}}
    return operation


def _content(about: str, kind: str, schema: str) -> dict[str, Any]:
    return {"description": about, "content": {kind.partition(";")[0]: {"schema": named(schema)}}}
