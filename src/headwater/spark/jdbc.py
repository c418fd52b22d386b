"""Connections to databases with Spark's own means, which find drivers that came with `spark.jars`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headwater.errors import InputError
from headwater.io.jdbc import Jdbc


@contextmanager
def connected(table: Jdbc, doing: str) -> Iterator[Any]:
    """Open a connection of Java's for a while; what is not committed at its end never is.

    Raises InputError with what the database has to say; `doing` is what could not be done with the table then.
    """
    from py4j.protocol import Py4JJavaError

    connection = None
    try:
        connection = dialect_of(table).createConnectionFactory(_options(table)).apply(-1)
        connection.setAutoCommit(False)
        yield connection
    except Py4JJavaError as error:
        why = str(error.java_exception.getMessage() or error.java_exception.toString()).splitlines()[0]
        raise InputError(f"cannot {doing} {table}: {table.without_secrets(why)}") from None
    finally:
        if connection is not None:
            connection.rollback()
            connection.close()


def java() -> Any:
    """Return the Java of the running session."""
    from headwater.spark.session import session

    return session().sparkContext._jvm


def dialect_of(table: Jdbc) -> Any:
    """Return what Spark knows of the database's own ways."""
    return java().org.apache.spark.sql.jdbc.JdbcDialects.get(table.url)


def quoted(connection: Any, names: Any) -> str:
    """Return names of columns as a database takes them in a statement."""
    quote = connection.getMetaData().getIdentifierQuoteString().strip()
    return ", ".join(f"{quote}{name}{quote}" for name in names)


def _options(table: Jdbc) -> Any:
    options = {"url": table.url, "dbtable": table.table, **table.options}
    scala_options = java().PythonUtils.toScalaMap(options)
    return java().org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions(scala_options)
