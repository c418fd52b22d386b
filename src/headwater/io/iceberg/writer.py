"""Writing to an Iceberg table without a checkpoint: records are gathered, so that there are not too many snapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.endpoints import Refused
from headwater.io.iceberg.uplink import Appends
from headwater.io.sifting import storable

if TYPE_CHECKING:
    from headwater.io.iceberg.endpoint import Iceberg

_ROWS = 2**16  # gathered for a snapshot


class IcebergWriter:
    """An open table; records are there when they are enough for a snapshot, or it is closed."""

    def __init__(self, sink: Iceberg, schema: Schema) -> None:
        self._schema, self._appends = schema, Appends(sink, schema)
        self._gathered: list[Batch] = []
        try:
            self._appends.prepare()
        except InputError:
            self._appends.close()
            raise

    def write(self, batch: Batch) -> Refused:
        """Take the records; those that no table can hold are refused."""
        if self._waiting() >= _ROWS:
            self.flush()
        kept, refused = storable(batch, self._schema)
        self._gathered.append(kept)
        return refused

    def flush(self) -> None:
        """Add what is gathered, as one snapshot; what cannot be added stays to be added later."""
        if self._waiting():
            self._appends.append(self._gathered)
        self._gathered = []

    def close(self) -> None:
        """Add what is left; raises InputError with the number of records where that cannot be done."""
        try:
            self.flush()
        except InputError as error:
            left = self._waiting()
            raise InputError(f"{error}; {left:,} records are not in the table", records=left) from error
        finally:
            self._appends.close()

    def _waiting(self) -> int:
        return sum(map(len, self._gathered))
