"""Parts for an Iceberg table: each is one snapshot, whose summary says which part it is, so that each is there once."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table, TableProperties

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.endpoints import Refused
from headwater.io.arrow import table_of
from headwater.io.iceberg.session import Session, check_columns, is_away
from headwater.io.sifting import storable

if TYPE_CHECKING:
    from headwater.io.iceberg.endpoint import Iceberg

WRITER, PART = "headwater.writer", "headwater.part"  #: in the summary of a snapshot
_TRIES = 20  #: of a commit, while others commit
_PAUSE_S = 0.05  #: after the first, and ever longer


class Appends:
    """How records of a schema get into a table; the table is made if it is not there."""

    def __init__(self, sink: Iceberg, schema: Schema) -> None:
        self._sink, self._schema, self._session = sink, schema, Session(sink, may_make=True)
        self._table: Table | None = None

    def prepare(self) -> Table:
        """Return the table as it is now; raises InputError where it does not fit."""
        if self._table is None:
            self._table = self._session.table_for(self._schema)
        return self._table

    def append(self, batches: Sequence[Batch], name: str | None = None, number: int = 0) -> list[tuple[Batch, Refused]]:
        """Add records in one snapshot, unless it is there by its name and number; return those that no table can hold."""
        parts = [(batch, *storable(batch, self._schema)) for batch in batches]
        rows = pa.concat_tables([_plain(table_of(records, self._schema)) for _, records, _ in parts])
        if rows.num_rows:
            self._append(rows, name, number)
        return [(batch, refusals) for batch, _, refusals in parts if refusals]

    def close(self) -> None:
        """Let the catalog go."""
        self._session.close()
        self._table = None

    def _append(self, rows: Any, name: str | None, number: int) -> None:
        for attempt in range(_TRIES):
            table = self._fresh()
            if name is not None and is_there(table, name, number):
                return
            with self._session.asking("write"):
                try:
                    with table.transaction() as transaction:
                        properties = {} if name is None else {WRITER: name, PART: str(number)}
                        if name is not None:
                            # of the snapshot that is made; tables of format 1 have none
                            sequence = getattr(table.metadata, "last_sequence_number", 0) + 1
                            transaction.set_properties({_property(name): f"{number} {sequence}"})
                        transaction.append(rows, snapshot_properties=properties)
                    return
                except CommitFailedException:
                    pass  # somebody else has committed: what holds now is looked at first
            time.sleep(_PAUSE_S * min(2**attempt, 32) * random.uniform(0.5, 1))
        raise InputError(
            f"cannot write {self._sink}: others commit to it all the time; {_TRIES} attempts came to nothing. Let fewer "
            "write it, or less often: --every says how often a checkpoint is made"
        )

    def _fresh(self) -> Table:
        """Return the table as it is now, for one attempt: the library's own would not look whether the part is there."""
        try:
            table = self.prepare()
            with self._session.asking("write"):
                table = table.refresh()
        except InputError:
            self._table = None
            raise
        check_columns(self._sink, table, self._schema)
        once = {**table.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
        table.metadata = table.metadata.model_copy(update={"properties": once})
        return table


class IcebergUplink:
    """The way to a table, whose catalog may be away; one that does not fit is told at once if it is there."""

    def __init__(self, sink: Iceberg, schema: Schema) -> None:
        self._appends = Appends(sink, schema)
        try:
            self._appends.prepare()
        except InputError as error:
            self._appends.close()
            if not is_away(error):
                raise

    def deliver(self, name: str, number: int, batches: Sequence[Batch]) -> list[tuple[Batch, Refused]]:
        """Have a part in the table, unless it is."""
        return self._appends.append(batches, name, number)

    def close(self) -> None:
        """Let the catalog go."""
        self._appends.close()


def is_there(table: Table, name: str, number: int) -> bool:
    """Tell whether a part is in a table: by the snapshots that led to it, or, where those are expired, by a property.

    The property says which snapshot the part was, and counts if older ones than any that is left were. Alone it would not
    do: it stays as it is when a table is set back to an earlier snapshot. Tables of format 1 do not tell which is older,
    so that there only snapshots count.
    """
    metadata = table.metadata
    by_id = {each.snapshot_id: each for each in metadata.snapshots}
    at, oldest = metadata.current_snapshot_id, 0
    while (snapshot := by_id.get(at or 0)) is not None:
        if snapshot.summary is not None and snapshot.summary.get(WRITER) == name:
            return int(snapshot.summary.get(PART) or -1) >= number
        at, oldest = snapshot.parent_snapshot_id, snapshot.sequence_number or 0
    part, _, sequence = metadata.properties.get(_property(name), "-1 0").partition(" ")
    return int(part) >= number and int(sequence) < oldest


def _property(name: str) -> str:
    return f"{PART}.{name}"


def _plain(rows: Any) -> Any:
    """Return rows without our marks at columns of objects, which are text to all others."""
    return rows.cast(pa.schema([field.remove_metadata() for field in rows.schema]))
