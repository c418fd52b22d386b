"""Parts for a table of PostgreSQL: a part and its number are written in one transaction, so that each is there once."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.endpoints import Refused
from headwater.io.postgres.endpoint import Postgres
from headwater.io.postgres.session import Session, is_away
from headwater.io.postgres.writer import Inserts

_BATCHES = "CREATE TABLE IF NOT EXISTS headwater_batches (writer text PRIMARY KEY, batch bigint NOT NULL)"
_BEGIN = "INSERT INTO headwater_batches VALUES (%s, -1) ON CONFLICT (writer) DO NOTHING"
_LAST = "SELECT batch FROM headwater_batches WHERE writer = %s FOR UPDATE"
_NOTE = "UPDATE headwater_batches SET batch = %s WHERE writer = %s"


class PostgresUplink:
    """The way to a server, which may be away; a table that does not fit is told at once if it is there."""

    def __init__(self, sink: Postgres, schema: Schema) -> None:
        self._session, self._inserts = Session(sink), Inserts(sink, schema)
        try:
            self._prepare()
        except InputError as error:
            if not is_away(error):
                self._session.close()
                raise

    def deliver(self, name: str, number: int, batches: Sequence[Batch]) -> list[tuple[Batch, Refused]]:
        """Have a part in the table, unless it is."""
        self._prepare()
        with self._session.asking("write") as connection, connection.transaction():
            connection.execute(_BEGIN, [name])
            row = connection.execute(_LAST, [name]).fetchone()
            if row is None or row[0] >= number:
                return []
            refusals = [(batch, self._inserts.insert(connection, batch)) for batch in batches]
            connection.execute(_NOTE, [number, name])
        return [(batch, why) for batch, why in refusals if why]

    def close(self) -> None:
        """Let the server go."""
        self._session.close()

    def _prepare(self) -> None:
        with self._session.asking("write") as connection:
            if self._session.fresh:
                connection.execute(_BATCHES)
                self._inserts.prepare(connection)
                self._session.fresh = False
