"""A query tried on a few records: what it finds in them, or where its text is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headwater import engine, io
from headwater.cep import parse
from headwater.errors import QueryError
from headwater.flow.flow import Flow


def tried(text: str, stream: str, schema: Mapping[str, Any], records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what a query makes of records; `fault` says where its text is wrong, in place of that."""
    found = io.Collect()
    answer: dict[str, Any] = {"fault": None, "stream": stream, "looked_at": len(records), "matches": []}
    try:
        parse(text)
        flow = Flow("query")
        flow.read(stream, io.Items(list(records), dict(schema)))
        flow.query("matches", text).write("found", found)
    except QueryError as error:
        says = str(error).partition("\n")[0]
        place = {"line": error.line, "column": error.column, "offending": error.offending}
        return {**answer, "fault": {**place, "says": says}}
    if records:
        engine.run(flow)
    return {**answer, "matches": found.records}
