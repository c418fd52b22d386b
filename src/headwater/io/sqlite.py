"""SQLite: a table to write to, a table or query to read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import NoneType
from typing import Any, overload

from headwater.data.batch import Batch
from headwater.data.column import Column, checked_value, column_of
from headwater.data.schema import Fields, Schema, Type
from headwater.data.timestamps import moments_as_text
from headwater.errors import FlowError, InputError, NoRoomError, PathError, listed, suggestion
from headwater.flow.endpoints import DeliverySemantics, Ledger, Refused, Reject, Resume, Transaction
from headwater.flow.identity import Identity, path_of
from headwater.flow.places import Place
from headwater.io.fields import column_of_texts
from headwater.io.files import explained, sync
from headwater.io.records import guess_kind, json_texts
from headwater.io.sifting import attempt_each

_GUESS_FROM = 1000  # rows
_WAIT_S = 30.0  # for another process that writes
#: what SQLite says of a record that it will never take, rather than of the file
_REFUSED = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError, OverflowError)
_BATCHES = "CREATE TABLE IF NOT EXISTS headwater_batches (writer TEXT PRIMARY KEY, batch INTEGER)"
_UNDO = (  # the rows of the last transaction, and the number before it
    "CREATE TABLE IF NOT EXISTS headwater_undo "
    "(writer TEXT PRIMARY KEY, before INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL)"
)
_TYPES: dict[Type, str] = {
    "bool": "BOOLEAN",
    "int": "INTEGER",
    "float": "REAL",
    "float32": "REAL",
    "text": "TEXT",
    "time": "TEXT",
    "any": "TEXT",
}


class Sqlite:
    """A table of a SQLite file, to read or to write; or a query, to read.

    When written, the table is made if it is not there, and each batch is one transaction. With `key`, a
    record whose key is already there replaces the old one. A record that the table does not take, or that
    lacks its key, is refused alone. Moments are ISO text, objects JSON text, and NaN is NULL. When read,
    types are guessed from the first rows unless a schema is given; a row that does not fit is rejected with
    its number.
    """

    resume: Resume = "position"
    delivery: DeliverySemantics = "transactional"

    def __init__(
        self,
        path: str | Path,
        table: str | None = None,
        key: str | Sequence[str] = (),
        *,
        query: str | None = None,
        schema: Fields | None = None,
    ) -> None:
        if (table is None) == (query is None):
            raise FlowError(f"{path}: give a table or a query, one of them; got table={table!r}, query={query!r}")
        self.path, self.table, self.query = path, table, query
        self.key = (key,) if isinstance(key, str) else tuple(key)
        self._schema = None if schema is None else Schema.of(schema)

    @property
    def schema(self) -> Schema:
        """The columns, as given or as guessed from the first rows."""
        if self._schema is None:
            cursor = self._select(_connect(self.path, writing=False), "")
            rows = cursor.fetchmany(_GUESS_FROM)
            values = {name: [row[at] for row in rows if row[at] is not None] for at, name in _names(cursor)}
            cursor.connection.close()
            self._schema = Schema.of({name: guess_kind(column) for name, column in values.items()})
        return self._schema

    @overload
    def open(self, reject_or_schema: Reject, position: Any = None) -> SqliteReader: ...
    @overload
    def open(self, reject_or_schema: Schema) -> SqliteWriter: ...
    def open(self, reject_or_schema: Reject | Schema, position: Any = None) -> SqliteReader | SqliteWriter:
        """Start reading, after as many rows as `position` says; with a schema instead, start writing."""
        if isinstance(reject_or_schema, Schema):
            return SqliteWriter(self, reject_or_schema)
        return SqliteReader(self, reject_or_schema, _check_position(position, self.path))

    def transaction(self, schema: Schema, ledger: Ledger) -> Transaction:
        """Start writing in parts: one and its number are in the file together or not at all."""
        from headwater.io.transactions.sqlite import SqliteTable

        return SqliteTable(SqliteWriter(self, schema), ledger)

    @property
    def identity(self) -> Identity:
        """The file, and what of it is read."""
        return {"path": path_of(self.path), "table": self.table, "query": self.query}

    def select(self, after: int) -> tuple[sqlite3.Cursor, list[str]]:
        """Run the query from a row on; return its rows and their columns' names."""
        limit = f" LIMIT -1 OFFSET {after}" if after else ""
        cursor = self._select(_connect(self.path, writing=False), limit)
        return cursor, [name for _, name in _names(cursor)]

    def _select(self, connection: sqlite3.Connection, limit: str) -> sqlite3.Cursor:
        what = f"({self.query})" if self.query is not None else _quoted(str(self.table))
        try:
            return connection.execute(f"SELECT * FROM {what}{limit}")
        except sqlite3.Error as error:
            connection.close()
            raise InputError(f"cannot read {self}: {error}") from None

    def claims(self, *, writing: bool) -> Place:
        """Return the table that it reads or writes; a query may read any, and claims none."""
        return Place.of_file(self.path, part=self.table.casefold() if self.table else "a query")

    def __str__(self) -> str:
        return f"{self.path}:{self.table or self.query}"


