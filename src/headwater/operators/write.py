"""The last step: hands batches to an open sink."""

from __future__ import annotations

import numpy as np

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.flow.endpoints import Writer, account_of
from headwater.flow.steps import Write
from headwater.operators.operator import DEAD, Operator, Output, dead_letters


class WriteOperator(Operator):
    """Writes each batch; opens the sink when the first is about to come."""

    #: a batch that fails half-way may be half written: it must not be tried again record by record
    stateless = False

    def __init__(self, kind: Write, name: str, given: Schema) -> None:
        self._name = name
        self._writer: Writer | None = kind.sink.open(given)
        #: tells what became of records after they were taken; None for a writer that has nothing to tell
        self.account = account_of(self._writer)

    def process(self, batch: Batch, port: int) -> Output:
        """Write the batch; the records that the sink refuses are dead letters, and the others come out."""
        assert self._writer is not None
        refused = self._writer.write(batch) if batch.length else None
        if not refused:
            return None
        rows = np.array(sorted(refused))
        letters = dead_letters(self._name, [refused[row] for row in rows.tolist()], batch.take(rows))
        return [(0, batch.take(np.delete(np.arange(batch.length), rows))), (DEAD, letters)]

    def close(self) -> None:
        """Close the sink, once."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
