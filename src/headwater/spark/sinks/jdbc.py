"""Databases, through JDBC: exactly once.

Spark writes the records of a micro-batch to a table beside the one that is wanted. One transaction then moves them over and
writes down the number of the micro-batch.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from headwater.data.batch import concat_batches
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.endpoints import Ledger
from headwater.io.arrow import table_of
from headwater.io.jdbc import Jdbc
from headwater.spark.jdbc import connected, quoted
from headwater.spark.sinks.gathering import GatheringWriter

_BATCHES = "headwater_batches"


class JdbcWriting:
    """How Spark writes a table of a database."""

    way = "written by the driver"
    guarantee = "exactly once"

    def __init__(self, sink: Jdbc) -> None:
        self._sink = sink

    def check(self, schema: Schema, key: tuple[str, ...]) -> None:
        """Leave it to the database."""

    def open(self, schema: Schema, ledger: Ledger, key: tuple[str, ...]) -> JdbcTable:
        """Start writing."""
        return JdbcTable(self._sink, schema, ledger.name)


class JdbcTable(GatheringWriter):
    """A table of a database, as the driver sees it."""

    def __init__(self, sink: Jdbc, schema: Schema, name: str) -> None:
        super().__init__(schema)
        self._sink, self._name = sink, name
        self._staging = f"headwater_{name.replace('-', '_')}"
        with self._connected() as connection:
            if not _has_table(connection, _BATCHES):
                _execute(connection, f"CREATE TABLE {_BATCHES} (writer VARCHAR(64) PRIMARY KEY, batch INTEGER)")
                connection.commit()

    @property
    def committed(self) -> int:
        """The last micro-batch that the database has."""
        with self._connected() as connection:
            statement = connection.prepareStatement(f"SELECT batch FROM {_BATCHES} WHERE writer = ?")
            statement.setString(1, self._name)
            rows = statement.executeQuery()
            return int(rows.getInt(1)) if rows.next() else -1

    def commit(self, number: int) -> None:
        """Move all of its records over, and write its number, in one transaction."""
        staged = any(map(len, self._waiting)) and self._stage()
        with self._connected() as connection:
            if staged:
                columns = quoted(connection, self._schema)
                _execute(
                    connection, f"INSERT INTO {self._sink.table} ({columns}) SELECT {columns} FROM {self._staging}"
                )
            _execute(connection, f"DELETE FROM {_BATCHES} WHERE writer = ?", self._name)
            _execute(connection, f"INSERT INTO {_BATCHES} VALUES (?, {number})", self._name)
            connection.commit()
        self._waiting = []

    def close(self) -> None:
        """Drop the table in which records waited."""
        with self._connected() as connection:
            if _has_table(connection, self._staging):
                _execute(connection, f"DROP TABLE {self._staging}")
                connection.commit()

    def _stage(self) -> bool:
        """Write the records beside the table, which is made first if it is not there."""
        from headwater.spark.session import session

        rows = session().createDataFrame(table_of(concat_batches(self._waiting), self._schema))
        for table, records, mode in ((self._sink.table, rows.limit(0), "append"), (self._staging, rows, "overwrite")):
            writer = records.write.format("jdbc").options(url=self._sink.url, dbtable=table, **self._sink.options)
            try:
                writer.mode(mode).save()
            except Exception as error:  # Java's, or what Spark makes of it
                why = (str(error).splitlines() or [type(error).__name__])[0]
                raise InputError(f"cannot write {self._sink}: {self._sink.without_secrets(why)}") from None
        return True

    def _connected(self) -> AbstractContextManager[Any]:
        return connected(self._sink, "write")


def _execute(connection: Any, text: str, *values: str) -> None:
    statement = connection.prepareStatement(text)
    for place, value in enumerate(values, start=1):
        statement.setString(place, value)
    statement.executeUpdate()
    statement.close()


def _has_table(connection: Any, name: str) -> bool:
    """Say whether there is a table; databases keep names that are not quoted in capitals, or in small letters."""
    answers = (
        connection.getMetaData().getTables(None, None, each, None) for each in (name, name.upper(), name.lower())
    )
    return any(tables.next() for tables in answers)