class SqliteReader:
    """An open query."""

    def __init__(self, source: Sqlite, reject: Reject, position: int) -> None:
        self._source, self._schema, self._reject = source, source.schema, reject
        self.position = position  #: rows read so far
        self._cursor, self._names = source.select(position)
        for name in self._schema:
            if name not in self._names:
                raise InputError(
                    f"cannot read {source}: there is no column {name!r}; columns are {listed(self._names)}"
                    f"{suggestion(name, self._names)}"
                )

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        """Return the next records."""
        try:
            rows = self._cursor.fetchmany(limit)
        except sqlite3.Error as error:
            raise InputError(f"cannot read {self._source}: {error}") from None
        if not rows:
            return None
        first, self.position = self.position, self.position + len(rows)
        columns = dict(zip(self._names, zip(*rows, strict=True), strict=True))
        try:
            return Batch.of(
                {name: _column(columns[name], kind, name) for name, kind in self._schema.fields}, self._schema
            )
        except FlowError:
            return self._one_by_one(rows, first)

    def _one_by_one(self, rows: list[Any], first: int) -> Batch:
        """Return the rows that fit; the others are rejected."""
        good = []
        for number, row in enumerate(rows, start=first + 1):
            record = dict(zip(self._names, row, strict=True))
            try:
                good.append({name: _value(record[name], kind, name) for name, kind in self._schema.fields})
            except FlowError as error:
                self._reject(repr(record), f"{self._source} row {number}: {error}")
        return Batch.of_rows(good, self._schema)

    def close(self) -> None:
        """Close the file."""
        self._cursor.connection.close()


