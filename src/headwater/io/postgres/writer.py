"""Writing to a table of PostgreSQL, by COPY."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from headwater.data.batch import Batch
from headwater.data.column import Column
from headwater.data.schema import Schema, Type
from headwater.data.timestamps import moments_as_text
from headwater.errors import InputError
from headwater.flow.endpoints import Refused
from headwater.io.postgres.endpoint import Postgres
from headwater.io.postgres.session import Session, identifier_of
from headwater.io.records import json_texts
from headwater.io.sifting import attempt_each

_TYPES: dict[Type, str] = {
    "bool": "boolean",
    "int": "bigint",
    "float": "double precision",
    "float32": "real",
    "text": "text",
    "time": "timestamptz",
    "any": "jsonb",
}
#: what the server says of a record that it will never take, rather than of the table
_REFUSED = (psycopg.DataError, psycopg.IntegrityError)


class Inserts:
    """How records of a schema get into a table, within a transaction of the caller's."""

    def __init__(self, sink: Postgres, schema: Schema) -> None:
        for name in sink.key:
            schema.type_of(name, what=f"key of {sink}")
        self._sink, self._schema = sink, schema
        table, columns = identifier_of(sink.table), sql.SQL(", ").join(map(sql.Identifier, schema))
        fields = [sql.SQL("{} {}").format(sql.Identifier(n), sql.SQL(_TYPES[kind])) for n, kind in schema.fields]
        keys = sql.SQL(", ").join(map(sql.Identifier, sink.key))
        primary = [sql.SQL("PRIMARY KEY ({})").format(keys)] if sink.key else []
        self._create = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(table, sql.SQL(", ").join(fields + primary))
        self._probe = sql.SQL("SELECT {} FROM {} LIMIT 0").format(columns, table)
        staged = sql.Identifier("headwater_rows")
        self._stage = sql.SQL("CREATE TEMP TABLE headwater_rows ON COMMIT DELETE ROWS AS {}").format(self._probe)
        self._copy = sql.SQL("COPY {} ({}) FROM STDIN").format(staged if sink.key else table, columns)
        others = [name for name in schema if name not in sink.key]
        assignments = [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in others]
        then = sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(assignments)) if assignments else sql.SQL("NOTHING")
        self._merge = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} ON CONFLICT ({}) DO {}").format(
            table, columns, columns, staged, keys, then
        )

    def prepare(self, connection: psycopg.Connection[Any]) -> None:
        """Have the table there, and see that it fits; once on each connection."""
        connection.execute(self._create)
        connection.execute(self._probe)
        if self._sink.key:
            connection.execute(self._stage)

    def insert(self, connection: psycopg.Connection[Any], batch: Batch) -> Refused:
        """Insert what the table takes; return the rest with the reasons."""
        return attempt_each(batch, lambda part: self._inserted(connection, part))

    def _inserted(self, connection: psycopg.Connection[Any], batch: Batch) -> None:
        rows = list(zip(*(_values(batch[name], kind) for name, kind in self._schema.fields), strict=True))
        try:
            with connection.transaction(), connection.cursor() as cursor:
                with cursor.copy(self._copy) as copy:
                    for row in self._last_of_each_key(rows):
                        copy.write_row(row)
                if self._sink.key:
                    cursor.execute(self._merge)
                    cursor.execute("DELETE FROM headwater_rows")
        except _REFUSED as error:
            raise InputError(f"cannot write {self._sink}: {str(error).splitlines()[0]}") from None

    def _last_of_each_key(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return rows of which none has the key of another: one statement may touch a row once."""
        if not self._sink.key:
            return rows
        places = [list(self._schema).index(name) for name in self._sink.key]
        return list({tuple(row[at] for at in places): row for row in rows}.values())


class PostgresWriter:
    """An open table; each batch is one transaction."""

    def __init__(self, sink: Postgres, schema: Schema) -> None:
        self._session, self._inserts = Session(sink), Inserts(sink, schema)
        try:
            self._prepare()
        except InputError:
            self._session.close()
            raise

    def write(self, batch: Batch) -> Refused:
        """Write the records in one transaction, all that the table takes or none."""
        self._prepare()
        with self._session.asking("write") as connection, connection.transaction():
            return self._inserts.insert(connection, batch)

    def close(self) -> None:
        """Let the server go."""
        self._session.close()

    def _prepare(self) -> None:
        with self._session.asking("write") as connection:
            if self._session.fresh:
                self._inserts.prepare(connection)
                self._session.fresh = False


def _values(column: Column, kind: Type) -> list[Any]:
    if kind == "time":
        return moments_as_text(column)
    return json_texts(column) if kind == "any" else column.tolist()
