"""PostgreSQL: a table to write to, or to read by a column that grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from headwater.data.schema import Fields, Schema
from headwater.errors import FlowError
from headwater.flow.duration import Duration, microseconds
from headwater.flow.endpoints import DeliverySemantics, Ledger, Reject, Resume, Transaction
from headwater.flow.identity import Identity
from headwater.io.urls import without_password

if TYPE_CHECKING:
    from headwater.io.postgres.reader import PostgresReader
    from headwater.io.postgres.writer import PostgresWriter


class Postgres:
    """A table of a PostgreSQL database, to write to or to read; needs the extra `headwater[postgres]`.

    `url` is `postgresql://user@host/database`; the password may come from the environment, as PGPASSWORD, or from
    ~/.pgpass. The table is made if it is not there; it may be `schema.table`.

    Writing: each batch is one transaction, by COPY. With `key`, a record whose key is there replaces the old one. A record
    that the table does not take is refused alone. With a checkpoint, what came between two of them and its number are one
    transaction, so that each record is there once; while the server is away they wait beside the checkpoint.

    Reading goes by `order`, a column that only grows, such as an identity or the time of insertion, and after a restart goes
    on behind the last value. With `follow` it waits for more rows, and looks every `poll`. A row that appears later than
    one with a larger value, as it can where several sessions insert at once, is passed over.
    """

    resume: Resume = "position"
    delivery: DeliverySemantics = "transactional"
    remote = True

    def __init__(
        self,
        url: str,
        table: str,
        schema: Fields | None = None,
        *,
        key: str | Sequence[str] = (),
        order: str | None = None,
        follow: bool = False,
        poll: Duration = "200 ms",
    ) -> None:
        if not url.startswith(("postgresql://", "postgres://")):
            raise FlowError(
                f"the URL of a PostgreSQL database begins with postgresql://, such as postgresql://me@host/base; got "
                f"{without_password(url)!r}"
            )
        self.url, self.table, self.order, self.follow = url, table, order, follow
        self.key = (key,) if isinstance(key, str) else tuple(key)
        self.poll_s = microseconds(poll) / 1e6
        self._schema = None if schema is None else Schema.of(schema)

    @property
    def schema(self) -> Schema:
        """The columns, as given or as the table has them."""
        if self._schema is None:
            from headwater.io.postgres.reader import columns_of

            self._schema = columns_of(self)
        return self._schema

    @overload
    def open(self, reject_or_schema: Reject, position: Any = None) -> PostgresReader: ...
    @overload
    def open(self, reject_or_schema: Schema) -> PostgresWriter: ...
    def open(self, reject_or_schema: Reject | Schema, position: Any = None) -> PostgresReader | PostgresWriter:
        """Start reading, behind the value that `position` is; with a schema instead, start writing."""
        from headwater.io.postgres.reader import PostgresReader
        from headwater.io.postgres.writer import PostgresWriter

        if isinstance(reject_or_schema, Schema):
            return PostgresWriter(self, reject_or_schema)
        return PostgresReader(self, position)

    def transaction(self, schema: Schema, ledger: Ledger) -> Transaction:
        """Start writing in parts, each of which is there once, with its number, as soon as the server is."""
        from headwater.io.postgres.uplink import PostgresUplink
        from headwater.io.transactions.outbox import Outbox

        return Outbox(self, PostgresUplink(self, schema), ledger)

    @property
    def identity(self) -> Identity:
        """The table and its database."""
        return {"database": without_password(self.url), "table": self.table}

    def __str__(self) -> str:
        return f"{without_password(self.url)} table {self.table}"
