"""Sinks that the driver writes at once, when a micro-batch is complete."""

from __future__ import annotations

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.flow.endpoints import NumberedWriter, Refused
from headwater.io.sifting import storable


class GatheringWriter(NumberedWriter):
    """Keeps the records of a micro-batch until it is committed."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._waiting: list[Batch] = []

    def write(self, batch: Batch) -> Refused:
        """Take some of its records."""
        rows, refusals = storable(batch, self._schema)
        self._waiting.append(rows)
        return refusals

    def rollback(self) -> None:
        """Forget what was not written."""
        self._waiting = []
