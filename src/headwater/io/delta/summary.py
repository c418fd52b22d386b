"""All that the log of a Delta table says up to a version, in Parquet files beside its commits."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headwater.io.arrow import parquet

Action = dict[str, Any]  #: what a line of a commit says


def last_summary(names: Iterable[str], up_to: int | None = None) -> tuple[int, list[str]] | None:
    """Return the version of the last one that is whole, up to a version if that is said, and its files; None without any."""
    by_version: dict[int, dict[int, list[str]]] = {}
    for name in names:
        match = re.fullmatch(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet", name)
        if match and (up_to is None or int(match[1]) <= up_to):
            by_version.setdefault(int(match[1]), {}).setdefault(int(match[2] or 1), []).append(name)
    for version in sorted(by_version, reverse=True):
        for count, parts in by_version[version].items():
            if len(parts) == count:
                return version, sorted(parts)
    return None


def actions_of(data: bytes) -> Iterator[Action]:
    """Return what a file of one says."""
    for row in parquet().read_table(io.BytesIO(data)).to_pylist():
        yield {name: value for name, value in row.items() if value is not None}


def summary(protocol: Action, metadata: Action, writers: Mapping[str, int], files: list[Action]) -> bytes:
    """Make one."""
    import pyarrow as pa

    texts = pa.map_(pa.string(), pa.string())
    kinds = {
        "txn": [("appId", pa.string()), ("version", pa.int64())],
        "add": [
            ("path", pa.string()),
            ("partitionValues", texts),
            ("size", pa.int64()),
            ("modificationTime", pa.int64()),
            ("dataChange", pa.bool_()),
            ("stats", pa.string()),
        ],
        "metaData": [
            ("id", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", texts)])),
            ("schemaString", pa.string()),
            ("partitionColumns", pa.list_(pa.string())),
            ("configuration", texts),
            ("createdTime", pa.int64()),
        ],
        "protocol": [("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())],
    }
    rows: list[Action] = [{"protocol": protocol}, {"metaData": metadata}]
    rows += [{"txn": {"appId": name, "version": part}} for name, part in writers.items()]
    rows += [{"add": {**file, "dataChange": False}} for file in files]
    columns = {
        name: pa.array([_only(row.get(name), fields) for row in rows], pa.struct(fields))
        for name, fields in kinds.items()
    }
    buffer = io.BytesIO()
    parquet().write_table(pa.table(columns), buffer)
    return buffer.getvalue()


def _only(action: Action | None, fields: list[tuple[str, Any]]) -> Action | None:
    return None if action is None else {name: _pairs(action.get(name)) for name, _ in fields}


def _pairs(value: Any) -> Any:
    """Return what is a map in Parquet as pairs, as which it also comes back from there."""
    if isinstance(value, dict) and "provider" in value:
        return {**value, "options": _pairs(value.get("options") or {})}
    return list(value.items()) if isinstance(value, dict) else value