class SqliteWriter:
    """An open table."""

    def __init__(self, sink: Sqlite, schema: Schema) -> None:
        if sink.table is None:
            raise FlowError(f"{sink.path}: a query cannot be written to; give a table")
        for name in sink.key:
            schema.type_of(name, what=f"key of {sink}")
        self._sink, self._schema = sink, schema
        self._first: int | None = None  # the first row of the open transaction, where rows are numbered as they come
        self._connection = _connect(sink.path, writing=True)
        self._table, self._insert = sink.table, _insert(sink.table, schema, sink.key)
        try:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute(_create(sink.table, schema, sink.key))
            self._connection.execute(f"EXPLAIN {self._insert}", [None] * len(schema))  # does the table fit?
        except sqlite3.Error as error:
            self._connection.close()
            raise InputError(f"cannot write {sink}: {error}{_fix(error)}") from None

    def write(self, batch: Batch) -> Refused:
        """Write the records in one transaction, all that the table takes or none."""
        with self._asking() as connection, connection:
            return self.insert(batch)

    def insert(self, batch: Batch) -> Refused:
        """Add the records to the transaction, all that the table takes or none."""
        with self._asking() as connection:
            if not connection.in_transaction:
                connection.execute("BEGIN")  # else the end of the savepoint would be a commit
                self._first = self._next_row()
            connection.execute("SAVEPOINT batch")
            try:
                refusals = attempt_each(batch, self._inserted)
            except BaseException:
                connection.execute("ROLLBACK TO batch")
                raise
            finally:
                connection.execute("RELEASE batch")
        return refusals

    def try_insert(self, batch: Batch) -> Refused:
        """Return which records the table would refuse, and leave it as it is."""
        with self._asking() as connection:
            connection.execute("SAVEPOINT trial")
            try:
                return attempt_each(batch, self._inserted)
            finally:
                connection.execute("ROLLBACK TO trial")
                connection.execute("RELEASE trial")

    def _inserted(self, batch: Batch) -> None:
        """Insert records; raises InputError, and inserts none, where the table does not take one of them."""
        for name in self._sink.key:
            if None in batch[name].tolist():
                raise InputError(f"cannot write {self._sink}: the record has no {name!r}, which is its key")
        columns = [_values(batch[name], kind) for name, kind in self._schema.fields]
        self._connection.execute("SAVEPOINT part")
        try:
            self._connection.executemany(self._insert, zip(*columns, strict=True))
        except _REFUSED as error:
            self._connection.execute("ROLLBACK TO part")
            raise InputError(f"cannot write {self._sink}: {error}") from None
        finally:
            self._connection.execute("RELEASE part")

    def begin(self, writer: str) -> int:
        """Start a transaction anew; return the number that `writer` committed last, -1 if none."""
        with self._asking() as connection:
            self.take_back()
            connection.execute("PRAGMA synchronous = FULL")  # what is committed is there after the power went
            connection.execute(_BATCHES)
            connection.execute(_UNDO)
            row = connection.execute("SELECT batch FROM headwater_batches WHERE writer = ?", [writer]).fetchone()
            return -1 if row is None else int(row[0])

    def take_back(self) -> None:
        """Forget the open transaction, if there is one."""
        with self._asking() as connection:
            connection.rollback()
            self._first = None

    def make_safe(self) -> None:
        """Have what is committed there after the power went: until it is moved over, it is in the log beside the file."""
        log = Path(f"{self._sink.path}-wal")
        try:
            sync(log)
            sync(log.parent)
        except FileNotFoundError:
            pass  # all of it was moved over
        except OSError as error:
            raise explained(error, log, "write") from error

    def commit(self, writer: str, number: int) -> None:
        """End the transaction; `number` is written with it, so that one is there exactly if the other is."""
        with self._asking() as connection, connection:
            row = connection.execute("SELECT batch FROM headwater_batches WHERE writer = ?", [writer]).fetchone()
            after = self._next_row()
            if after is not None:
                rows = [after if self._first is None else self._first, after - 1]
                before = -1 if row is None else row[0]
                connection.execute("INSERT OR REPLACE INTO headwater_undo VALUES (?, ?, ?, ?)", [writer, before, *rows])
            connection.execute("INSERT OR REPLACE INTO headwater_batches VALUES (?, ?)", [writer, number])
        self._first = None

    def undo(self, writer: str, number: int) -> bool:
        """Go back to a number, if that is the one before the last; False where the rows since then cannot be told.

        In a table with keys they stay: who comes again replaces them.
        """
        with self._asking() as connection, connection:
            if not self._sink.key:
                row = connection.execute(
                    "SELECT first, last FROM headwater_undo WHERE writer = ? AND before = ?", [writer, number]
                ).fetchone()
                if row is None or self._next_row() is None:
                    return False
                connection.execute(f"DELETE FROM {_quoted(self._table)} WHERE rowid BETWEEN ? AND ?", row)
            connection.execute("DELETE FROM headwater_undo WHERE writer = ?", [writer])
            connection.execute("INSERT OR REPLACE INTO headwater_batches VALUES (?, ?)", [writer, number])
        return True

    def _next_row(self) -> int | None:
        """Return the number that the next row gets; None where a column of the table's own is its key, and numbers it."""
        table = _quoted(self._table)
        if any(column[5] for column in self._connection.execute(f"PRAGMA table_info({table})")):
            return None
        return int(self._connection.execute(f"SELECT ifnull(max(rowid), 0) FROM {table}").fetchone()[0]) + 1

    @contextmanager
    def _asking(self) -> Iterator[sqlite3.Connection]:
        try:
            yield self._connection
        except sqlite3.Error as error:
            if _is_full(error):
                raise NoRoomError(
                    f"cannot write {self._sink}: the disk is full; free some space or choose another place"
                ) from None
            raise InputError(f"cannot write {self._sink}: {error}{_fix(error)}") from None

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _connect(path: str | Path, *, writing: bool) -> sqlite3.Connection:
    if not writing and not Path(path).exists():
        raise PathError(f"cannot read {path}: there is no such file; is the path right?")
    try:
        # several workers write in turn, never at once
        return sqlite3.connect(path, timeout=_WAIT_S, check_same_thread=False)
    except sqlite3.Error as error:
        raise InputError(f"cannot open {path}: {error}; is its directory there, and may this user use it?") from None


