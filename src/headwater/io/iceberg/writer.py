"""Writing to an Iceberg table without a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.errors import InputError
from headwater.flow.endpoints import Refused
from headwater.io.buffered_writer import BufferedWriter
from headwater.io.iceberg.uplink import Appends
from headwater.io.sifting import storable

if TYPE_CHECKING:
    from headwater.io.iceberg.endpoint import Iceberg


class IcebergWriter(BufferedWriter):
    """An open table; what is gathered is one snapshot."""

    def __init__(self, sink: Iceberg, schema: Schema) -> None:
        super().__init__()
        self._schema, self._appends = schema, Appends(sink, schema)
        try:
            self._appends.prepare()
        except InputError:
            self._appends.close()
            raise

    def _sift(self, batch: Batch) -> tuple[Batch, Refused]:
        return storable(batch, self._schema)

    def flush(self) -> None:
        """Add what is gathered, as one snapshot; what cannot be added stays to be added later."""
        if self._waiting():
            self._appends.append(self._batches)
        self._batches = []

    def close(self) -> None:
        """Add what is left, and let the catalog go."""
        try:
            super().close()
        finally:
            self._appends.close()
