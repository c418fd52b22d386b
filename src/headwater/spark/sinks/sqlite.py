"""SQLite: exactly once. The number of the micro-batch is written in the same transaction as its records."""

from __future__ import annotations

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.flow.endpoints import Refused
from headwater.io.sqlite import Sqlite


class SqliteTable:
    """A table in whose file another one says which micro-batch is its last."""

    def __init__(self, sink: Sqlite, schema: Schema, name: str) -> None:
        self._name = name
        self._writer = sink.open(schema)

    def begin(self, batch_id: int) -> bool:
        """Say whether this micro-batch has still to be written; records of one that broke off are gone."""
        return batch_id > self._writer.begin(self._name)

    def write(self, batch: Batch) -> Refused:
        """Write some of its records; they are there when all are."""
        return self._writer.insert(batch)

    def commit(self, batch_id: int) -> None:
        """Write its number, and let all of it be there."""
        self._writer.commit(self._name, batch_id)

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
