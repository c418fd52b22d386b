"""A table of a database that grows: the driver asks for what is behind the last row that it has seen."""

from __future__ import annotations

import time

from headwater.data.batch import Batch, concat_batches
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.endpoints import Reject, Resume
from headwater.io.arrow import batch_of
from headwater.io.jdbc import Jdbc
from headwater.spark.frames import check_columns
from headwater.spark.jdbc import connected, dialect_of, java, quoted

_AT_ONCE = 65_536  #: rows of an answer, unless one is asked for more

Position = int | str  #: the last row that was read, by the column that orders them


class JdbcRows:
    """A table as a source that the driver reads, and goes on with behind a row."""

    resume: Resume = "position"

    def __init__(self, table: Jdbc) -> None:
        self._table = table

    @property
    def schema(self) -> Schema:
        """The columns of the table that are read."""
        return self._table.schema

    def open(self, reject: Reject, position: Position | None = None) -> JdbcReader:
        """Start reading, behind a row if one is said."""
        return JdbcReader(self._table, position)


class JdbcReader:
    """Reads a table in the order of one of its columns."""

    def __init__(self, table: Jdbc, position: Position | None) -> None:
        self._table, self._schema = table, table.schema
        self.position = position  #: of the last row that was handed out
        self._waiting = Batch.none(self._schema)
        self._ask_s = 0.0  #: when, by this process's clock, it is time to ask again

    def read(self, limit: int, timeout_s: float) -> Batch | None:
        """Return rows; none if there are none yet, and None where those that were there are all that is wanted."""
        if not self._waiting.length:
            left_s = self._ask_s - time.monotonic()
            if left_s > 0:
                time.sleep(min(left_s, timeout_s))
                return Batch.none(self._schema)
            self._waiting = self._ask(max(limit, _AT_ONCE))
            if not self._waiting.length:
                if not self._table.follow:
                    return None
                self._ask_s = time.monotonic() + self._table.every_s
                return self._waiting
        batch = self._waiting.slice(0, min(limit, self._waiting.length))
        self._waiting = self._waiting.slice(batch.length, self._waiting.length)
        self.position = batch[self._table.ordered_by].tolist()[-1]
        return batch

    def close(self) -> None:
        """Nothing is open."""

    def _ask(self, limit: int) -> Batch:
        """Ask for the rows behind the last one, in order, but for the last of an answer that may have more of its kind."""
        rows = self._answered(limit)
        if rows.length < limit:
            return rows
        order = rows[self._table.ordered_by].tolist()
        whole = next((row for row in range(rows.length - 1, 0, -1) if order[row] != order[row - 1]), 0)
        if not whole:
            raise InputError(
                f"cannot read {self._table}: column {self._table.ordered_by!r}, by which it is read, is {order[0]!r} in "
                f"more than {limit:,} rows; name one that tells rows apart"
            )
        return rows.slice(0, whole)

    def _answered(self, limit: int) -> Batch:
        from pyspark.sql import DataFrame

        from headwater.spark.session import session

        spark, table = session(), self._table
        with connected(table, "read") as connection:
            columns, order = quoted(connection, self._schema), quoted(connection, [table.ordered_by])
            behind = "" if self.position is None else f" WHERE {order} > ?"
            statement = connection.prepareStatement(
                f"SELECT {columns} FROM {table.table}{behind} ORDER BY {order}"  # names are the flow's own
            )
            statement.setMaxRows(limit)
            if isinstance(self.position, str):
                statement.setString(1, self.position)
            elif self.position is not None:
                statement.setLong(1, self.position)
            answer = statement.executeQuery()
            utils = java().org.apache.spark.sql.execution.datasources.jdbc.JdbcUtils
            fields = utils.getSchema(connection, answer, dialect_of(table), True, False, False)
            rows = java().scala.collection.JavaConverters.seqAsJavaList(
                utils.resultSetToRows(answer, fields, dialect_of(table)).toList()
            )
            statement.close()
        frame = DataFrame(spark._jsparkSession.createDataFrame(rows, fields), spark)
        check_columns(frame, self._schema, str(table))
        batches = [batch_of(each, self._schema) for each in frame.toArrow().to_batches()]
        return concat_batches(batches) if batches else Batch.none(self._schema)
