"""The last step: hands batches to an open sink."""

from __future__ import annotations

from headwater.flow.batch import Batch
from headwater.flow.endpoints import Writer
from headwater.flow.schema import Schema
from headwater.flow.steps import Write
from headwater.operators.operator import Operator, Output


class WriteOperator(Operator):
    """Writes each batch; opens the sink when the first is about to come."""

    #: a batch that fails half-way may be half written: it must not be tried again record by record
    stateless = False

    def __init__(self, kind: Write, given: Schema) -> None:
        self._writer: Writer | None = kind.sink.open(given)

    def process(self, batch: Batch, port: int) -> Output:
        """Write the batch."""
        assert self._writer is not None
        if batch.length:
            self._writer.write(batch)
        return None

    def close(self) -> None:
        """Close the sink, once."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