def _names(cursor: sqlite3.Cursor) -> list[tuple[int, str]]:
    return [(at, column[0]) for at, column in enumerate(cursor.description)]


def _create(table: str, schema: Schema, key: tuple[str, ...]) -> str:
    columns = [f"{_quoted(name)} {_TYPES[kind]}" for name, kind in schema.fields]
    if key:
        columns.append(f"PRIMARY KEY ({', '.join(map(_quoted, key))})")
    return f"CREATE TABLE IF NOT EXISTS {_quoted(table)} ({', '.join(columns)})"


def _insert(table: str, schema: Schema, key: tuple[str, ...]) -> str:
    names, marks = ", ".join(map(_quoted, schema)), ", ".join("?" * len(schema))
    insert = f"INSERT INTO {_quoted(table)} ({names}) VALUES ({marks})"
    if not key:
        return insert
    updated = ", ".join(f"{_quoted(name)} = excluded.{_quoted(name)}" for name in schema if name not in key)
    then = f"UPDATE SET {updated}" if updated else "NOTHING"
    return f"{insert} ON CONFLICT ({', '.join(map(_quoted, key))}) DO {then}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _values(column: Column, kind: Type) -> list[Any]:
    if kind == "time":
        return moments_as_text(column)
    return json_texts(column) if kind == "any" else column.tolist()


def _column(values: tuple[Any, ...], kind: Type, name: str) -> Column:
    """Return values of SQLite's few types as a column has them, or raise FlowError where `_value` has to look at each."""
    if kind == "bool" and {0, 1, None}.issuperset(values):
        return column_of([None if value is None else bool(value) for value in values], kind, name=name)
    if kind in ("time", "any") and {str, NoneType}.issuperset(map(type, values)):
        try:
            return column_of_texts([value or "" for value in values], kind)
        except ValueError as error:
            raise FlowError(str(error)) from None
    return column_of([_value(value, kind, name) for value in values] if kind == "any" else values, kind, name=name)


def _value(value: Any, kind: Type, name: str) -> Any:
    """Return a value of SQLite's few types as its column has it, or raise FlowError."""
    if kind == "bool" and value in (0, 1):
        return bool(value)
    if isinstance(value, str) and kind in ("time", "any"):
        try:
            return column_of_texts([value], kind).tolist()[0]
        except ValueError:
            raise FlowError(f"column {name!r}: expected time, got {value!r}") from None
    return checked_value(value, kind, name)


def _is_full(error: BaseException | None) -> bool:
    """Tell whether it was for want of room: then SQLite also takes back savepoints, and it is an error to leave them."""
    while error is not None and getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_FULL:
        error = error.__context__
    return error is not None


def _fix(error: Exception) -> str:
    message = str(error)
    if "locked" in message:
        return "; another process holds it: close that, or write elsewhere"
    if "full" in message:
        return "; free some space or choose another place"
    if "has no column" in message or "ON CONFLICT" in message:
        return "; the table is there with other columns: use another table, or drop it"
    return ""


def _check_position(position: Any, path: str | Path) -> int:
    if position is not None and not (isinstance(position, int) and position >= 0):
        raise InputError(f"cannot read {path} from position {position!r}: expected a number of rows")
    return position or 0
