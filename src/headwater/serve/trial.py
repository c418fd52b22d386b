"""A query tried on a few records, or on a file: what it finds in them, or where its text is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from headwater import engine, io
from headwater.cep import parse
from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import QueryError
from headwater.flow.endpoints import DeliverySemantics
from headwater.flow.flow import Flow
from headwater.io.file_format import file_named

_MOST = 1000  #: matches of a few records that are told


def try_on_records(
    text: str, stream: str, schema: Mapping[str, Any], records: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Return what a query makes of records; `fault` says where its text is wrong, in place of that."""
    return _try(text, stream, io.Items(list(records), dict(schema)), _MOST if records else 0)


def try_on_file(text: str, stream: str, path: Path, most: int) -> dict[str, Any]:
    """Return what a query makes of all records of a file: the first matches, `most` of them; 0 looks at the text alone."""
    return _try(text, stream, file_named(path), most)


def _try(text: str, stream: str, source: Any, most: int) -> dict[str, Any]:
    sink = _First(most)
    columns = {name: str(kind) for name, kind in source.schema.fields}
    answer = {"stream": stream, "columns": columns, "looked_at": 0, "dead_letters": 0, "found": 0, "matches": []}
    try:
        parse(text)
        flow = Flow("query")
        flow.read(stream, source)
        flow.query("matches", text).write("found", sink)
    except QueryError as error:
        message = str(error).partition("\n")[0]
        place = {"line": error.line, "column": error.column, "offending": error.offending}
        return {"fault": {**place, "says": message}, **answer}
    if most:
        report = engine.run(flow)
        answer |= {"looked_at": report.last.records_in, "dead_letters": report.dead_letters}
    return {"fault": None, **answer, "found": sink.count, "matches": sink.records}


@dataclass
class _First:
    """Keeps the first records that are written to it, and counts all."""

    delivery: ClassVar[DeliverySemantics] = "neither"

    most: int
    count: int = 0
    records: list[dict[str, Any]] = field(default_factory=list)

    def open(self, schema: Schema) -> _First:
        """Start."""
        return self

    def write(self, batch: Batch) -> None:
        """Keep what there is room for."""
        self.count += batch.length
        room = self.most - len(self.records)
        if room > 0:
            self.records += batch.slice(0, min(room, batch.length)).rows()

    def close(self) -> None:
        """Nothing to release."""
