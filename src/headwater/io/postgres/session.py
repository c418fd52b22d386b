"""A connection to a PostgreSQL server, and what its errors mean to us."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from headwater.errors import FlowError, InputError

try:
    import psycopg
    from psycopg import sql
except ImportError as missing:
    raise FlowError(f"PostgreSQL needs psycopg: pip install 'headwater[postgres]' ({missing})") from missing

if TYPE_CHECKING:
    from headwater.io.postgres.endpoint import Postgres

#: a server that is cut off is noticed within seconds: by default a connection would hang for a quarter of an hour
_LIVELY: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}


class Session:
    """One connection, opened when it is needed and again after it was lost."""

    def __init__(self, table: Postgres) -> None:
        self._table = table
        self._connection: psycopg.Connection[Any] | None = None
        self.fresh = True  #: whether nothing was prepared on this connection

    @contextmanager
    def asking(self, doing: str) -> Iterator[psycopg.Connection[Any]]:
        """Give the connection; what goes wrong is told as InputError, and a connection that is lost is opened anew."""
        try:
            if self._connection is None:
                self._connection = psycopg.connect(self._table.url, autocommit=True, **_LIVELY)
                self.fresh = True
            yield self._connection
        except psycopg.Error as error:
            if self._connection is None or self._connection.broken or isinstance(error, psycopg.OperationalError):
                self.close()
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise InputError(f"cannot {doing} {self._table}: {lines[0]}{_fix(error)}") from None

    def close(self) -> None:
        """Let the server go."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def identifier_of(table: str) -> sql.Identifier:
    """Return a table's name, with its schema before a point if there is one."""
    return sql.Identifier(*table.split("."))


def is_away(error: InputError) -> bool:
    """Tell whether a server could not be reached, rather than that it refused."""
    return isinstance(error.__context__, psycopg.OperationalError)


def _fix(error: Exception) -> str:
    if isinstance(error, psycopg.errors.UndefinedColumn | psycopg.errors.InvalidColumnReference):
        return "; the table is there with other columns or another key: use another table, or alter it"
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return "; grant this user the right to do so"
    if isinstance(error, psycopg.OperationalError):
        return "; is the server running, and may this user connect?"
    return ""
