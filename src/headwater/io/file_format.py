"""Files of records by their endings: what the name of one says of its form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwater import io
from headwater.data.schema import Fields
from headwater.errors import FlowError, listed

_KINDS = {".jsonl": "JsonLines", ".json": "JsonLines", ".ndjson": "JsonLines", ".csv": "Csv", ".parquet": "Parquet"}
ENDINGS = tuple(_KINDS)


def file_named(path: Path, schema: Fields | None = None) -> Any:
    """Return the source, or sink, that a file is by its ending; FlowError where that says nothing."""
    if path.suffix not in _KINDS:
        raise FlowError(f"cannot tell what {path.name or str(path)!r} is; files end in {listed(ENDINGS)}")
    kind = getattr(io, _KINDS[path.suffix])
    return kind(str(path)) if schema is None else kind(str(path), schema=schema)
