"""JDBC: a table of any database that has a driver for Java, to read and to write on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from headwater.data.schema import Fields, Schema
from headwater.errors import FlowError
from headwater.flow.duration import Duration, microseconds
from headwater.flow.endpoints import DeliverySemantics, Resume
from headwater.flow.identity import Identity
from headwater.io.urls import without_password, without_secrets


class Jdbc:
    """A table that the Spark runner reads, or adds records to; written, it is made if it is not there.

    `url` is Java's, such as `jdbc:postgresql://host/base`, and `options` are those of Spark's JDBC writer, such as
    `{"user": …, "password": …, "driver": …}`; the driver's jar goes into the setting `spark.jars`. When written, the number
    of the last micro-batch is kept in a table `headwater_batches` of the same database.

    Read, it has the columns of `schema`, in order of the column `order_by`: a number or text that every row has, that tells
    rows apart and that is larger in rows that come later, such as a serial number. With `follow` reading goes on: every
    second, or as `every` says, for what is behind the last row. A row that appears with a smaller value than one that was
    read, as of a transaction that takes long, is not seen.
    """

    delivery: DeliverySemantics = "transactional"  # by Spark's own writer
    resume: Resume = "position"

    def __init__(
        self,
        url: str,
        table: str,
        options: Mapping[str, str] | None = None,
        *,
        schema: Fields | None = None,
        order_by: str | None = None,
        follow: bool = False,
        every: Duration = "1 s",
    ) -> None:
        if not url.startswith("jdbc:"):
            raise FlowError(
                f"a JDBC URL begins with jdbc:, such as jdbc:postgresql://host/base; got {without_password(url)!r}"
            )
        self.url, self.table, self.options = url, table, dict(options or {})
        self.order_by, self.follow, self.every_s = order_by, follow, microseconds(every) / 1e6
        self._schema = None if schema is None else Schema.of(schema)

    @property
    def schema(self) -> Schema:
        """The columns of the rows that are read."""
        if self._schema is None:
            raise FlowError(f"reading {self} takes a schema, such as schema={{'id': int, 'x': float}}")
        return self._schema

    @property
    def ordered_by(self) -> str:
        """The column by which it is read."""
        if self.order_by is None:
            raise FlowError(f"reading {self} takes the column that its rows are ordered by, such as order_by='id'")
        return self.order_by

    @property
    def identity(self) -> Identity:
        """The table, its base, and the order in which it is read."""
        return {"url": without_password(self.url), "table": self.table, "by": self.order_by or ""}

    def check_read(self) -> None:
        """Raise if it does not say how it is read."""
        kind = self.schema.type_of(self.ordered_by, what=f"order_by of {self}")
        if kind not in ("int", "text"):
            raise FlowError(f"order_by of {self} is a column of whole numbers or text; {self.order_by!r} is {kind}")

    def open(self, reject_or_schema: Any, position: Any = None) -> NoReturn:
        """Refuse: there are no drivers but Java's."""
        raise FlowError(f"{self} can be read and written on Spark only: run the flow with --on spark, or use SQLite")

    def __str__(self) -> str:
        return f"{without_password(self.url)} table {self.table}"

    def without_secrets(self, message: str) -> str:
        """Return what a driver said, which may quote the URL, without it and without the values of options."""
        return without_secrets(
            message, {**dict.fromkeys(self.options.values(), "…"), self.url: without_password(self.url)}
        )
