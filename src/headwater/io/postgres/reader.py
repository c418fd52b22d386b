"""Reading a table of PostgreSQL by a column that grows."""

from __future__ import annotations

from typing import Any

from psycopg import sql

from headwater.data.batch import Batch
from headwater.data.schema import Schema, Type
from headwater.errors import FlowError, InputError
from headwater.io.polling import nothing_new
from headwater.io.postgres.endpoint import Postgres
from headwater.io.postgres.session import Session, identifier_of, is_away

#: the server's types by their numbers; all others are read as text
_KINDS: dict[int, Type] = {
    16: "bool", 20: "int", 21: "int", 23: "int", 700: "float32", 701: "float", 1700: "float",
    1082: "time", 1114: "time", 1184: "time", 114: "any", 3802: "any",
}  # fmt: skip
_MOMENT = "'epoch'::timestamptz + %(after)s * interval '1 microsecond'"
_FORMS: dict[Type, str] = {
    "time": "(extract(epoch from {}) * 1000000)::bigint",
    "text": "{}::text",
    "float": "{}::float8",
}


def columns_of(table: Postgres) -> Schema:
    """Return a table's columns."""
    session = Session(table)
    try:
        with session.asking("read") as connection:
            cursor = connection.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(identifier_of(table.table)))
            return Schema.of({each.name: _KINDS.get(each.type_code, "text") for each in cursor.description or ()})
    finally:
        session.close()


class PostgresReader:
    """An open table; rows come in the order of a column."""

    def __init__(self, source: Postgres, position: Any) -> None:
        if source.order is None:
            raise FlowError(f"reading {source} goes by a column that only grows: which? Give order='id' or the like")
        self._source, self._schema = source, source.schema
        self._schema.type_of(source.order, what=f"order of {source}")
        self.position = position  #: the value of the last row that was read
        self._at = list(self._schema).index(source.order)
        self._session = Session(source)
        columns = [_form(name, kind) for name, kind in self._schema.fields]
        select = sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(columns), identifier_of(source.table))
        end = sql.SQL("ORDER BY {} LIMIT %(limit)s").format(sql.Identifier(source.order))
        self._first = sql.SQL(" ").join([select, end])
        after = _MOMENT if self._schema[source.order] == "time" else "%(after)s"
        self._next = sql.SQL("{} WHERE {} > {} {}").format(select, sql.Identifier(source.order), sql.SQL(after), end)
        with self._session.asking("read") as connection:
            connection.execute(self._first, {"limit": 0})

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        """Return the next rows; those of equal value come together."""
        try:
            rows = self._rows(limit)
        except InputError as error:
            if not (self._source.follow and is_away(error)):
                raise
            rows = []  # it may come back
        if rows:
            self.position = rows[-1][self._at]
            return Batch.of(dict(zip(self._schema, zip(*rows, strict=True), strict=True)), self._schema)
        return nothing_new(self._source, timeout_s)

    def close(self) -> None:
        """Let the server go."""
        self._session.close()

    def _rows(self, limit: int) -> list[tuple[Any, ...]]:
        query = self._first if self.position is None else self._next
        with self._session.asking("read") as connection:
            rows = connection.execute(query, {"limit": limit + 1, "after": self.position}).fetchall()
        if len(rows) <= limit:
            return rows
        last = rows[-1][self._at]  # rows of its value may be cut off: they come next time
        whole = [row for row in rows if row[self._at] != last]
        if not whole:
            return self._rows(10 * limit)  # a position cannot be amid equal values
        return whole


def _form(name: str, kind: Type) -> sql.Composed:
    return sql.SQL(_FORMS.get(kind, "{}")).format(sql.Identifier(name))
