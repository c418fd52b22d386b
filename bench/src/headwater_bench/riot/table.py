"""Rows in an SQLite table: inserted in groups, looked up by key, read by range of time."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.endpoints import DeliverySemantics

_SQL_TYPES = {"int": "INTEGER", "time": "INTEGER", "bool": "INTEGER", "float": "REAL", "float32": "REAL"}


class SqliteTable:
    """A table of a database file: a sink for rows, and what can be asked of it.

    Rows are inserted `group` at a time, each group whole or not at all; the row key is `timestamp-id`, so a
    row that comes again replaces itself.
    """

    delivery: DeliverySemantics = "idempotent"

    def __init__(self, path: str | Path, table: str, id: str, time: str = "timestamp", group: int = 100) -> None:
        if not table.isidentifier():
            raise InputError(f"a table's name is made of letters, digits and _; got {table!r}")
        self.path, self.table, self.id, self.time, self.group = Path(path), table, id, time, group

    def open(self, schema: Schema) -> TableWriter:
        """Make the table, unless it is there, and start to insert."""
        for column in (self.id, self.time):
            schema.type_of(column, what=f"table {self.table}")
        return TableWriter(self, schema)

    def connect(self) -> sqlite3.Connection:
        """Open the database file."""
        try:
            # a step runs on whichever worker is free, but only on one at a time
            return sqlite3.connect(self.path, check_same_thread=False, timeout=30)
        except sqlite3.Error as error:
            raise InputError(f"cannot open database {self.path}: {error}") from error

    def look_up(self, id: str) -> list[dict[str, Any]]:
        """Return all rows of a sensor, oldest first."""
        return self._select(f'"{self.id}" = ?', (id,))

    def scan(self, start: int, end: int) -> list[dict[str, Any]]:
        """Return the rows whose time is at least `start` and below `end`, oldest first."""
        return self._select(f'"{self.time}" >= ? AND "{self.time}" < ?', (start, end))

    def _select(self, where: str, values: tuple[Any, ...]) -> list[dict[str, Any]]:
        connection = self.connect()
        try:
            connection.row_factory = sqlite3.Row
            rows = connection.execute(
                f'SELECT * FROM "{self.table}" WHERE {where} ORDER BY "{self.time}", row_key', values
            )
            return [{name: row[name] for name in row.keys() if name != "row_key"} for row in rows]  # noqa: SIM118
        except sqlite3.Error as error:
            raise InputError(f"cannot read table {self.table!r} of {self.path}: {error}") from error
        finally:
            connection.close()

    def __str__(self) -> str:
        return f"table {self.table} of {self.path.name}"


class TableWriter:
    """An open table; what is left of a group is inserted at the end."""

    def __init__(self, table: SqliteTable, schema: Schema) -> None:
        self._table, self._names = table, list(schema)
        self._waiting: list[tuple[Any, ...]] = []
        self._connection = table.connect()
        kinds = ", ".join(f'"{name}" {_SQL_TYPES.get(kind, "TEXT")}' for name, kind in schema.fields)
        try:
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute(f'CREATE TABLE IF NOT EXISTS "{table.table}" (row_key TEXT PRIMARY KEY, {kinds})')
            self._connection.execute(
                f'CREATE INDEX IF NOT EXISTS "{table.table}_{table.time}" ON "{table.table}" ("{table.time}")'
            )
        except sqlite3.Error as error:
            raise InputError(f"cannot make table {table.table!r} in {table.path}: {error}") from error
        marks = ", ".join("?" * (len(self._names) + 1))
        self._insert = f'INSERT OR REPLACE INTO "{table.table}" VALUES ({marks})'

    def write(self, batch: Batch) -> None:
        """Take rows, and insert whole groups; where that fails, these rows are not taken, and earlier ones kept."""
        times, ids = batch[self._table.time].tolist(), batch[self._table.id].tolist()
        keys = [f"{time}-{id}" for time, id in zip(times, ids, strict=True)]
        before = len(self._waiting)
        self._waiting += zip(keys, *(batch[name].tolist() for name in self._names), strict=True)
        try:
            self._flush(len(self._waiting) // self._table.group * self._table.group)
        except InputError:
            del self._waiting[before:]
            raise

    def _flush(self, count: int) -> None:
        if not count:
            return
        try:
            with self._connection:
                self._connection.executemany(self._insert, self._waiting[:count])
        except sqlite3.Error as error:
            raise InputError(f"cannot insert into {self._table.table!r} of {self._table.path}: {error}") from error
        del self._waiting[:count]

    def flush(self) -> None:
        """Insert what is left of a group."""
        self._flush(len(self._waiting))

    def close(self) -> None:
        """Insert what is left and close the file."""
        try:
            self.flush()
        finally:
            self._connection.close()
