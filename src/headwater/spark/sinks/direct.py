"""Sinks that can only be written to: a micro-batch that was cut short by a kill is written once more."""

from __future__ import annotations

from pathlib import Path

from headwater.data.batch import Batch
from headwater.data.schema import Schema
from headwater.flow.endpoints import Refused, Sink
from headwater.spark.sinks.journal import Journal


class DirectSink:
    """Writes at once, and takes note of the micro-batch when the other side has it all: at least once."""

    def __init__(self, sink: Sink, schema: Schema, folder: Path) -> None:
        self._journal = Journal(folder / "written")
        self._writer = sink.open(schema)

    def begin(self, batch_id: int) -> bool:
        """Say whether this micro-batch has still to be written."""
        return batch_id > self._journal.batch

    def write(self, batch: Batch) -> Refused | None:
        """Write some of its records."""
        return self._writer.write(batch)

    def commit(self, batch_id: int) -> None:
        """Wait until nothing is left in a buffer, then take note."""
        flush = getattr(self._writer, "flush", None)
        if flush is not None:
            flush()
        self._journal.write(batch_id)

    def close(self) -> None:
        """Close the sink."""
        self._writer.close()
